"""A trainee that needs no language model: a table of digit preferences that learns in NumPy.

It writes an answer from the lowest column up. In each column it sees the operands' digits added up
and the carry that comes in, and draws a digit or the end. Its logits have a part for the digits
alone and a part for digits and carry together, so that it answers a column that it has never seen
with a carry much as if there were none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engineer import TrainingEvidence
from examples.column_addition.environment import Sum, check_answer

END = 10  # the action that ends the answer; the others are the digits
_ABOVE = 19  # stands for the digits' sum (0..18) where the operands have ended


@dataclass(frozen=True)
class Trainee:
    """Logits of the actions by what a column shows."""

    plain: np.ndarray  # (20, 11) float64, by digits' sum
    carried: np.ndarray  # (20, 2, 11) float64, by digits' sum and carry, added to `plain`

    def probabilities(self, columns: np.ndarray) -> np.ndarray:
        """Probabilities of the actions in columns (n, L, 2) int: (n, L, 11) float64."""
        logits = self.plain[columns[..., 0]] + self.carried[columns[..., 0], columns[..., 1]]
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))

    def draw(self, columns: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw an action for each column, (n, L) int; those after the first END do not count."""
        cumulated = self.probabilities(columns).cumsum(axis=-1)
        return np.asarray((rng.random((*columns.shape[:2], 1)) > cumulated[..., :-1]).sum(axis=-1))

    def answer(self, sums: Sequence[Sum], seed: int) -> list[str]:
        """Draw one answer to each sum."""
        return texts_of(self.draw(columns_of(sums), np.random.default_rng(seed)))

    def gradient_step(
        self, columns: np.ndarray, actions: np.ndarray, weight: np.ndarray
    ) -> "Trainee":
        """Step along the gradient of sum(weight (n,) * log-probability of the answers)."""
        residual = np.eye(END + 1)[actions] - self.probabilities(columns)
        slope = (written(actions) * weight[:, None])[..., None] * residual
        plain, carried = self.plain.copy(), self.carried.copy()
        np.add.at(plain, columns[..., 0], slope)
        np.add.at(carried, (columns[..., 0], columns[..., 1]), slope)
        return Trainee(plain, carried)


UNTRAINED = Trainee(np.zeros((_ABOVE + 1, END + 1)), np.zeros((_ABOVE + 1, 2, END + 1)))
"""A trainee to which all actions are equally likely."""


def columns_of(sums: Sequence[Sum]) -> np.ndarray:
    """What each column of each sum shows, lowest first: (n, L, 2) int, digits' sum and carry."""
    width = (
        max(problem.digits for problem in sums) + 2
    )  # one more for the highest carry and for the end
    columns = (
        (problem.digit_sum(place) if place < problem.digits else _ABOVE, problem.carry_into(place))
        for problem in sums
        for place in range(width)
    )
    return np.array(list(columns)).reshape(len(sums), width, 2)


def written(actions: np.ndarray) -> np.ndarray:
    """Which actions come before or at the first END: (n, L) bool."""
    ended = actions == END
    return np.asarray(ended.cumsum(axis=1) - ended == 0)


def texts_of(actions: np.ndarray) -> list[str]:
    """The answers as texts, highest digit first."""
    rows = ([*row, END] for row in actions.tolist())
    return ["".join(map(str, reversed(row[: row.index(END)]))) for row in rows]


def imitate(trainee: Trainee, sums: Sequence[Sum], passes: int, learning_rate: float) -> Trainee:
    """Learn the right answers; each pass over them is one gradient step."""
    columns = columns_of(sums)
    actions = np.full(columns.shape[:2], END)
    for row, problem in enumerate(sums):
        actions[row, : len(str(problem.total))] = [
            int(digit) for digit in reversed(str(problem.total))
        ]
    for _ in range(passes):
        trainee = trainee.gradient_step(columns, actions, np.full(len(sums), learning_rate))
    return trainee


def reinforce(
    trainee: Trainee,
    sums: Sequence[Sum],
    seed: int,
    *,
    updates: int = 60,
    prompts: int = 16,
    answers: int = 16,
    learning_rate: float = 0.2,
) -> tuple[Trainee, TrainingEvidence]:
    """Learn from the verifier's reward by policy gradients: 1 for a right answer, 0 for others.

    Advantages are rewards less the mean over the answers to the same prompt, over their standard
    deviation, as in GRPO. Every answer is used once, so that nothing is ever clipped.
    """
    rng = np.random.default_rng(seed)
    columns, digits = columns_of(sums), np.array([problem.digits for problem in sums])
    rows_by_update = rng.integers(len(sums), size=(updates, prompts))
    rewards = np.zeros((updates, prompts, answers))
    entropies, lengths = np.zeros((2, updates))
    for update in range(updates):
        rows = np.repeat(rows_by_update[update], answers)
        actions = trainee.draw(columns[rows], rng)
        pairs = zip(rows, texts_of(actions), strict=True)
        valid = [check_answer(sums[row], text) == (None, None) for row, text in pairs]
        rewards[update] = np.reshape(valid, (prompts, answers))
        advantage = rewards[update] - rewards[update].mean(axis=1, keepdims=True)
        advantage /= np.maximum(rewards[update].std(axis=1, keepdims=True), 1e-6)
        chances = np.maximum(trainee.probabilities(columns[rows]), 1e-12)
        entropies[update] = -(chances * np.log(chances)).sum(axis=-1)[written(actions)].mean()
        lengths[update] = written(actions).sum(axis=1).mean()
        weight = learning_rate / answers * advantage.ravel()
        trainee = trainee.gradient_step(columns[rows], actions, weight)
    rates = rewards.mean(axis=2)
    return trainee, TrainingEvidence(
        updates=updates,
        instances=len(np.unique(rows_by_update)),
        reward_first=rates[0].mean(),
        reward_last=rates[-1].mean(),
        groups_without_variance=np.isin(rates, (0.0, 1.0)).mean(),
        clip_share=0.0,
        entropy=entropies.mean(),
        completion_length=lengths.mean(),
        learnability={
            str(group): (rates * (1 - rates))[digits[rows_by_update] == group].mean()
            for group in np.unique(digits[rows_by_update])
        },
    )
