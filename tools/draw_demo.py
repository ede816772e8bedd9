"""Draw the pictures of the README, nbs/images/demo_*.png, from the ledger of a real demo: draw_demo.py RUN/run.db"""
import sys
from pathlib import Path

from elastic_nb.elastic.ledger import Ledger
from elastic_nb.report.pictures import loss_curves, timeline


def draw(ledger: Path, folder: Path) -> None:
    "Timeline and losses of the demo whose events are in `ledger`, into `folder`."
    events = {}
    for name in ('disturbed', 'undisturbed'):
        with Ledger(ledger, name, create=False) as run: events[name] = run.events()
    folder.mkdir(exist_ok=True)
    work, losses = timeline(events['disturbed']), loss_curves(events['disturbed'], events['undisturbed'])[0]
    for ax, name in ((work, 'demo_timeline'), (losses, 'demo_losses')):
        ax.get_figure().savefig(folder / f'{name}.png', dpi=110, bbox_inches='tight', metadata={'Software': None})


if __name__ == '__main__': draw(Path(sys.argv[1]), Path(__file__).parent.parent / 'nbs' / 'images')
