"""Two-agent lakes of 3x3 without holes, and an untrained policy that can read them."""

from collections.abc import Sequence
from pathlib import Path

import jax

from jaxlake.language.prompts import render
from tests.paths import TINY
from training.policy.policy import write_random_policy
from training.rollout.instances import BoardRequest, InstanceSet, draw_boards
from training.schema import load


def draw_small_lakes(count: int) -> InstanceSet:
    """Return the same lakes at every call."""
    request = BoardRequest(size=3, hole_ratio=0.0, wait_ratio=0.0, count=count, num_agents=2)
    return draw_boards(jax.random.key(0), [request], max_size=3, max_candidates=2000)[0]


def write_untrained_policy(folder: Path, boards: InstanceSet, texts: Sequence[str] = ()) -> Path:
    """Make the policy of `TINY` in a folder below this one, its tokenizer of these texts."""
    path = folder / "initial"
    texts = [*(render(board, "compact") for board in boards), *texts]
    write_random_policy(path, load(TINY).model, texts, max_len=512, seed=0)
    return path
