"""A trainee for column addition: a table of digit preferences in NumPy, no language model.

It writes an answer from the lowest column up; in each column it is told the operands' digits added
up and the carry that comes in, and draws a digit or the end. Its logits are a part for the digits
alone plus a part for digits and carry together, so that it answers a column that it has never seen
with a carry much as if there were none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engineer.sums.instance import Sum

END = 10  # the action that ends the answer; the others are the digits
_ABOVE = 28  # stands for the digits' sum (0..27) where the operands have ended


@dataclass(frozen=True)
class Trainee:
    """Logits by what a column shows."""

    plain: np.ndarray  # (29, 11) float64, by digits' sum
    carried: np.ndarray  # (29, 3, 11) float64, by digits' sum and carry, added to `plain`

    def probabilities(self, columns: np.ndarray) -> np.ndarray:
        """Of each action in columns (n, L, 2) int: (n, L, 11) float64."""
        powers = np.exp(self._logits(columns))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))

    def draw(self, columns: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """An action for each column, (n, L) int; those after the first END count for nothing."""
        logits = self._logits(columns)
        return np.asarray((logits + rng.gumbel(size=logits.shape)).argmax(axis=-1))

    def ascended(self, columns: np.ndarray, actions: np.ndarray, weight: np.ndarray) -> "Trainee":
        """After a step along the gradient of sum(weight * log-probability of the answers).

        Args:
            columns: (n, L, 2) int.
            actions: (n, L) int.
            weight: (n,) float, of each answer.
        """
        chosen = np.eye(END + 1)[actions] - self.probabilities(columns)
        slope = (written(actions) * weight[:, None])[..., None] * chosen
        plain, carried = self.plain.copy(), self.carried.copy()
        np.add.at(plain, columns[..., 0], slope)
        np.add.at(carried, (columns[..., 0], columns[..., 1]), slope)
        return Trainee(plain, carried)

    def _logits(self, columns: np.ndarray) -> np.ndarray:
        logits = self.plain[columns[..., 0]] + self.carried[columns[..., 0], columns[..., 1]]
        return np.asarray(logits - logits.max(axis=-1, keepdims=True))


def untrained() -> Trainee:
    """All actions equally likely."""
    return Trainee(np.zeros((_ABOVE + 1, END + 1)), np.zeros((_ABOVE + 1, 3, END + 1)))


def answer(trainee: Trainee, sums: Sequence[Sum], seed: int) -> list[str]:
    """One drawn answer to each sum."""
    return texts(trainee.draw(columns_of(sums), np.random.default_rng(seed)))


def columns_of(sums: Sequence[Sum]) -> np.ndarray:
    """What each column of each sum shows: (n, L, 2) int, digits' sum and carry, lowest first."""
    # One more column for the highest carry and one for the end.
    columns = np.zeros((len(sums), max(one.digits for one in sums) + 2, 2), int)
    for row, one in enumerate(sums):
        for place in range(columns.shape[1]):
            shown = one.column(place) if place < one.digits else _ABOVE
            columns[row, place] = shown, one.carry_into(place)
    return columns


def actions_of(sums: Sequence[Sum]) -> np.ndarray:
    """The right answers as actions, (n, L) int."""
    actions = np.full(columns_of(sums).shape[:2], END)
    for row, one in enumerate(sums):
        for place, digit in enumerate(reversed(str(one.total))):
            actions[row, place] = int(digit)
    return actions


def written(actions: np.ndarray) -> np.ndarray:
    """Which actions come before or at the first END: (n, L) bool."""
    ended = np.cumsum(actions == END, axis=1) > 0
    return np.concatenate([np.ones((len(actions), 1), bool), ~ended[:, :-1]], axis=1)


def texts(actions: np.ndarray) -> list[str]:
    """The answers as they are written, highest digit first."""
    answers = []
    for row in actions.tolist():
        digits = row[: row.index(END)] if END in row else row
        answers.append("".join(map(str, reversed(digits))))
    return answers
