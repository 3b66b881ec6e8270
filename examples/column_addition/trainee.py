"""A trainee without a language model: a table of digit logits that learns in NumPy.

It writes an answer from the lowest column up. In each column it sees the sum of the operands'
digits and the incoming carry, and samples a digit or the end. Its logits are the sum of a term for
the digits and a term for digits and carry. The second term starts at zero, so the trainee treats a
carry that it has never seen as no carry.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engineer import TrainingEvidence
from examples.column_addition.environment import Sum, check_answer

END = 10  # the action that ends the answer; the others are the digits
_NO_DIGITS = 19  # digit sum of a column above the operands; others are 0..18


@dataclass(frozen=True)
class Trainee:
    """Logits of the actions, by digit sum and incoming carry of a column."""

    plain: np.ndarray  # (20, 11) float64, by digits' sum
    carried: np.ndarray  # (20, 2, 11) float64, by digits' sum and carry, added to `plain`

    def probabilities(self, columns: np.ndarray) -> np.ndarray:
        """Return the action probabilities, float64 (n, L, 11), for columns, int (n, L, 2)."""
        logits = self.plain[columns[..., 0]] + self.carried[columns[..., 0], columns[..., 1]]
        exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))

    def draw(self, columns: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw one action per column, int (n, L); actions after the first END have no effect."""
        cumulative = self.probabilities(columns).cumsum(axis=-1)
        return np.asarray((rng.random((*columns.shape[:2], 1)) > cumulative[..., :-1]).sum(axis=-1))

    def answer(self, sums: Sequence[Sum], seed: int) -> list[str]:
        """Draw one answer to each sum."""
        return format_answers(self.draw(make_columns(sums), np.random.default_rng(seed)))

    def gradient_step(
        self, columns: np.ndarray, actions: np.ndarray, weight: np.ndarray
    ) -> "Trainee":
        """Take a gradient step on the weighted log-probability of the answers; weight: (n,)."""
        residual = np.eye(END + 1)[actions] - self.probabilities(columns)
        gradient = (written_mask(actions) * weight[:, None])[..., None] * residual
        plain, carried = self.plain.copy(), self.carried.copy()
        np.add.at(plain, columns[..., 0], gradient)
        np.add.at(carried, (columns[..., 0], columns[..., 1]), gradient)
        return Trainee(plain, carried)


UNTRAINED = Trainee(np.zeros((_NO_DIGITS + 1, END + 1)), np.zeros((_NO_DIGITS + 1, 2, END + 1)))
"""A trainee with equally likely actions."""


def make_columns(sums: Sequence[Sum]) -> np.ndarray:
    """Return the digit sum and carry of each column, lowest first, int (n, L, 2)."""
    # Two columns more than digits: one for the highest carry, one for the end.
    width = max(problem.num_digits for problem in sums) + 2
    columns = (
        (
            problem.digit_sum(column) if column < problem.num_digits else _NO_DIGITS,
            problem.carry_into(column),
        )
        for problem in sums
        for column in range(width)
    )
    return np.array(list(columns)).reshape(len(sums), width, 2)


def written_mask(actions: np.ndarray) -> np.ndarray:
    """Return a mask of the actions up to and including the first END, bool (n, L)."""
    is_end = actions == END
    return np.asarray(is_end.cumsum(axis=1) - is_end == 0)


def format_answers(actions: np.ndarray) -> list[str]:
    """Return the answers as texts, highest digit first."""
    rows = ([*row, END] for row in actions.tolist())
    return ["".join(map(str, reversed(row[: row.index(END)]))) for row in rows]


def imitate(trainee: Trainee, sums: Sequence[Sum], passes: int, learning_rate: float) -> Trainee:
    """Imitate the correct answers; each pass over them is one gradient step."""
    columns = make_columns(sums)
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
    num_updates: int = 60,
    num_prompts: int = 16,
    num_answers: int = 16,
    learning_rate: float = 0.2,
) -> tuple[Trainee, TrainingEvidence]:
    """Train with policy gradients on the verifier's reward: 1 for a right answer, otherwise 0.

    As in GRPO, advantages are rewards normalised by the mean and standard deviation over the
    answers to the same prompt. Every answer is used once, so no ratio is ever clipped.
    """
    rng = np.random.default_rng(seed)
    columns, digit_counts = make_columns(sums), np.array([problem.num_digits for problem in sums])
    rows_by_update = rng.integers(len(sums), size=(num_updates, num_prompts))
    rewards = np.zeros((num_updates, num_prompts, num_answers))
    entropies, lengths = np.zeros((2, num_updates))
    for update in range(num_updates):
        rows = np.repeat(rows_by_update[update], num_answers)
        actions = trainee.draw(columns[rows], rng)
        pairs = zip(rows, format_answers(actions), strict=True)
        valid = [check_answer(sums[row], text) == (None, None) for row, text in pairs]
        rewards[update] = np.reshape(valid, (num_prompts, num_answers))
        advantage = rewards[update] - rewards[update].mean(axis=1, keepdims=True)
        advantage /= np.maximum(rewards[update].std(axis=1, keepdims=True), 1e-6)
        probabilities = np.maximum(trainee.probabilities(columns[rows]), 1e-12)
        entropies[update] = (
            -(probabilities * np.log(probabilities)).sum(axis=-1)[written_mask(actions)].mean()
        )
        lengths[update] = written_mask(actions).sum(axis=1).mean()
        weight = learning_rate / num_answers * advantage.ravel()
        trainee = trainee.gradient_step(columns[rows], actions, weight)
    rates = rewards.mean(axis=2)
    return trainee, TrainingEvidence(
        updates=num_updates,
        instances=len(np.unique(rows_by_update)),
        reward_first=rates[0].mean(),
        reward_last=rates[-1].mean(),
        zero_variance_share=np.isin(rates, (0.0, 1.0)).mean(),
        clip_share=0.0,
        entropy=entropies.mean(),
        completion_length=lengths.mean(),
        learnability={
            str(group): (rates * (1 - rates))[digit_counts[rows_by_update] == group].mean()
            for group in np.unique(digit_counts[rows_by_update])
        },
    )
