"""Compare the engineers of a study from its answers alone: `outcomes.json.gz` of all its pieces.

    python -m benchmarks.study_contrasts FILE [FILE ...] [--contrast A B ...] [--scale WORST BEST]

A long study can run in pieces with different seeds or engineers. For every engineer, the command
prints its seeds, the rate of valid answers after the last stage with its interval, and the rates
after each stage. For each contrast A B, it prints the paired difference A minus B, the intervals of
`training/analysis/study/contrasts.py`, the spread of the differences of single seeds, the smallest
true difference that so many seeds find in four of five cases, and how often they find 2 points.
With `--scale` each engineer's regret to BEST follows, in shares of the way from WORST to BEST.
"""

import argparse
import gzip
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from training.analysis.study.contrasts import Contrast, Interval, contrast, mean_interval, power

WANTED = 0.02
"""The true difference for the printed power, as a fraction of all answers."""

START_MAY_DIFFER = 0.05
"""Maximum fraction of boards that two runs of one model answer differently before training.

Runs of one model agree across processors; different base models differ on about 20% of boards.
"""

Runs = dict[str, dict[int, np.ndarray]]
"""Answers by engineer and seed: valid or not before training and after each stage, (T + 1, B)."""


def read_pieces(paths: Sequence[Path]) -> Runs:
    """Read all runs of these files.

    Raises:
        ValueError: A file is damaged, holds answers to other boards than the first, a run that
            another one holds too, or one that began with another model.
    """
    runs: Runs = {}
    boards = start = None
    for path in paths:
        try:
            content = json.loads(gzip.decompress(path.read_bytes()))
            grids = [board["grid"] for board in content["boards"]]
        except (OSError, EOFError, ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{path}: can't be read as outcomes of a study: {error}") from error
        if boards not in (None, grids):
            raise ValueError(f"{path}: its boards are not those of {paths[0]}")
        boards = grids
        for run in content["runs"]:
            name, seed = run["engineer"], run["seed"]
            valid = np.array([list(row) for row in run["valid"]]) == "1"
            start = valid[0] if start is None else start
            if (apart := np.mean(valid[0] != start)) > START_MAY_DIFFER:
                raise ValueError(
                    f"{path}: {name}, seed {seed}: began with another model than the first run of "
                    f"{paths[0]}: before training {apart:.1%} of its answers differ, more than "
                    f"{START_MAY_DIFFER:.0%}"
                )
            if seed in runs.setdefault(name, {}):
                raise ValueError(f"{path}: {name}, seed {seed}: is in two files")
            runs[name][seed] = valid
    return runs


def final(runs: Runs, engineer: str) -> dict[int, np.ndarray]:
    """Return an engineer's answers after the last stage, by seed."""
    if engineer not in runs:
        raise ValueError(f"engineer is {engineer}; it must be one of {', '.join(sorted(runs))}")
    return {seed: valid[-1] for seed, valid in runs[engineer].items()}


def regret(runs: Runs, engineer: str, worst: str, best: str) -> float:
    """Return an engineer's position between the best (0) and the worst (1) one.

    Over the seeds that all three have; NaN if there are none.
    """
    answers = [final(runs, name) for name in (engineer, worst, best)]
    seeds = set.intersection(*map(set, answers))
    if not seeds:
        return math.nan
    own, low, high = (np.mean([answer[seed] for seed in seeds]) for answer in answers)
    return float((high - own) / (high - low))


def print_report(runs: Runs, contrasts: Sequence[Sequence[str]], scale: Sequence[str]) -> None:
    """Print the tables that the module describes."""
    width = max(map(len, runs))
    print("Valid answers, per cent; after each stage.")
    for name, own in runs.items():
        curve = " -> ".join(f"{100 * stage.mean():.1f}" for stage in np.stack([*own.values()], 1))
        rate = _points(mean_interval(np.stack([*final(runs, name).values()]).astype(int)))
        print(f"  {name:<{width}}  {rate}  {len(own):>2} seeds  {curve}")
    if contrasts:
        print(
            "\nDifferences, points. First interval: other seeds on other boards (bootstrap); that"
            "\nof `seeds`: other seeds on these boards (t-test). apart: between seeds; found: by"
            "\nthis t-test in four of five cases; power: how often 2 points are found."
        )
    for first, second in contrasts:
        print(
            f"  {first} - {second}: {_contrast(contrast(final(runs, first), final(runs, second)))}"
        )
    if scale:
        print(f"\nRegret, share of the way from {scale[1]} back to {scale[0]}, over common seeds.")
        for name in runs:
            print(f"  {name:<{width}}  {regret(runs, name, *scale):.2f}")


def _contrast(one: Contrast) -> str:
    low, high = one.over_seeds
    ends = "unknown" if math.isnan(low) else f"[{100 * low:+.1f}, {100 * high:+.1f}]"
    seeds = len(one.seeds)
    spread = f"{100 * one.deviation:.1f} apart"
    if one.deviation > 0.0:
        error = one.deviation / math.sqrt(seeds)
        spread += f", {100 * one.detectable:.1f} found, power {power(WANTED / error, seeds):.0%}"
    else:
        spread += ", power unknown"
    difference = _points(one.difference, "+.1f")
    return f"{difference}, seeds {ends}, {seeds} seeds, {spread}"


def _points(interval: Interval, form: str = ".1f") -> str:
    ends = (interval.value, interval.low, interval.high)
    return "{} [{}, {}]".format(*(format(100 * end, form) for end in ends))


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the files and print the tables; return 2 if files or names are invalid."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--contrast", nargs=2, action="append", default=[], metavar=("A", "B"))
    parser.add_argument("--scale", nargs=2, default=(), metavar=("WORST", "BEST"))
    args = parser.parse_args(arguments)
    try:
        print_report(read_pieces(args.files), args.contrast, args.scale)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
