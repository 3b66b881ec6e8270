"""The rule of `engineer.rule` as an engineer. It reads the evidence, not the prompt."""

from dataclasses import dataclass

from engineer.engineers.base import Task
from engineer.engineers.computed import ComputedEngineer
from engineer.rule import next_configuration
from engineer.space import Configuration


@dataclass(frozen=True)
class RuleEngineer(ComputedEngineer):
    """Moves data to where answers vary and knobs by steps; the same for every attempt."""

    name: str = "rule"

    def configuration_for(self, task: Task) -> Configuration:
        """Apply the rule."""
        view = task.view
        return next_configuration(view.evidence, view.current, view.domain)
