"""The one sentence of a run: how the valid rate went from the first validation to the last."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from training.report.figures import moment, rate, warm_started
from training.report.reading import Record, RunFiles, Stage


@dataclass(frozen=True)
class ValidRate:
    """The valid rate of one validation over all map sizes; shares in 0..1."""

    when: str
    valid: int
    count: int
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class PairedChange:
    """The same boards answered twice: how many became valid, how many no longer are."""

    boards: int
    gained: int
    lost: int
    p_value: float


@dataclass(frozen=True)
class Headline:
    """The first validation, and the last where it is another one."""

    first: ValidRate
    last: ValidRate | None
    paired: PairedChange | None

    @property
    def apart(self) -> bool:
        """Whether the two intervals do not overlap."""
        if self.last is None:
            return False
        return self.first.high < self.last.low or self.last.high < self.first.low


def headline(run: RunFiles) -> Headline | None:
    """What to say first; None where nothing was validated."""
    rates = [(stage, _valid_rate(stage, run)) for stage in run.stages]
    there = [(stage, valid_rate) for stage, valid_rate in rates if valid_rate is not None]
    if not there:
        return None
    (first_stage, first), (last_stage, last) = there[0], there[-1]
    if first_stage is last_stage:
        return Headline(first, None, None)
    return Headline(first, last, paired_change(first_stage.episodes, last_stage.episodes))


def paired_change(before: Sequence[Record], after: Sequence[Record]) -> PairedChange | None:
    """Compare two validations board by board; None unless both answered the very same boards."""
    first, last = _valid_by_board(before), _valid_by_board(after)
    if not first or first.keys() != last.keys():
        return None
    gained = sum(last[board] and not first[board] for board in first)
    lost = sum(first[board] and not last[board] for board in first)
    return PairedChange(len(first), gained, lost, mcnemar(gained, lost))


def mcnemar(gained: int, lost: int) -> float:
    """Two-sided exact p-value that gains and losses are equally likely (McNemar 1947)."""
    trials = gained + lost
    tail = sum(math.comb(trials, k) for k in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / 2**trials)


def _valid_rate(stage: Stage, run: RunFiles) -> ValidRate | None:
    if stage.validation is None:
        return None
    total = stage.validation.total
    interval = rate(total.valid, total.count)
    if interval is None:
        return None
    when = moment(stage.number, warm_started(run))
    return ValidRate(when, total.valid, total.count, *interval)


def _valid_by_board(episodes: Sequence[Record]) -> dict[str, bool]:
    return {str((one.get("id"), one.get("grid"))): one.get("valid") is True for one in episodes}
