"""The model card of a base model: what it is, what it can do, and how it was made."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from jaxlake.files import write_text_whole
from training.pretraining.files import Evaluation
from training.pretraining.schema import Goal, PretrainConfig

_CARD = """\
---
license: mit
library_name: transformers
pipeline_tag: text-generation
---
# {name}

A Qwen3-shaped decoder of a million parameters. It plans for {agents} agents on frozen lakes of
{least}x{least} to {most}x{most} cells, and designs the next stage's lakes from a compact context.
It was made from nothing but solver plans and made-up contexts with the rule's edits, by
`jaxlake pretrain` ({steps} steps, seed {seed}).

It is a starting point for experiments on two CPU cores, not a planner: plans are to be verified.
{verdict}

## Designs, on held-out contexts

{right:.1%} of its edits equal the rule's. Where a swapped fact changes the rule's edit, its own
changes with it: {flips}.

Each of these edits was predicted after the rule's edits before it, on the swapped side after those
of the swapped answer. `jaxlake engineer reading` measures answers that the model writes by itself.

## Plans, on held-out boards, at temperature 1

Valid rate in per cent, boards that need no wait / boards that need one (`-`: no such boards). There
are {each} boards per cell at most, so that an entry is good to about {error:.0f} points.

| holes | {heads} |
|---|{rules}|
{rows}

Boards of other seeds may have been among those that it imitated, which matters on 3x3 above all.
"""


def shortfalls(evaluation: Evaluation, goal: Goal) -> list[str]:
    """Say where an evaluation is below a goal; cells that were not asked are left out."""
    found = []
    if evaluation.edits_right < goal.edits_right:
        found.append(f"edits right {evaluation.edits_right:.1%} (goal {goal.edits_right:.0%})")
    found += [
        f"flips with {fact} {share:.1%} (goal {goal.flips:.0%})"
        for fact, share in evaluation.flips.items()
        if share < goal.flips
    ]
    found += [
        f"valid in {cell} {rate:.1%} (goal {goal.least_valid:.0%})"
        for cell, rate in (evaluation.valid or {}).items()
        if rate < goal.least_valid
    ]
    return found


def write_card(folder: Path, config: PretrainConfig, evaluation: Evaluation) -> None:
    """Write `README.md` into a model's folder."""
    lake = config.boards
    turned = evaluation.turned
    rates: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for name, rate in (evaluation.valid or {}).items():
        side, ratio, kind = name.split("_")
        rates[side, ratio][kind] = rate
    rows = []
    for holes in lake.hole_ratios:
        cells = []
        for size in lake.sizes:
            found = rates.get((f"{size}x{size}", f"hr{holes:g}"), {})
            cells.append(
                " / ".join(f"{100 * found[k]:.0f}" if k in found else "-" for k in ("go", "wait"))
            )
        rows.append(f"| {holes:.0%} | {' | '.join(cells)} |")
    text = _CARD.format(
        name=config.name,
        agents=lake.num_agents,
        least=lake.sizes[0],
        most=lake.sizes[-1],
        steps=evaluation.step,
        seed=config.seed,
        right=evaluation.edits_right,
        flips=", ".join(
            f"{fact} {share:.1%}" + (f" of {turned[fact]}" if turned else "")
            for fact, share in evaluation.flips.items()
        ),
        each=config.goal.boards_per_cell,
        error=100 * (0.25 / config.goal.boards_per_cell) ** 0.5,
        heads=" | ".join(f"{size}x{size}" for size in lake.sizes),
        rules="|".join("---" for _ in lake.sizes),
        rows="\n".join(rows),
        verdict=(
            f"It falls short of the goal of its pretraining: {', '.join(missed)}."
            if (missed := shortfalls(evaluation, config.goal))
            else "It meets the goal of its pretraining (`pretraining.yaml`)."
        ),
    )
    write_text_whole(folder / "README.md", text)
