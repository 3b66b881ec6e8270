"""The one sentence of a run: how the valid rate went from the first validation to the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxlake.paired import PairedComparison, compare
from training.analysis.report.figures import rate
from training.analysis.report.reading import ReportedRun
from training.run.records import EpisodeRecord


@dataclass(frozen=True)
class ValidRate:
    """The valid rate of one validation over all map sizes; shares from 0 to 1."""

    when: str
    valid: int
    count: int
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Headline:
    """The first validation; if there is a later one, the last, and the two board by board."""

    first: ValidRate
    last: ValidRate | None = None
    paired: PairedComparison | None = None

    @property
    def apart(self) -> bool:
        """Whether there are two intervals that do not overlap."""
        return self.last is not None and (
            self.first.high < self.last.low or self.last.high < self.first.low
        )


def headline(run: ReportedRun) -> Headline | None:
    """What to say first; None if nothing was validated."""
    stages, rates = [], []
    for stage in run.validated:
        total = stage.rates[None]
        if (interval := rate(total.valid, total.count)) is not None:
            stages.append(stage)
            rates.append(ValidRate(run.moment(stage.number), total.valid, total.count, *interval))
    if len(rates) < 2:
        return Headline(rates[0]) if rates else None
    return Headline(rates[0], rates[-1], _paired(stages[0].episodes, stages[-1].episodes))


def _paired(
    before: Sequence[EpisodeRecord], after: Sequence[EpisodeRecord]
) -> PairedComparison | None:
    """Compare two validations board by board; None unless both answered the very same boards."""
    first, last = ({(one.id, one.grid): one.valid for one in some} for some in (before, after))
    if not first or first.keys() != last.keys():
        return None
    return compare(first.values(), (last[board] for board in first))
