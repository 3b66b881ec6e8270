"""Engineers that follow a plan made before the run: a hand-made curriculum, and none at all.

Groups are taken to be ordered from the easiest to the hardest.
"""

from dataclasses import dataclass

from engineer.context.view import View
from engineer.engineers.base import Task
from engineer.engineers.computed import ComputedEngineer, compose, split
from engineer.space import Configuration


@dataclass(frozen=True)
class EasyToHardEngineer(ComputedEngineer):
    """A hand-made curriculum (Bengio et al. 2009), linear in the stage.

    The k-th of K stages is at progress t = (k-1)/(K-1), the only one of K = 1 at its end. Every
    difficulty knob is at t times its maximum, and the data is at place t(G-1) among the G groups:
    a place between two groups shares it between them in proportion, `min_share` kept.

    Args:
        stages: K, how many stages are trained; the first is number 1. Later ones stay at the end.
    """

    stages: int
    name: str = "easy_to_hard"

    def __post_init__(self) -> None:
        if self.stages < 1:
            raise ValueError(f"stages must be at least 1, got {self.stages}")

    def configuration_for(self, task: Task) -> Configuration:
        """The plan of the stage after the one whose evidence is given."""
        past = task.view.evidence.stage
        return _at(task.view, min(past / (self.stages - 1), 1.0) if self.stages > 1 else 1.0)


@dataclass(frozen=True)
class HardOnlyEngineer(ComputedEngineer):
    """The end of the curriculum from the beginning: all knobs at their maximum, the last group."""

    name: str = "hard_only"

    def configuration_for(self, task: Task) -> Configuration:
        """The hardest configuration of which instances can be made."""
        return _at(task.view, 1.0)


def _at(view: View, progress: float) -> Configuration:
    space = view.domain.space
    place = progress * (len(space.groups) - 1)
    weights = {group: max(0.0, 1.0 - abs(i - place)) for i, group in enumerate(space.groups)}
    hard = {
        knob: space.from_units(space.to_units(progress * space.maximum(knob)))
        for knob in space.difficulty_knobs
    }
    return compose(view.domain, split(weights, view), dict.fromkeys(space.groups, hard))
