"""User code that tests name in configurations."""

from types import SimpleNamespace

from engineer import Proposal, Task, answer_text
from jaxlake import Instance
from jaxlake.language.rewards import Score

NUMBER = 3


class Keeper:
    """Keeps the configuration in force."""

    name = "keeper"

    def propose(self, task: Task) -> Proposal:
        return Proposal(answer_text(task.view.current), seconds=0.0)


class NamelessEngineer:
    """Lacks a name."""

    propose = Keeper.propose


class BrokenEngineer:
    """Raises an error when constructed."""

    def __init__(self) -> None:
        raise KeyError("no such file")


def write_prompt(board: Instance) -> str:
    """Return a prompt."""
    return f"A board of {int(board.size)}.\n"


def write_number(board: Instance) -> int:
    """Return a number instead of a prompt."""
    return int(board.size)


def same_reward(text: str, board: Instance, score: Score) -> float:
    """Return the configured reward."""
    return score.reward


def bonus(text: str, board: Instance, score: Score) -> float:
    """Return a reward that depends on all arguments."""
    return score.reward + 0.25 * ("because" in text) + int(board.size) + (score.time or 0) / 64


def no_reward(text: str, board: Instance, score: Score) -> None:
    """Return no reward."""


def overflowing_reward(text: str, board: Instance, score: Score) -> float:
    """Return a reward outside the float32 range."""
    return 1e39


def not_an_engineer() -> SimpleNamespace:
    """Return an object that is not an engineer."""
    return SimpleNamespace(name="nobody")
