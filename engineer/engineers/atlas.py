"""The atlas engineer: it measures what could be learned where, and answers with the best."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from engineer.budget import Spent
from engineer.context.view import StageView
from engineer.engineers.base import EngineerError, Proposal, Task
from engineer.scoring.atlas import DesignAtlas
from engineer.space import Configuration, answer_text


@dataclass
class AtlasSource:
    """Where a stage's atlas comes from: it is measured when it is first needed, and paid for once.

    All engineers that share a source read one atlas.
    """

    measure: Callable[[], DesignAtlas]  # what it raises is passed on
    rollouts: int  # the most answers of a whole atlas
    _measured: DesignAtlas | None = field(default=None, init=False, repr=False)

    @property
    def due(self) -> int:
        """The most answers that the next reading takes: 0 once the atlas is measured."""
        return self.rollouts if self._measured is None else 0

    def read(self) -> tuple[DesignAtlas, int]:
        """Return the atlas, and the answers that were drawn for it now."""
        if self._measured is not None:
            return self._measured, 0
        self._measured = self.measure()
        return self._measured, self._measured.rollouts


@dataclass(frozen=True)
class AtlasEngineer:
    """Answers the configuration from which most can be learned, as the stage's atlas measured it.

    The configuration in force stays where none is better, such as where nothing can be learned. It
    reads neither the prompt nor the evidence. An `EngineerError` says that the budget has no
    room for a whole atlas, of which nothing is measured then, or that no configuration is measured.
    """

    source: AtlasSource
    name: str = "atlas"

    def propose(self, task: Task) -> Proposal:
        """Write the best configuration on the grid as the canonical answer; see `DesignAtlas`."""
        start = time.perf_counter()
        left = task.budget.probe_rollouts
        if left is not None and left < self.source.due:
            raise EngineerError(
                f"{self.name}: a whole atlas takes up to {self.source.due} answers, "
                f"budget.probe_rollouts has {left} left"
            )
        atlas, rollouts = self.source.read()
        try:
            text = answer_text(_best(atlas, task.view))
        except ValueError as error:
            spent = Spent(probe_rollouts=rollouts, seconds=time.perf_counter() - start)
            raise EngineerError(f"{self.name}: {error}", spent) from error
        return Proposal(text, time.perf_counter() - start, probe_rollouts=rollouts)


def _best(atlas: DesignAtlas, view: StageView) -> Configuration:
    """Return the best configuration, or the one in force if that is as good."""
    best = atlas.best(view.domain)
    most, now = atlas.expected(best), atlas.expected(view.current)
    if most is not None and now is not None and now.value >= most.value - 1e-12:
        return view.current
    return best
