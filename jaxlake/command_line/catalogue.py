"""All commands with their one-line help and their modules."""

import argparse
import importlib
from types import ModuleType
from typing import Any, NoReturn

from jaxlake.errors import escape_controls

LOOP_COMMANDS = {
    "run": "run Train -> Validate -> Design on a configuration",
    "study": "compare engineers over seeds",
    "engineer": "review answers, show contexts, ask other engineers the same",
    "designbench": "compare engineers on simulated learners, in seconds",
    "evaluate": "measure a checkpoint, a model folder or an endpoint",
    "report": "write report.html from a run directory",
    "audit": "compare a run with its digests, and review its designs again",
}
"""The commands of the loop by name, as modules of `training.commands`."""

LAKE_COMMANDS = {
    "solve": "solve boards of one to five agents exactly (JSON lines)",
    "check": "verify plans or models' answers on boards (JSON lines)",
    "render": "draw boards and plans as SVG or text (JSON lines)",
    "doctor": "check the installation and the devices that JAX and vLLM see",
    "generate": "draw boards with optimal plans (JSON lines)",
    "feasibility": "print acceptance rates of boards by kind",
    "completion": "print a script that lets a shell complete commands and options",
    "dataset": "make, check, show and convert sets of boards",
    "sweep": "run policies on boards of very many configurations",
}
"""The lake's commands by name, as modules of `jaxlake.command_line.commands`."""


class Parser(argparse.ArgumentParser):
    """Parser that escapes terminal control characters in its messages."""

    def error(self, message: str) -> NoReturn:
        """Print the message, and exit with status 2."""
        super().error(escape_controls(message))


class CommandParser(Parser):
    """Parser of one command, which imports the command's module on first use.

    If `default_action` is set, users may omit the name of that action.
    """

    def __init__(self, *args: Any, command: str | None = None, **kwargs: Any) -> None:
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(*args, **{"formatter_class": formatter, **kwargs})
        self._command = command
        self.default_action: str | None = None

    def load_arguments(self) -> None:
        """Import the command's module and add its arguments, unless this has been done."""
        if self._command is not None:
            module, self._command = _import_command(self._command), None
            module.add_arguments(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add the command's arguments and parse."""
        self.load_arguments()
        if self.default_action is not None and args[:1] not in ([], ["-h"], ["--help"]):
            actions = next(action.choices for action in self._actions if action.dest == "action")
            if args[0] not in (actions or ()):
                args = [self.default_action, *args]
        return super().parse_known_args(args, namespace)


def _import_command(name: str) -> ModuleType:
    package = "jaxlake.command_line" if name in LAKE_COMMANDS else "training"
    return importlib.import_module(f"{package}.commands.{name}")
