"""The pictures of benchmarks/README.md: ratios with their range over all runs, one message each, as SVG.

render_readme.py writes them into benchmarks/images and compares them with `--check`. A bar is the range over all runs
that were ever committed, the dot is the last run, and the axis is logarithmic. The vertical line is 1: equal.
"""
from __future__ import annotations

import math
from html import escape
from pathlib import Path

import render_tables as tables

INK, MUTED, RULE, PAPER, OURS = '#1d2433', '#687083', '#dadee6', '#ffffff', '#4477aa'  # as in report.pictures
WIDTH, LEFT, RIGHT, ROW, TOP = 780, 250, 170, 28, 52  # pixels
# Benchmark -> what the picture says, and its ratios with their labels
PICTURES: dict[str, tuple[str, dict[str, str]]] = {
    'recovery': ('Seconds to recover from a killed worker, others over ours',
                 dict(torchrun_over_notice='torchrun', torchft_over_notice='torchft')),
    'exact': ('Seconds per step, exact sum over all_reduce',
              dict(exact_over_plain_w2='world size 2', exact_over_plain_w4='world size 4')),
    'data': ('Throughput, ours over others',
             dict(throughput_over_materialised='materialised permutation', throughput_over_hf_map='datasets',
                  index_throughput_over_hf_map='tokenizing, datasets', mixed_over_hf_interleave='mixtures, datasets')),
    'checkpoint': ('Seconds that a save blocks training, ours over others',
                   dict(blocking_over_memcpy='GPT-2, one memcpy', blocking_over_dcp_cached='GPT-2, DCP with cached stager',
                        blocking_over_memcpy_10m='10M, one memcpy', blocking_over_dcp_cached_10m='10M, DCP with cached stager')),
    'trainer': ('Tokens per second, the trainer over other loops',
                dict(trainer_over_plain_throughput='plain loop', exact_over_plain_throughput='plain loop, exact sum',
                     trainer_over_ddp_w2_throughput='plain DDP, two workers')),
    'nodes': ('Seconds to recover from a lost machine, others over ours',
              dict(ray_train_over_node_loss='Ray Train', torchrun_default_over_node_loss='torchrun, default settings',
                   torchrun_tuned_over_node_loss='torchrun, tuned settings')),
    'lowcomm': ('Bytes of synchronous training over those of DiLoCo',
                dict(bytes_sync_over_diloco='DiLoCo', bytes_sync_over_int8='int8', bytes_sync_over_sparse16='top-k, one in 16',
                     bytes_sync_over_sparse='SparseLoCo')),
    'walltime': ('Seconds of communication on a bad link, predicted over measured',
                 dict(sync_predicted_over_measured='synchronous', diloco_predicted_over_measured='DiLoCo',
                      int8_predicted_over_measured='int8', int4_predicted_over_measured='int4',
                      sparse_predicted_over_measured='top-k', streaming_predicted_over_measured='streaming')),
    'sharded': ('Seconds, a sharded optimizer over a replicated one',
                dict(sharded_over_replicated_step_w2='step, world size 2', sharded_over_replicated_step_w4='step, world size 4',
                     recovery_over_replicated='recovery, world size 3', recovery_over_replicated_w4='recovery, world size 4')),
}
Row = tuple[str, float, float, float]  # label, last run, smallest, largest


def rows(name: str, root: Path) -> list[Row]:
    "The ratios of a picture that were measured"
    last, runs = tables.load(name, root), tables.history(name, root)
    if last is None: return []
    found = {key: [run['ratios'][key] for run in runs if key in run['ratios']] for key in PICTURES[name][1]}
    return [(label, last['ratios'][key], min(found[key]), max(found[key]))
            for key, label in PICTURES[name][1].items() if key in last['ratios']]


def ticks(low: float, high: float) -> list[float]:
    "Round numbers of a logarithmic axis, at most seven"
    decades = [10. ** e for e in range(-4, 5)]
    for every in (decades, [s * d for d in decades for s in (1, 2, 5)], [n / 10 for n in range(1, 50)], [n / 20 for n in range(1, 50)]):
        near = [x for x in every if low <= x <= high]
        if 3 <= len(near) <= 7: return near
    return [x for x in (low, 1., high) if low <= x <= high]


def svg(name: str, root: Path) -> str:
    "One picture"
    lines = rows(name, root)
    low, high = min(min(r[2] for r in lines), 1.) * .9, max(max(r[3] for r in lines), 1.) * 1.1
    def x(value: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * math.log(value / low) / math.log(high / low), 1)
    bottom = TOP + ROW * len(lines)
    def text(at: float, y: float, words: str, color: str = INK, anchor: str = 'start', more: str = '') -> str:
        return f'<text x="{at}" y="{y}" fill="{color}" text-anchor="{anchor}"{more}>{escape(words)}</text>'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + 30}" viewBox="0 0 {WIDTH} {bottom + 30}" '
           f'font-family="sans-serif" font-size="13">', f'<rect width="100%" height="100%" fill="{PAPER}"/>',
           text(12, 26, PICTURES[name][0], more=' font-size="15" font-weight="bold"')]
    for tick in ticks(low, high):
        out += [f'<line x1="{x(tick)}" x2="{x(tick)}" y1="{TOP - 10}" y2="{bottom}" stroke="{RULE}"/>',
                text(x(tick), bottom + 18, tables.number(tick), MUTED, 'middle')]
    out.append(f'<line x1="{x(1)}" x2="{x(1)}" y1="{TOP - 10}" y2="{bottom}" stroke="{MUTED}"/>')
    for n, (label, last, least, most) in enumerate(lines):
        y = TOP + ROW * n + 8
        out += [text(LEFT - 12, y + 4, label, anchor='end'),
                f'<line x1="{x(least)}" x2="{x(most)}" y1="{y}" y2="{y}" stroke="{OURS}" stroke-width="7" stroke-opacity=".4"/>',
                f'<circle cx="{x(last)}" cy="{y}" r="4.5" fill="{OURS}"/>',
                text(WIDTH - RIGHT + 12, y + 4, said(last, least, most))]
    return '\n'.join([*out, '</svg>']) + '\n'


def said(last: float, least: float, most: float) -> str:
    "A ratio in words"
    spread = tables.span([least, most])
    return tables.number(last) + (f' ({spread})' if ' to ' in spread else '')


def picture(name: str, root: Path) -> str:
    "The line of markdown that shows a picture; its text says the numbers"
    if not (lines := rows(name, root)): return ''
    words = '; '.join(f'{label} {said(*numbers)}' for label, *numbers in lines)
    return f'![{PICTURES[name][0]}: {words}](images/{name}.svg)'


def pictures(root: Path) -> dict[str, str]:
    "File below benchmarks -> its content"
    return {f'images/{name}.svg': svg(name, root) for name in PICTURES if rows(name, root)}
