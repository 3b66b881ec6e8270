"""Simulate how often a study's 95% intervals contain the truth, for docs/how_to/studies.md.

    python -m benchmarks.study_coverage [--repeats 2000]
    python -m benchmarks.study_coverage --measure STUDY_DIR

Two simulated engineers of equal strength answer the same boards with several seeds. Boards differ
in how often they are solved, runs of one engineer differ in their true rate, and a share of the
boards may be hard for one engineer only. `--measure` says how the answers of a real study correlate
and how much its seeds differ.
"""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from training.analysis.study.bootstrap import mean_interval, paired_interval
from training.run.directory import RunDirectory

RATE = 0.3
"""The share of all possible boards that each engineer solves, over all possible seeds."""

SEEDS = (1, 2, 3, 5, 10)
DEVIATIONS = (0.0, 0.01, 0.02, 0.03)
CORRELATIONS = (0.0, 0.5, 0.75, 0.9)
OWN_SHARES = (0.0, 0.1, 0.25)
USUAL_CORRELATION = 0.75
USUAL_SEEDS = 3


@dataclass(frozen=True)
class Setting:
    """What engineers, seeds and boards are like.

    The probability that a board is solved has a beta distribution with mean `RATE`.
    """

    seeds: int  # of each engineer
    deviation: float  # standard deviation of a run's true rate between seeds
    correlation: float = USUAL_CORRELATION  # between two equal runs' answers to the same board
    own_share: float = 0.0  # of the boards on which the two engineers are independent
    boards: int = 900


class Coverage(NamedTuple):
    """Shares of repeats whose interval contained the truth."""

    rate: float
    difference: float


def coverage(setting: Setting, *, repeats: int, resamples: int = 1000) -> Coverage:
    """Simulate answers `repeats` times, each time with other seeds and other boards."""
    rng = np.random.default_rng(11)
    rate = difference = 0
    for _ in range(repeats):
        shared = _chances(rng, setting)
        own = np.where(
            rng.random(setting.boards) < setting.own_share, _chances(rng, setting), shared
        )
        ours, theirs = (_answers(rng, setting, chances) for chances in (shared, own))
        alone = mean_interval(ours, resamples=resamples, confidence=0.95)
        pair = paired_interval(ours, theirs, resamples=resamples, confidence=0.95)
        rate += alone.low <= RATE <= alone.high
        difference += pair.low <= 0 <= pair.high
    return Coverage(rate / repeats, difference / repeats)


def _chances(rng: np.random.Generator, setting: Setting) -> np.ndarray:
    """Draw float (B,): the probability of each board to be solved in a run of rate `RATE`."""
    if not setting.correlation:
        return np.full(setting.boards, RATE)
    total = 1 / setting.correlation - 1
    return rng.beta(RATE * total, (1 - RATE) * total, size=setting.boards)


def _answers(rng: np.random.Generator, setting: Setting, chances: np.ndarray) -> np.ndarray:
    """Draw bool (S, B): a run's rate moves each probability in proportion to the room it has."""
    moved = rng.normal(0.0, setting.deviation, size=(setting.seeds, 1))
    room = np.where(moved > 0, (1 - chances) / (1 - RATE), chances / RATE)
    return rng.random((setting.seeds, setting.boards)) < chances + moved * room


def measure(study: Path) -> str:
    """Say how a study's final answers correlate, and how far its seeds lie apart."""
    engineers = [
        np.array([_valid(run) for run in sorted(folder.iterdir()) if run.is_dir()])
        for folder in sorted((study / "runs").iterdir())
    ]
    answers = np.stack(engineers).astype(float)  # (E, S, B)
    kinds, seeds, boards = answers.shape
    runs = answers.reshape(kinds * seeds, boards)
    products = np.cov(runs, ddof=0) / (answers.mean() * (1 - answers.mean()))
    engineer = np.repeat(np.arange(kinds), seeds)
    same = engineer[:, None] == engineer
    alike = products[same & ~np.eye(len(runs), dtype=bool)].mean()
    between = answers.mean(axis=2).var(axis=1, ddof=1).mean()
    chance = answers.mean() * (1 - answers.mean()) * (1 - alike) / boards
    return (
        f"Answers to the same board correlate by {alike:.2f} between runs of one engineer, by "
        f"{products[~same].mean():.2f} between runs of two. Rates of seeds have a standard "
        f"deviation of {100 * between**0.5:.1f} points, "
        f"{100 * max(between - chance, 0.0) ** 0.5:.1f} without what single answers add."
    )


def _valid(run: Path) -> list[bool]:
    """Read whether each answer after the last stage is valid."""
    directory = RunDirectory(run)
    last = directory.stage(directory.stage_numbers()[-1])
    return [episode.valid for episode in last.episodes.read()]


def _row(deviation: float, shares: Iterable[float]) -> str:
    label = f"{100 * deviation:.0f} point{'' if deviation == 0.01 else 's'}"
    return f"| {label} | {' | '.join(f'{100 * share:.0f}%' for share in shares)} |"


def main() -> None:
    """Print the rows of both tables."""
    parser = argparse.ArgumentParser(
        description="Simulate how often a study's intervals contain the truth."
    )
    parser.add_argument("--repeats", type=int, default=2000, help="of each entry")
    parser.add_argument(
        "--measure", type=Path, metavar="STUDY_DIR", help="measure this study instead"
    )
    given = parser.parse_args()
    if given.measure is not None:
        print(measure(given.measure))
        return
    repeats = given.repeats

    print(f"Differences, {', '.join(map(str, SEEDS))} seeds:")
    for deviation in DEVIATIONS:
        settings = (Setting(seeds, deviation) for seeds in SEEDS)
        found = [coverage(setting, repeats=repeats).difference for setting in settings]
        print(_row(deviation, found), flush=True)

    print(
        f"\n{USUAL_SEEDS} seeds: rates where answers correlate by "
        f"{', '.join(map(str, CORRELATIONS))}; differences where {', '.join(map(str, OWN_SHARES))} "
        "of the boards are hard for one engineer alone:"
    )
    for deviation in DEVIATIONS:
        rates = [
            coverage(Setting(USUAL_SEEDS, deviation, correlation), repeats=repeats).rate
            for correlation in CORRELATIONS
        ]
        differences = [
            coverage(Setting(USUAL_SEEDS, deviation, own_share=share), repeats=repeats).difference
            for share in OWN_SHARES
        ]
        print(_row(deviation, [*rates, *differences]), flush=True)


if __name__ == "__main__":
    main()
