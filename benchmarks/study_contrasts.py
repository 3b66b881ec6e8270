"""Compare the engineers of a study from its answers alone: `outcomes.json.gz` of all its pieces.

    python -m benchmarks.study_contrasts FILE [FILE ...] [--contrast A B ...] [--scale WORST BEST]

A long study is run in pieces, each with seeds or engineers of its own. Printed are, for every
engineer, its seeds, the rate of valid answers after the last stage with its interval, and after
each stage. For each contrast A B follows the paired difference A minus B over the seeds that both
have, with two 95% intervals, which answer two questions:

- the first is about other seeds on other boards of the same kind: a bootstrap over seeds and boards
  (`docs/how_to/studies.md`);
- `seeds` is about other seeds on these same boards: that of a paired t-test over seeds.

Beside it stand how far the differences of single seeds lie apart and the power of that t-test: the
smallest true difference that so many seeds find in four of five cases, and how often they find one
of `--detect` points. With `--scale` each engineer's regret to BEST follows, in shares of the way
from WORST to BEST, over the seeds that all three have. Intervals of rates are the bootstrap's.

Runs that began with different models can't be compared. So before training all have to give the
same answers, but for a few, because another machine rounds otherwise.
"""

import argparse
import gzip
import itertools
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

from training.analysis.study.bootstrap import Interval, mean_interval, paired_interval

RESAMPLES = 10_000
POWER = 0.8
LEVEL = 0.05
WANTED = 2.0
"""The true difference whose power is printed, points, unless `--detect` says another."""

START_MAY_DIFFER = 0.05
"""The largest share of boards that two runs of one model answer otherwise before training.

On another processor it was none of 1,800 (`docs/findings.md`), between two base models a fifth.
"""

_SPREADS = 10_000
"""How many equally probable spreads between seeds the power is the mean over."""


class Answers(NamedTuple):
    """What one run answered: valid or not after each of T stages and before, bool (T + 1, B)."""

    engineer: str
    seed: int
    valid: np.ndarray


class Contrast(NamedTuple):
    """A paired difference, in shares of all answers."""

    first: str
    second: str
    seeds: tuple[int, ...]
    difference: Interval
    deviation: float  # standard deviation of the differences of single seeds; NaN of one seed

    @property
    def over_seeds(self) -> tuple[float, float]:
        """The interval of the paired t-test over seeds, on these boards; NaN of one seed."""
        if math.isnan(self.deviation):
            return math.nan, math.nan
        seeds = len(self.seeds)
        reach = stats.t.ppf(1 - LEVEL / 2, seeds - 1) * self.deviation / math.sqrt(seeds)
        return float(self.difference.value - reach), float(self.difference.value + reach)

    @property
    def detectable(self) -> float:
        """The smallest true difference found with a probability of `POWER`; NaN if unknown."""
        if not self.deviation > 0.0:
            return math.nan
        seeds = len(self.seeds)
        errors = optimize.brentq(lambda size: power(size, seeds) - POWER, 0.0, 100.0)
        return float(errors) * self.deviation / math.sqrt(seeds)

    def power(self, difference: float) -> float:
        """How often so many seeds find a true difference, a share of all answers.

        The spread between seeds is taken to be the one that these seeds have. NaN if they have
        none: for one seed, or where all differences are equal.
        """
        if not self.deviation > 0.0:
            return math.nan
        error = self.deviation / math.sqrt(len(self.seeds))
        return power(abs(difference) / error, len(self.seeds))


def power(difference: float, seeds: int) -> float:
    """Return how often a paired two-sided t-test over `seeds` (2 or more) finds a difference.

    The difference is in standard errors of its mean over seeds. The power is the mean over what the
    seeds may say of their own spread; SciPy's noncentral t distribution gives NaN for two seeds.
    """
    freedom = seeds - 1
    critical = stats.t.ppf(1 - LEVEL / 2, freedom)
    shares = (np.arange(_SPREADS) + 0.5) / _SPREADS
    needed = critical * np.sqrt(stats.chi2.ppf(shares, freedom) / freedom)
    found = stats.norm.cdf(difference - needed) + stats.norm.cdf(-difference - needed)
    return float(found.mean())


def read_pieces(paths: Sequence[Path]) -> list[Answers]:
    """Read all runs of these files.

    Raises:
        ValueError: A file is damaged, holds answers to other boards than the first, a run that
            another one holds too, or one that began with another model.
    """
    runs: dict[tuple[str, int], Answers] = {}
    boards = start = None
    for path in paths:
        try:
            content = json.loads(gzip.decompress(path.read_bytes()))
            grids = [one["grid"] for one in content["boards"]]
            read = [
                Answers(run["engineer"], run["seed"], np.array([list(row) for row in run["valid"]]))
                for run in content["runs"]
            ]
        except (OSError, EOFError, ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{path}: can't be read as outcomes of a study: {error}") from error
        if boards not in (None, grids):
            raise ValueError(f"{path}: its boards are not those of {paths[0]}")
        boards = grids
        for run in (one._replace(valid=one.valid == "1") for one in read):
            start = run.valid[0] if start is None else start
            if (apart := np.mean(run.valid[0] != start)) > START_MAY_DIFFER:
                raise ValueError(
                    f"{path}: {run.engineer}, seed {run.seed}: began with another model than the "
                    f"first run of {paths[0]}: before training {apart:.1%} of its answers differ, "
                    f"allowed are {START_MAY_DIFFER:.0%}"
                )
            if (run.engineer, run.seed) in runs:
                raise ValueError(f"{path}: {run.engineer}, seed {run.seed}: is in two files")
            runs[run.engineer, run.seed] = run
    return list(runs.values())


def rate(runs: Sequence[Answers], engineer: str) -> Interval:
    """Return the rate of valid answers of an engineer after the last stage."""
    final = np.stack([run.valid[-1] for run in runs if run.engineer == engineer])
    return mean_interval(final.astype(int), resamples=RESAMPLES, confidence=1 - LEVEL)


def contrast(runs: Sequence[Answers], first: str, second: str) -> Contrast:
    """Compare two engineers after the last stage, over the seeds that both have.

    A `ValueError` says that they have none in common.
    """
    finals = {(run.engineer, run.seed): run.valid[-1] for run in runs}
    seeds = sorted(
        {run.seed for run in runs if {(first, run.seed), (second, run.seed)} <= {*finals}}
    )
    if not seeds:
        raise ValueError(f"{first}, {second}: have no seed in common")
    ours, theirs = (np.stack([finals[name, seed] for seed in seeds]) for name in (first, second))
    difference = paired_interval(ours, theirs, resamples=RESAMPLES, confidence=1 - LEVEL)
    apart = ours.mean(axis=1) - theirs.mean(axis=1)
    deviation = float(apart.std(ddof=1)) if len(seeds) > 1 else math.nan
    return Contrast(first, second, tuple(seeds), difference, deviation)


def print_report(
    runs: Sequence[Answers],
    contrasts: Sequence[tuple[str, str]],
    scale: tuple[str, str] | None,
    wanted: float = WANTED,  # points
) -> None:
    """Print the tables that the module describes."""
    engineers = list(dict.fromkeys(run.engineer for run in runs))
    width = max(map(len, engineers))
    print(f"Valid answers, per cent, of {len(runs[0].valid[0])} boards; after each stage.")
    for name in engineers:
        own = [run.valid for run in runs if run.engineer == name]
        curve = " -> ".join(f"{100 * stage.mean():.1f}" for stage in np.stack(own, axis=1))
        print(f"  {name:<{width}}  {_points(rate(runs, name))}  {len(own):>2} seeds  {curve}")
    if contrasts:
        print(
            "\nDifferences, points. First interval: other seeds on other boards (bootstrap); that"
            "\nof `seeds`: other seeds on these boards (t-test). apart: between seeds; found: by"
            f"\nthis t-test in four of five cases; power: how often {wanted:g} points are found."
        )
    for first, second in contrasts:
        one = contrast(runs, first, second)
        print(
            f"  {first} - {second}: {_points(one.difference, signed=True)}, seeds "
            f"{_ends(*one.over_seeds)}, {len(one.seeds)} seeds, {_power(one, wanted)}"
        )
    if scale:
        print(f"\nRegret, share of the way from {scale[1]} back to {scale[0]}, over common seeds.")
        for name in engineers:
            print(f"  {name:<{width}}  {_regret(runs, name, *scale)}")


def regret(runs: Sequence[Answers], engineer: str, worst: str, best: str) -> float:
    """Return the share of the way from the best back to the worst that an engineer is at.

    Over the seeds that all three have, since seeds differ. A `ValueError` says that there are none.
    """
    finals = {(run.engineer, run.seed): run.valid[-1].mean() for run in runs}
    names = (engineer, worst, best)
    seeds = {run.seed for run in runs if all((name, run.seed) in finals for name in names)}
    if not seeds:
        raise ValueError(f"{engineer}: has no seed in common with both {worst} and {best}")
    own, low, high = (np.mean([finals[name, seed] for seed in seeds]) for name in names)
    return float((high - own) / (high - low))


def _regret(runs: Sequence[Answers], engineer: str, worst: str, best: str) -> str:
    try:
        return f"{regret(runs, engineer, worst, best):.2f}"
    except ValueError:
        return "unknown, no common seed"


def _power(one: Contrast, wanted: float) -> str:
    apart = f"{100 * one.deviation:.1f} apart"
    if math.isnan(one.detectable):
        return f"{apart}, power unknown"
    return f"{apart}, {100 * one.detectable:.1f} found, power {one.power(wanted / 100):.0%}"


def _points(interval: Interval, *, signed: bool = False) -> str:
    form = "+.1f" if signed else ".1f"
    value, low, high = (
        format(100 * x, form) for x in (interval.value, interval.low, interval.high)
    )
    return f"{value} [{low}, {high}]"


def _ends(low: float, high: float) -> str:
    return "unknown" if math.isnan(low) else f"[{100 * low:+.1f}, {100 * high:+.1f}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the files and print; 2 if something is wrong with them or with the names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--contrast", nargs=2, action="append", default=[], metavar=("A", "B"))
    parser.add_argument("--scale", nargs=2, metavar=("WORST", "BEST"))
    parser.add_argument("--detect", type=float, default=WANTED, metavar="POINTS")
    args = parser.parse_args(arguments)
    if not 0.0 < args.detect <= 100.0:
        parser.error(f"--detect: got {args.detect:g}, allowed are points above 0 and up to 100")
    try:
        runs = read_pieces(args.files)
        known = {run.engineer for run in runs}
        for name in itertools.chain(*args.contrast, args.scale or ()):
            if name not in known:
                raise ValueError(
                    f"{name}: is no engineer here; there are {', '.join(sorted(known))}"
                )
        print_report(runs, args.contrast, args.scale, args.detect)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
