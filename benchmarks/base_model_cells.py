"""How often a model's answers are valid in each cell of a validation set, from many answers.

    python -m benchmarks.base_model_cells configs/miniature.yaml --answers 32
    python -m benchmarks.base_model_cells configs/miniature.yaml --set validation.per_cell=75 ...

A cell holds the boards of one size and number of holes that all need a wait, or all need none. One
answer to each of 50 boards says little of a cell in which one answer in twelve is valid; so each
board is answered many times at the validation temperature. Intervals (95%) are over the boards:
means of boards resampled 2,000 times. The goal: every cell between 5 and 85%.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxlake.files import write_text_whole
from training.analysis.evaluation import frozen_policy
from training.environments.catalogue import environment_of
from training.phases.validate import CHUNK, validation_set
from training.policy import huggingface
from training.rollout.instances import InstanceSet
from training.run.progress import new_table, print_table, track
from training.schema import RunConfig, load

GOAL = (0.05, 0.85)
_RESAMPLES = 2000


class CellRate(NamedTuple):
    """The valid rate of one cell."""

    size: int
    holes: int
    needs_wait: bool
    boards: int
    valid: float  # mean over the boards of the share of their answers that is valid
    low: float
    high: float


def rates_by_board(config: RunConfig, model: str, boards: InstanceSet, answers: int) -> np.ndarray:
    """Return the share of each board's answers that is valid, float64 (B,)."""
    valid = []
    with frozen_policy(config, huggingface.resolve(model)) as (policy, sampler):
        prompts = [policy.encode_board(board) for board in boards]
        with track("answers", len(prompts)) as advance:
            for first in range(0, len(prompts), CHUNK):
                groups = sampler.sample(
                    prompts[first : first + CHUNK],
                    n=answers,
                    temperature=config.validation.temperature,
                    max_tokens=config.prompt.max_tokens,
                    stop_token_ids=policy.stop_ids,
                    seed=config.validation.seed + first,
                )
                texts = [policy.decode(one.token_ids) for group in groups for one in group]
                rows = np.repeat(np.arange(first, first + len(groups)), answers)
                scores = environment_of(config).judge(boards.take(rows), texts).scores
                valid.append(np.reshape(scores.valid, (len(groups), answers)).mean(axis=1))
                advance(first + len(groups))
    return np.concatenate(valid)


def cell_rates(boards: InstanceSet, rates: np.ndarray) -> list[CellRate]:
    """Put the boards' rates together by cell, cells ascending."""
    found: dict[tuple[int, int, bool], list[float]] = defaultdict(list)
    for row, board in enumerate(boards):
        size = int(board.size)
        holes = int(np.asarray(board.holes)[:size, :size].sum())
        found[size, holes, bool(boards.solutions.needs_wait[row])].append(rates[row])
    rng = np.random.default_rng(0)
    cells = []
    for key, values in sorted(found.items()):
        means = rng.choice(values, (_RESAMPLES, len(values))).mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        cells.append(CellRate(*key, len(values), float(np.mean(values)), float(low), float(high)))
    return cells


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table; `--json` writes it, too."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.base_model_cells")
    parser.add_argument("config", type=Path, help="a configuration whose validation set is used")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--model", default="jaxlake-base", help="a model folder or hub name")
    parser.add_argument("--answers", type=int, default=32, help="answers to each board")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the cells as JSON")
    options = parser.parse_args(arguments)
    config = load(options.config, options.set)
    boards = validation_set(config)
    cells = cell_rates(boards, rates_by_board(config, options.model, boards, options.answers))
    title = f"{options.model}: {options.answers} answers to each of {len(boards)} boards"
    table = new_table(title, "map size", "holes", "a wait", "boards", "valid, %", "95%", "in goal")
    for one in cells:
        table.add_row(
            f"{one.size}x{one.size}",
            str(one.holes),
            "needed" if one.needs_wait else "no",
            str(one.boards),
            f"{100 * one.valid:.1f}",
            f"{100 * one.low:.1f} to {100 * one.high:.1f}",
            "yes" if GOAL[0] <= one.valid <= GOAL[1] else "no",
        )
    print_table(table, kept=3)
    if options.json is not None:
        plain = {"model": options.model, "answers": options.answers}
        rows = [one._asdict() for one in cells]
        write_text_whole(options.json, json.dumps(plain | {"cells": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
