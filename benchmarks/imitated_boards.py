"""Count the validation boards of a run that the base model imitated plans of.

    python -m benchmarks.imitated_boards [CONFIG] [--base configs/base.yaml] [--set KEY=VALUE ...]

The pretraining holds out boards of its own, not those that runs validate on. Its boards are drawn
again here, in a few minutes, and told apart by their prompts.
"""

import argparse
from collections import Counter
from collections.abc import Sequence, Set
from pathlib import Path

from jaxlake.language.prompts import render
from training.phases.validate import validation_set
from training.pretraining.boards import PROMPT_STYLE, draw_held_out, draw_plans
from training.pretraining.schema import load_pretrain
from training.rollout.instances import InstanceSet
from training.schema import load


def imitated_by_size(prompts: Set[str], boards: InstanceSet) -> dict[int, tuple[int, int]]:
    """Count by map size how many boards have one of these prompts, and how many there are."""
    found: Counter[int] = Counter()
    every: Counter[int] = Counter()
    for board in boards:
        size = int(board.size)
        every[size] += 1
        found[size] += render(board, PROMPT_STYLE) in prompts
    return {size: (found[size], count) for size, count in sorted(every.items())}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each map size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", nargs="?", type=Path, default=Path("configs/miniature.yaml"))
    parser.add_argument("--base", type=Path, default=Path("configs/base.yaml"))
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    given = parser.parse_args(arguments)
    base = load_pretrain(given.base)
    held_out = draw_held_out(base, base.goal.boards_per_cell)
    prompts = {prompt for prompt, _ in draw_plans(base, held_out)}
    found = imitated_by_size(prompts, validation_set(load(given.config, given.set)))
    for size, (imitated, count) in found.items():
        print(f"{size}x{size}: {imitated} of {count} boards")
    total = sum(imitated for imitated, _ in found.values())
    print(f"all: {total} of {sum(count for _, count in found.values())} boards")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
