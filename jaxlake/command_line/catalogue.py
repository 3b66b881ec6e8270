"""All commands: their names, a line of help for each, and the module of the one that is asked for.

The lake's commands never import `training` or `engineer`, so that folders of these names, which are
not rare, break nothing there. The loop's commands need ours, and look which one Python would find;
`completion`, which lists the options of all, leaves theirs out where Python would find another one.
"""

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jaxlake
from jaxlake.command_line.arguments import Parser
from jaxlake.errors import UserError

LOOP = {
    "run": "run Train -> Validate -> Design on a configuration",
    "pretrain": "make the base model that runs start from",
    "study": "compare engineers over seeds",
    "engineer": "review answers, show contexts, replay, ablate, measure an atlas or reading",
    "evaluate": "measure a checkpoint, a model folder or an endpoint",
    "report": "write report.html from a run directory",
    "audit": "check a run's chain of hashes, and derive again what can be derived",
}
"""The commands of the loop by name, as modules of `training.commands`."""

LAKE = {
    "solve": "solve boards of one to five agents exactly (JSON lines)",
    "check": "verify plans or models' answers on boards (JSON lines)",
    "render": "draw boards and plans as SVG, GIF, PNG or text (JSON lines)",
    "doctor": "what is installed, what JAX and vLLM see, and what is missing",
    "generate": "draw boards with optimal plans (JSON lines)",
    "feasibility": "which boards can be made, and how easily",
    "completion": "print a script that lets a shell complete commands and options",
    "dataset": "make, check, show and convert sets of boards",
}
"""The lake's commands by name, as modules of `jaxlake.command_line.commands`."""

LOOP_PACKAGES = ("engineer", "training")
"""The packages that come with this one and that the loop's commands need."""


class CommandParser(Parser):
    """The parser of one command, which imports the command's module when it has to parse."""

    def __init__(self, *args: Any, command: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._command = command

    def complete(self) -> None:
        """Add the arguments of the command, once; a `UserError` if its module can't be found."""
        if self._command is not None:
            module, self._command = command_module(self._command), None
            module.add_arguments(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, once the command's arguments are known."""
        self.complete()
        return super().parse_known_args(args, namespace)


def command_module(name: str) -> ModuleType:
    """Import the module of a command.

    Raises:
        UserError: it is one of the loop's, and other packages stand before ours.
    """
    if name in LAKE:
        return importlib.import_module(f"jaxlake.command_line.commands.{name}")
    for package in LOOP_PACKAGES:
        refuse_namesake(package, name)
    return importlib.import_module(f"training.commands.{name}")


def refuse_namesake(package: str, command: str) -> None:
    """Raise a `UserError` if Python would import another package of this name than ours."""
    own = Path(jaxlake.__path__[0]).parent / package
    spec = importlib.util.find_spec(package)
    found = _places(spec.origin, spec.submodule_search_locations or ()) if spec else []
    if any(place.is_dir() and place.samefile(own) for place in found if own.is_dir()):
        return
    if not own.is_dir():
        raise UserError(
            f"`jaxlake {command}` needs the package {package!r}, which is installed with jaxlake "
            f"but is not in {own.parent}: install jaxlake anew"
        )
    raise UserError(
        f"`jaxlake {command}` needs jaxlake's own package {package!r} ({own}), but Python finds "
        f"{found[0] if found else 'none'} before it: rename that one, or run the command where "
        "neither the current folder with `python -m` nor PYTHONPATH leads to it"
    )


def _places(origin: str | None, folders: Sequence[str]) -> list[Path]:
    """Return the folders of a package, or the file of a module that is none."""
    return [Path(folder) for folder in folders] or [Path(origin or "a built-in module")]
