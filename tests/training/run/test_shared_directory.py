"""Settings that several processes can't share are rejected before any work."""

import pytest

from tests.paths import TINY
from training.errors import UserError
from training.run.shared_directory import require_shareable
from training.schema import load

SERVER_SETTINGS = ["sampling.engine=server", "sampling.server.address=http://a:8000"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["sampling.engine=jax", "grpo.prefetch=1"], r"grpo\.prefetch must be 0"),
        (SERVER_SETTINGS, r"sampling\.server\.address must be null .*, got http://a:8000"),
    ],
)
def test_several_processes_reject_some_configurations(settings, message):
    require_shareable(load(TINY, ["sampling.engine=jax"]))
    with pytest.raises(UserError, match=message):
        require_shareable(load(TINY, settings))
