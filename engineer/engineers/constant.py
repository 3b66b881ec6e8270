"""Engineers that ignore the evidence and change nothing: what any other one has to beat."""

from dataclasses import dataclass

from engineer.engineers.base import Task
from engineer.engineers.computed import ComputedEngineer
from engineer.space import Configuration


@dataclass(frozen=True)
class FixedEngineer(ComputedEngineer):
    """One configuration at every stage, such as the run's initial one."""

    configuration: Configuration
    name: str = "fixed"

    def configuration_for(self, task: Task) -> Configuration:
        """The one it was given."""
        return self.configuration


@dataclass(frozen=True)
class CopyPreviousEngineer(ComputedEngineer):
    """The configuration in force, whatever it is."""

    name: str = "copy_previous"

    def configuration_for(self, task: Task) -> Configuration:
        """The one in force."""
        return task.view.current
