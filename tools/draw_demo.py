"""The pictures of the README, nbs/images/demo.png and demo.gif, from the ledger of a demo: draw_demo.py RUN/run.db

`draw_demo.py --self-test` draws a small run instead, and checks what is drawn."""
from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from elastic_nb.data.resumable_dataset import ResumableDataset
from elastic_nb.data.demo_text import rhyme
from elastic_nb.elastic.fault_injection import fail_at
from elastic_nb.elastic.ledger import Event, Ledger, committed_losses, outages
from elastic_nb.elastic.loop import ElasticLoop
from elastic_nb.elastic.gradient_sync import ExactSync
from elastic_nb.models.gpt import GPTConfig, seeded_gpt
from elastic_nb.report.pictures import FAULT_MARKER, FAULT_COLOR, GENERATION_COLORS, INK, MUTED, RULE, style, timeline
from elastic_nb.testing.thread_cluster import run_elastic_in_threads
from elastic_nb.train.engine_between_steps import Engine

LIMIT = 2_000_000  # bytes of the film: a visitor with a telephone loads it, too


def two_runs(
    disturbed: Sequence[Event], # A run with faults
    undisturbed: Sequence[Event], # The same config and seed, left alone
    axes: Sequence[Axes] | None = None, # Three, with the same limits; a new figure if None
) -> Sequence[Axes]:
    "Three panels: the run left alone, the run that was hit, and both, one laid on the other."
    hit, alone = committed_losses(disturbed), committed_losses(undisturbed)
    faults = [e.step for e in disturbed if e.kind == 'fault' and e.step < len(hit)]
    apart = max((abs(a - b) for a, b in zip(hit, alone)), default=0.)
    same = apart == 0 and len(hit) == len(alone)
    with style():
        if axes is None:
            axes = plt.subplots(1, 3, figsize=(9, 2.2), sharex=True, sharey=True, layout='constrained')[1]
        for ax in (axes[0], axes[2]): ax.plot(alone, color=GENERATION_COLORS[4], linewidth=5, alpha=.7)
        for ax in axes[1:]:
            ax.plot(hit, color=INK, linewidth=1.1)
            ax.plot(faults, [hit[s] for s in faults], **FAULT_MARKER)
            ax.tick_params(labelleft=False)
        words = 'both: the same line' if same else 'both: not the same'
        for ax, title in zip(axes, ('left alone', 'a worker was killed', words)):
            ax.set_title(title, fontsize=10, color=FAULT_COLOR if title == 'both: not the same' else INK)
            ax.tick_params(length=0)
            ax.set(xlabel='step', ylim=(0, 1.05 * max([*hit, *alone], default=1.)))
        axes[0].set_ylabel('loss, nats per token')
    return axes


def close_up(events: Sequence[Event], before: float = .4, after: float = .8) -> tuple[float, float]:
    """Seconds from the start of the run: the first stretch that a death has left without a commit, with
    `before` and `after` seconds around it. Without one, the whole run."""
    events = sorted(events, key=lambda e: e.t)
    t0 = next((e.t for e in events if e.kind == 'run_start'), events[0].t)
    end = events[-1].t - t0
    gaps = sorted(o.commit_gap for o in outages(events) if o.commit_gap)
    if not gaps: return 0., end
    return max(0., gaps[0][0] - t0 - before), min(end, gaps[0][1] - t0 + after)


def _lanes(ax: Axes, events: Sequence[Event], window: tuple[float, float]) -> None:
    "A timeline on an axis that is a part of a figure: its legend is lower, by its own height."
    timeline(events, ax, window)
    ax.set_xlabel('seconds', loc='right')
    tall = ax.get_position().height * ax.get_figure().get_figheight()   # inches
    ax.get_legend().set_bbox_to_anchor((0, -.28 / tall), transform=ax.transAxes)


def story(disturbed: Sequence[Event], undisturbed: Sequence[Event]) -> Figure:
    "A picture for people in a hurry: the lanes around the first kill, and below them both losses."
    with style():
        fig = plt.figure(figsize=(9, 5.2))
        grid = fig.add_gridspec(2, 3, height_ratios=(1, 1.25), hspace=.95, wspace=.08)
        _lanes(fig.add_subplot(grid[0, :]), disturbed, close_up(disturbed))
        first = fig.add_subplot(grid[1, 0])
        rest = [fig.add_subplot(grid[1, i], sharex=first, sharey=first) for i in (1, 2)]
        two_runs(disturbed, undisturbed, [first, *rest])
    return fig


def until(events: Sequence[Event], t: float) -> list[Event]:
    "What the ledger had at `t`, in seconds of its clock; work that was committed later is not shown yet."
    def key(e: Event) -> tuple: return e.worker, e.gen, e.step
    later = {key(e) for e in events if e.kind == 'commit' and e.t > t}
    return [e for e in events if e.t <= t and not (e.kind == 'contribute' and key(e) in later)]


def caption(events: Sequence[Event], t: float) -> tuple[str, str]:
    "What is going on at `t`, and the clock of the newest recovery; `t` in seconds of the ledger's clock."
    now = [e for e in events if e.t <= t]
    gaps = sorted({o.commit_gap for o in outages(events) if o.commit_gap and o.start <= t})
    if not gaps: return 'all workers train', ''
    start, end = gaps[-1]
    clock = f'RTO {min(t, end) - start:.3f} s'
    if t < end: return 'a worker was killed: no step is done', clock
    worlds = [len(e.data['roster']) for e in now if e.kind == 'generation']
    entered = [e for e in now if e.kind == 'entered']
    whole = worlds[-1] == worlds[0] and entered[-1].gen == max(e.gen for e in entered)
    workers = len({e.worker for e in entered if e.gen == entered[-1].gen})
    if whole and workers == worlds[0]: return f'healed: {workers} workers again', clock
    return 'the others go on, and a replacement starts', clock


def frame(disturbed: Sequence[Event], undisturbed: Sequence[Event], t: float, window: tuple[float, float],
          slower: float = 1.) -> Figure:
    "The run at `t`, in seconds from its start: lanes within `window`, a sentence, the clock, both losses."
    t0 = next((e.t for e in disturbed if e.kind == 'run_start'), disturbed[0].t)
    shown = until(disturbed, t0 + t)
    words, clock = caption(disturbed, t0 + t)
    alone, so_far = committed_losses(undisturbed), committed_losses(shown)
    with style():
        fig, (lanes, curve) = plt.subplots(2, 1, figsize=(7.6, 4.3), height_ratios=(1.1, 1))
        fig.subplots_adjust(left=.09, right=.98, top=.8, bottom=.11, hspace=1.15)
        _lanes(lanes, shown, window)
        lanes.set_ylim(len(lanes.get_yticks()) - .4, -1.4)   # room for a bracket, always
        curve.plot(alone, color=GENERATION_COLORS[4], linewidth=5, alpha=.7, label='left alone')
        curve.plot(so_far, color=INK, linewidth=1.3, label='this run')
        faults = [e.step for e in shown if e.kind == 'fault' and e.step < len(so_far)]
        curve.plot(faults, [so_far[s] for s in faults], **FAULT_MARKER)
        curve.legend(labelcolor=MUTED, loc='upper right')
        curve.set(xlim=(0, len(alone)), ylim=(0, 1.05 * max(alone)), xlabel='step', ylabel='loss')
        fig.text(.09, .93, words, fontsize=13, color=INK)
        fig.text(.98, .93, clock, fontsize=15, ha='right', family='monospace', weight='bold',
                 color=FAULT_COLOR if words.startswith('a worker was killed') else GENERATION_COLORS[2])
        if slower != 1: fig.text(.09, .88, f'{slower:g} times slower than it was', color=MUTED)
    return fig


def _palette() -> Image.Image:
    "The package's colors and their shades towards white: all frames share them, so that no color flickers."
    found = []
    for name in (INK, MUTED, RULE, FAULT_COLOR, *GENERATION_COLORS):
        rgb = np.array(to_rgb(name))
        found += [255 * (1 - k * (1 - rgb)) for k in (1, .85, .7, .5, .35)]
    found = [255 * np.ones(3)] * (256 - len(found)) + found
    image = Image.new('P', (1, 1))
    image.putpalette(np.array(found).round().astype(np.uint8).tobytes())
    return image


def _images(disturbed: Sequence[Event], undisturbed: Sequence[Event], times: Sequence[float],
            window: tuple[float, float], slower: float) -> Iterator[Image.Image]:
    palette = _palette()
    for t in times:
        fig = frame(disturbed, undisturbed, t, window, slower)
        data = io.BytesIO()
        fig.savefig(data, format='png', dpi=100)
        plt.close(fig)
        yield Image.open(data).convert('RGB').quantize(palette=palette, dither=Image.Dither.NONE)


def film(
    disturbed: Sequence[Event], # The run to be shown
    undisturbed: Sequence[Event], # The same config and seed, left alone
    path: str | Path, # The GIF to be written
    seconds: float = 10., # How long it takes to play, without the last picture
    fps: int = 8, # Frames per second
) -> Path:
    "A film of the first recovery, as an animated GIF that is played for ever; its last picture stays 4 s."
    window = close_up(disturbed)
    times = np.linspace(*window, max(2, round(seconds * fps)))
    slower = float(f'{seconds / (window[1] - window[0]):.1g}')
    first, *rest = _images(disturbed, undisturbed, times, window, slower)
    pause = [10 * round(100 / fps)] * len(rest) + [4000]
    first.save(path, save_all=True, append_images=rest, duration=pause, loop=0, optimize=True)
    return Path(path)


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


def small_runs() -> tuple[list[Event], list[Event]]:
    "The rows of a run whose worker 2 is killed in step 16, and of the same run left alone; ranks are threads."
    config = GPTConfig(context=32, width=32, layers=1, heads=4, dropout=.05)
    text = ResumableDataset(index_file=rhyme(20_000), seq_length=32)

    def worker(member: object) -> ElasticLoop:
        engine = Engine(seeded_gpt(config, seed=0), train_dataset=text, loss='sum', steps=40, lr=.01, warmup=4,
                        schedule='cosine', batch_size=32, checkpoint_interval=0).prepare('cpu')
        return ElasticLoop(member, engine, ExactSync(engine.task, 8))

    def run(*faults: object) -> list[Event]:
        return sorted(map(Event.of, run_elastic_in_threads(worker, 3, *faults)), key=lambda e: e.t)
    return run(fail_at(rank=2, step=16)), run()


def check_panels(killed: list[Event], calm: list[Event]) -> None:
    "The third panel says `the same` of the same, and something else of one loss that is missing or a bit off."
    panels = two_runs(killed, calm)
    assert panels[2].get_title() == 'both: the same line'
    assert [len(ax.lines) for ax in panels] == [1, 2, 3]
    for i in (0, 1):   # the lines of the last panel are those of the other two
        assert list(panels[2].lines[i].get_ydata()) == list(panels[i].lines[0].get_ydata())

    def nudged(e: Event) -> Event: return replace(e, data=e.data | dict(loss=float(np.nextafter(e.data['loss'], 9.))))
    other = [nudged(e) if (e.kind, e.step) == ('commit', 25) else e for e in killed]
    shorter = [e for e in killed if (e.kind, e.step) != ('commit', 39)]
    for bad in (other, shorter): assert two_runs(bad, calm)[2].get_title() == 'both: not the same'


def check_moments(killed: list[Event], calm: list[Event]) -> None:
    "What is shown before, during and after the recovery; the clock stops when it heals."
    start, end = close_up(killed)
    gap = next(o.commit_gap for o in outages(killed) if o.commit_gap)
    assert start < gap[0] - killed[0].t < gap[1] - killed[0].t < end
    assert close_up(calm)[0] == 0.
    assert len(story(killed, calm).axes) == 4
    half = until(killed, (gap[0] + gap[1]) / 2)   # in the middle of the recovery
    assert len(committed_losses(half)) == 16 and until(killed, killed[-1].t) == killed
    struck = next(e.t for e in killed if e.kind == 'fault')   # perhaps before the last commits of that step
    times = min(gap[0], struck) - .01, (gap[0] + gap[1]) / 2, killed[-1].t
    assert len({caption(killed, t)[0] for t in times}) == 3
    rto = f'RTO {gap[1] - gap[0]:.3f} s'
    assert [caption(killed, t)[1] for t in (times[0], gap[1] + 1e-4, times[2])] == ['', rto, rto]


def check_film(killed: list[Event], calm: list[Event]) -> None:
    "Its size, how long it plays, and that it plays for ever."
    with tempfile.TemporaryDirectory() as folder:
        gif = film(killed, calm, Path(folder) / 'demo.gif', seconds=1, fps=6)
        with Image.open(gif) as played:
            shown = [(played.seek(i), played.info['duration'])[1] for i in range(played.n_frames)]
            found = played.size, sum(shown), played.info['loop']
        size = gif.stat().st_size
    assert found == ((760, 430), 5 * 170 + 4000, 0), found   # of equal frames in a row one is stored
    assert size < LIMIT * 6 / 80, size                       # a film has 80 frames


def self_test() -> None:
    "Draw a small run, and check what is drawn."
    killed, calm = small_runs()
    for check in (check_panels, check_moments, check_film): check(killed, calm)
    print('a picture and a film of a small run are right')


if __name__ == '__main__':
    if sys.argv[1:] == ['--self-test']: self_test()
    else: draw(Path(sys.argv[1]), Path(__file__).parent.parent / 'nbs' / 'images')
