"""Compare the engineers of a study from its answers alone: `outcomes.json.gz` of all its pieces.

    python -m benchmarks.study_contrasts FILE [FILE ...] [--contrast A B ...] [--scale WORST BEST]

A long study can run in pieces with different seeds or engineers. For every engineer, the command
prints its seeds, the rate of valid answers after the last stage with its interval, and the rates
after each stage. For each contrast A B, it prints the paired difference A minus B, the intervals of
`training/analysis/study/contrasts.py`, the spread of the differences of single seeds, the smallest
true difference that these seeds detect with a power of 80%, and their power to detect 2 points.
With `--scale`, it prints each engineer's regret: 0 for BEST, 1 for WORST.
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

POWER_DIFFERENCE = 0.02
"""The true difference for the printed power, as a fraction of all answers."""

MAX_START_DIFFERENCE = 0.05
"""Maximum fraction of boards that two runs of one model answer differently before training.

Runs of one model agree across processors; different base models differ on about 20% of boards.
"""

Runs = dict[str, dict[int, np.ndarray]]
"""Answers by engineer and seed: valid or not before training and after each stage, (T + 1, B)."""


def read_pieces(paths: Sequence[Path]) -> Runs:
    """Read all runs of these files.

    Raises:
        ValueError: A file is damaged, has other boards than the first file, or has a run that
            occurs twice or began with another model.
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
            raise ValueError(f"{path}: its boards differ from those of {paths[0]}")
        boards = grids
        for run in content["runs"]:
            name, seed = run["engineer"], run["seed"]
            valid = np.array([list(row) for row in run["valid"]]) == "1"
            start = valid[0] if start is None else start
            if (difference := np.mean(valid[0] != start)) > MAX_START_DIFFERENCE:
                raise ValueError(
                    f"{path}: {name}, seed {seed} began with another model than the first run of"
                    f" {paths[0]}: at most {MAX_START_DIFFERENCE:.0%} of the answers before"
                    f" training may differ, got {difference:.1%}"
                )
            if seed in runs.setdefault(name, {}):
                raise ValueError(f"{path}: {name}, seed {seed} occurs twice")
            runs[name][seed] = valid
    return runs


def get_final_answers(runs: Runs, engineer: str) -> dict[int, np.ndarray]:
    """Return an engineer's answers after the last stage, by seed."""
    if engineer not in runs:
        raise ValueError(f"engineer must be one of {', '.join(sorted(runs))}, got {engineer}")
    return {seed: valid[-1] for seed, valid in runs[engineer].items()}


def compute_regret(runs: Runs, engineer: str, worst: str, best: str) -> float:
    """Return an engineer's position between the best (0) and the worst (1) engineer.

    The rates are means over common seeds; the result is NaN if there are none.
    """
    answers = [get_final_answers(runs, name) for name in (engineer, worst, best)]
    seeds = set.intersection(*map(set, answers))
    if not seeds:
        return math.nan
    rate, worst_rate, best_rate = (np.mean([answer[seed] for seed in seeds]) for answer in answers)
    return float((best_rate - rate) / (best_rate - worst_rate))


def print_report(runs: Runs, contrasts: Sequence[Sequence[str]], scale: Sequence[str]) -> None:
    """Print the tables described in the module's docstring."""
    width = max(map(len, runs))
    print("Valid answers in percent: at the end with an interval, and after each stage.")
    for name, answers in runs.items():
        curve = " -> ".join(
            f"{100 * stage.mean():.1f}" for stage in np.stack([*answers.values()], 1)
        )
        rate = _format_points(
            mean_interval(np.stack([*get_final_answers(runs, name).values()]).astype(int))
        )
        print(f"  {name:<{width}}  {rate}  {len(answers):>2} seeds  {curve}")
    if contrasts:
        print(
            "\nDifferences in points. The first interval is for other seeds and boards (bootstrap),"
            "\nand the interval after `seeds` for other seeds on these boards (t-test). `deviation`"
            "\nis the standard deviation between seeds. This t-test detects the difference"
            "\n`detectable` in 80% of cases; `power` is the rate at which it detects 2 points."
        )
    for engineer, baseline in contrasts:
        result = contrast(get_final_answers(runs, engineer), get_final_answers(runs, baseline))
        print(f"  {engineer} - {baseline}: {_format_contrast(result)}")
    if scale:
        print(f"\nRegret over common seeds: 0 for {scale[1]}, 1 for {scale[0]}.")
        for name in runs:
            print(f"  {name:<{width}}  {compute_regret(runs, name, *scale):.2f}")


def _format_contrast(result: Contrast) -> str:
    low, high = result.over_seeds
    seed_interval = "unknown" if math.isnan(low) else f"[{100 * low:+.1f}, {100 * high:+.1f}]"
    num_seeds = len(result.seeds)
    spread_text = f"deviation {100 * result.deviation:.1f}"
    if result.deviation > 0.0:
        error = result.deviation / math.sqrt(num_seeds)
        detection_power = power(POWER_DIFFERENCE / error, num_seeds)
        spread_text += f", detectable {100 * result.detectable:.1f}, power {detection_power:.0%}"
    else:
        spread_text += ", power unknown"
    difference = _format_points(result.difference, "+.1f")
    return f"{difference}, seeds {seed_interval}, {num_seeds} seeds, {spread_text}"


def _format_points(interval: Interval, form: str = ".1f") -> str:
    values = (interval.value, interval.low, interval.high)
    return "{} [{}, {}]".format(*(format(100 * value, form) for value in values))


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
