"""The processing order of lanes, and default limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake.solver.chunks import limits_for, order_active_first

RANDOM = np.random.default_rng(20261126)


@pytest.mark.parametrize("active_share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("count", [1, 7, 1000])
def test_order_active_first_is_a_stable_sort(count, active_share):
    active_mask = RANDOM.random(count) < active_share
    expected = np.argsort(~active_mask, kind="stable")
    np.testing.assert_array_equal(jax.jit(order_active_first)(jnp.asarray(active_mask)), expected)


def test_default_limits_follow_the_default_device(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert limits_for() == limits_for("gpu")
    for device in (jax.local_devices(backend="cpu")[0], "cpu"):
        with jax.default_device(device):
            assert limits_for() == limits_for("cpu")
    assert limits_for("tpu", 32 << 30).loop_bytes == 2 * limits_for("tpu").loop_bytes
