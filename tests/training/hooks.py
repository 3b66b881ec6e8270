"""User code that tests name in configurations."""

from types import SimpleNamespace

from engineer import Proposal, Task, answer_text
from jaxlake import Instance
from jaxlake.language.rewards import Score

LIMIT = 3


class Keeper:
    """Keeps the configuration in force."""

    name = "keeper"

    def propose(self, task: Task) -> Proposal:
        return Proposal(answer_text(task.view.current), seconds=0.0)


class Nameless:
    """Lacks a name."""

    propose = Keeper.propose


class Broken:
    """Can't be made."""

    def __init__(self) -> None:
        raise KeyError("no such file")


def words_of(board: Instance) -> str:
    """Write a prompt."""
    return f"A board of {int(board.size)}.\n"


def number_of(board: Instance) -> int:
    """Write no prompt."""
    return int(board.size)


def same_reward(text: str, board: Instance, score: Score) -> float:
    """Pay what the configuration pays."""
    return score.reward


def bonus(text: str, board: Instance, score: Score) -> float:
    """Pay for the facts that a function gets."""
    return score.reward + 0.25 * ("because" in text) + int(board.size) + (score.time or 0) / 64


def no_reward(text: str, board: Instance, score: Score) -> None:
    """Pay nothing, not even 0."""


def endless_reward(text: str, board: Instance, score: Score) -> float:
    """Pay more than float32 holds."""
    return 1e39


def not_an_engineer() -> SimpleNamespace:
    """Make something else."""
    return SimpleNamespace(name="nobody")
