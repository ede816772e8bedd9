"""The pictures of the README, nbs/images/demo.png and demo.gif, from the ledger of a demo: draw_demo.py RUN/run.db"""
import sys
from pathlib import Path

from elastic_nb.elastic.ledger import Ledger
from elastic_nb.report.replay import film, story

LIMIT = 2_000_000  # bytes of the film: a visitor with a telephone loads it, too


def draw(ledger: Path, folder: Path) -> None:
    "A picture and a film of the demo whose events are in `ledger`, into `folder`."
    events = {}
    for name in ('disturbed', 'undisturbed'):
        with Ledger(ledger, name, create=False) as run: events[name] = run.events()
    folder.mkdir(exist_ok=True)
    picture = story(events['disturbed'], events['undisturbed'])
    picture.savefig(folder / 'demo.png', dpi=110, bbox_inches='tight', metadata={'Software': None})
    moving = film(events['disturbed'], events['undisturbed'], folder / 'demo.gif')
    if (size := moving.stat().st_size) > LIMIT: raise SystemExit(f'demo.gif: {size:,} bytes, at most {LIMIT:,}')


if __name__ == '__main__': draw(Path(sys.argv[1]), Path(__file__).parent.parent / 'nbs' / 'images')
