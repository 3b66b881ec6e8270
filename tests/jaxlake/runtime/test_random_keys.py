"""Keys whose draws depend on the batch are rejected."""

import jax
import numpy as np
import pytest

from jaxlake import generate, lake_params
from jaxlake.datasets import make_set
from jaxlake.generator import feasibility
from jaxlake.policies import RandomPolicy, roll_out, sweep
from tests.jaxlake.solver.boards import make_instances

BOARDS = make_instances([["S G", "F F"]] * 2, 2, 2)
CALLS = {
    "generate": lambda key, folder: generate(key, lake_params(3), 4),
    "vmapped generate": lambda key, folder: jax.vmap(lambda key: generate(key, lake_params(3), 4))(
        jax.random.split(key, 2)
    ),
    "survey": lambda key, folder: feasibility.survey(key, [(2, 3, 0)]),
    "roll_out": lambda key, folder: roll_out(key, RandomPolicy(), BOARDS),
    "sweep": lambda key, folder: sweep(
        key, [RandomPolicy()], jax.tree.map(lambda leaf: leaf[None], BOARDS), None
    ),
    "make_set": lambda key, folder: make_set(folder / "set", key, lake_params(3), 8),
}


@pytest.mark.parametrize("kind", ["rbg", "unsafe_rbg"])
@pytest.mark.parametrize("call", CALLS)
def test_rbg_keys_are_rejected(call, kind, tmp_path):
    # These keys are rejected because vmapped draws differ from single draws.
    keys = jax.random.split(jax.random.key(0, impl=kind), 3)
    bits = jax.vmap(jax.random.bits)(keys)
    assert (np.asarray(bits) != [int(jax.random.bits(key)) for key in keys]).any()
    with pytest.raises(ValueError, match=f"key must be of a kind .* got {kind}; use"):
        CALLS[call](keys[0], tmp_path)
