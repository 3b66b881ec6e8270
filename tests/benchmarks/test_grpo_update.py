"""The GRPO update's benchmark: what it draws, and what its table says."""

import numpy as np
import pytest

from benchmarks import grpo_update
from tests.paths import SCRATCH
from training.schema import load


@pytest.mark.parametrize("lengths", grpo_update.ROLLOUTS)
def test_every_group_of_the_rollout_has_something_to_learn_from(lengths: str):
    config = load(SCRATCH)
    limit, count = config.prompt.max_tokens, config.grpo.completions
    boards = [([1, 2, 3], 10), ([1, 2], limit)] * 16
    rollout = grpo_update.make_rollout(config, boards, lengths)
    drawn = np.array([len(one.token_ids) for one in rollout.completions]).reshape(-1, count)
    assert rollout.rewards.std(axis=1).min() > 0
    assert drawn.max() == limit
    distinct = {(one.token_ids, one.logprobs.tobytes()) for one in rollout.completions}
    assert len(distinct) == len(boards) * count // (2 if lengths == "copies" else 1)
    if lengths == "limit":
        assert drawn.min() == limit
    else:
        assert drawn[drawn < limit].min() == 6
        assert drawn[1::2].min() == limit - 4
    assert [one.truncated for one in rollout.completions] == list(drawn.reshape(-1) == limit)


def test_the_table_ends_with_how_many_times_less_the_shared_update_takes():
    plain = {"compiling": 9.0, "wall": 6.0, "processor": 8.0, "gflop": 10.0}
    shared = {"compiling": 9.5, "wall": 2.0, "processor": 2.5, "gflop": 4.0}
    names = [
        f"{kind}, {lengths}" for lengths in grpo_update.ROLLOUTS for kind in ("plain", "shared")
    ]
    given = [plain, shared, plain, plain, shared, plain]
    lines = grpo_update.table(dict(zip(names, given, strict=True)))
    assert lines.splitlines()[-3:] == [
        "| times less, plans |  | 3 | 3.2 | 2.5 |",
        "| times less, limit |  | 1 | 1 | 1 |",
        "| times less, copies |  | 0.333 | 0.312 | 0.4 |",
    ]
