"""A learner that is a formula; it stands for a language model and its trainer."""

from collections.abc import Iterable

import numpy as np


class Learner:
    """Solves an instance with a probability that is logistic in skill less difficulty.

    Args:
        groups: Kinds of instances, from the one of the largest skill to that of the least.
        seed: Decides the answers.
        speed: By how much an instance that is solved every second time raises the skill, logits.
    """

    def __init__(self, groups: Iterable[str], seed: int = 0, speed: float = 0.02) -> None:
        self.skill = {group: 2.0 - 2.0 * number for number, group in enumerate(groups)}
        self.speed = speed
        self._rng = np.random.default_rng(seed)

    def rate(self, group: str, difficulty: float) -> float:
        """Return the probability of a valid answer, for a difficulty of 0..1."""
        return float(1.0 / (1.0 + np.exp(6.0 * difficulty - self.skill[group])))

    def answers(self, group: str, difficulty: float, count: int = 8) -> list[bool]:
        """Answer an instance some times, then learn from it in proportion to p(1-p)."""
        rate = self.rate(group, difficulty)
        valid = self._rng.random(count) < rate
        self.skill[group] += self.speed * 4.0 * rate * (1.0 - rate)
        return valid.tolist()
