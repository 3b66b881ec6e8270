"""Dynamic sampling: instances whose rewards are all equal are replaced before an update.

A group whose rewards are all equal has no advantages. DAPO (Yu et al. 2025, section 3.2) goes on
sampling until a batch is full of others. Here the number of rounds is bounded, and the others come
from the same stage: it has its budget of instances, and some of them are answered once more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from training.learner.grpo import has_reward_variance
from training.rollout.rollout import Rollout, question_of, roll_out
from training.run.active_run import ActiveRun
from training.run.throughput import UpdateWork
from training.sampling.sampler import Sampler


def resample(
    run: ActiveRun,
    sampler: Sampler,
    rollout: Rollout,
    spare: Any,  # `Instances`
    *,
    seed: int,
    seconds: dict[str, float],
    work: UpdateWork | None = None,
) -> tuple[Rollout, dict[str, int]]:
    """Replace the groups of a rollout whose rewards are all equal, as far as others are found.

    In each of at most `grpo.resamples` rounds as many `spare` instances are answered as groups are
    still to be replaced. The seed decides which, and what is sampled; none comes twice. Groups for
    which no other was found stay. Returns the rollout with the fields of `UpdateMetrics` that count
    instances. The time that it took is added to `seconds`, and what was generated to `work`.
    """
    rng = np.random.default_rng([seed, 1])
    order = rng.permutation(len(spare))
    answered = replaced = 0
    for _ in range(run.config.grpo.resamples):
        equal = np.flatnonzero(~has_reward_variance(rollout.rewards))
        chosen = order[answered : answered + len(equal)]
        if not len(chosen):
            break
        answered += len(chosen)
        own_seed = int(rng.integers(2**63))
        boards = spare.take(chosen)
        question = question_of(run, boards, seed=own_seed)
        other = roll_out(run, sampler, boards, question, seconds=seconds, work=work)
        found = np.flatnonzero(has_reward_variance(other.rewards))
        replaced += len(found)
        rollout = rollout.with_groups(equal[: len(found)], other, found)
    return rollout, {"resampled_boards": answered, "replaced_boards": replaced}
