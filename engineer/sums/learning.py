"""How the trainee learns: imitation for a start, then rewards."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engineer.evidence import TrainingEvidence
from engineer.sums.instance import Sum
from engineer.sums.trainee import Trainee, actions_of, columns_of, texts, written
from engineer.sums.verifier import verify


@dataclass(frozen=True)
class Course:
    """How long and how fast a stage is trained."""

    updates: int = 60
    prompts: int = 16  # of each update
    answers: int = 16  # to each prompt; their mean reward is the baseline
    learning_rate: float = 0.2


def imitate(trainee: Trainee, sums: Sequence[Sum], passes: int, learning_rate: float) -> Trainee:
    """Learn the right answers; each pass over them is one step of gradient ascent."""
    columns, actions = columns_of(sums), actions_of(sums)
    weight = np.full(len(sums), learning_rate)
    for _ in range(passes):
        trainee = trainee.ascended(columns, actions, weight)
    return trainee


def train(
    trainee: Trainee, sums: Sequence[Sum], seed: int, course: Course
) -> tuple[Trainee, TrainingEvidence]:
    """Learn from the verifier's reward by policy gradients: 1 for a right answer, 0 for others.

    Advantages are rewards less the mean of the answers to the same prompt, over their standard
    deviation, as in GRPO. Every answer is used once, so that nothing is ever clipped.

    Args:
        trainee: where it starts.
        sums: the stage's instances, at least one, gone through again and again in random order.
        seed: decides the order and the answers.
        course: how long and how fast.
    """
    rng = np.random.default_rng(seed)
    needed = course.updates * course.prompts
    order = np.concatenate([rng.permutation(len(sums)) for _ in range(-(-needed // len(sums)))])
    columns = columns_of(sums)
    rewards, entropies, lengths = [], [], []
    for prompts in order[:needed].reshape(course.updates, course.prompts):
        rows = np.repeat(prompts, course.answers)
        shown = columns[rows]
        actions = trainee.draw(shown, rng)
        used = written(actions)
        valid = [verify(sums[i], text).valid for i, text in zip(rows, texts(actions), strict=True)]
        reward = np.array(valid, float).reshape(course.prompts, course.answers)
        advantage = reward - reward.mean(axis=1, keepdims=True)
        advantage /= np.maximum(reward.std(axis=1, keepdims=True), 1e-6)
        chances = np.maximum(trainee.probabilities(shown), 1e-12)
        rewards.append(reward.mean(axis=1))
        entropies.append(-(chances * np.log(chances)).sum(axis=-1)[used].mean())
        lengths.append(used.sum(axis=1).mean())
        weight = course.learning_rate / course.answers * advantage.ravel()
        trainee = trainee.ascended(shown, actions, weight)
    rates = np.concatenate(rewards)
    digits = np.array([sums[row].digits for row in order[:needed]])
    return trainee, TrainingEvidence(
        updates=course.updates,
        instances=min(len(sums), needed),
        reward_first=float(rewards[0].mean()),
        reward_last=float(rewards[-1].mean()),
        groups_without_variance=float(np.isin(rates, (0.0, 1.0)).mean()),
        clip_share=0.0,
        entropy=float(np.mean(entropies)),
        completion_length=float(np.mean(lengths)),
        learnability={
            str(group): float((rates * (1 - rates))[digits == group].mean())
            for group in np.unique(digits)
        },
    )
