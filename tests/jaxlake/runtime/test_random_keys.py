"""Keys with which a draw would depend on the batch are refused, and commands make none."""

import jax
import numpy as np
import pytest

from jaxlake import generate, lake_params
from jaxlake.command_line.entry import main
from jaxlake.datasets import make_set
from jaxlake.environment import make
from jaxlake.generator import feasibility, quotas
from jaxlake.policies import RandomPolicy, roll_out, sweep
from tests.jaxlake.solver.boards import instances

BOARDS = instances([["S G", "F F"]] * 2, 2, 2)
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
def test_keys_of_which_jax_uses_the_first_for_a_whole_batch_are_refused(call, kind, tmp_path):
    # If JAX learns to draw with each key of a batch, they can be allowed.
    keys = jax.random.split(jax.random.key(0, impl=kind), 3)
    drawn = jax.vmap(jax.random.bits)(keys)
    assert (np.asarray(drawn) != [int(jax.random.bits(key)) for key in keys]).any()
    with pytest.raises(ValueError, match=f"key: got one of kind {kind}, .* another kind is needed"):
        CALLS[call](keys[0], tmp_path)


class _StopError(Exception):
    """Ends a command where it would begin to draw."""


@pytest.mark.parametrize(
    ("command", "module", "name"),
    [
        (
            "generate --size 3 --hole-ratio 0 --wait-ratio 0 --count 1 --seed 0",
            quotas,
            "fill_quotas",
        ),
        ("feasibility --sizes 3", feasibility, "feasibility_map"),
    ],
)
def test_commands_draw_with_threefry_whatever_the_process_has_set(
    command, module, name, monkeypatch
):
    kinds = []

    def recorded(key, *args, **kwargs):
        kinds.append(jax.random.key_impl(key))
        raise _StopError

    monkeypatch.setattr(module, name, recorded)
    with jax.default_prng_impl("rbg"), pytest.raises(_StopError):
        main(command.split())
    assert kinds == ["threefry2x32"]


@pytest.mark.slow
def test_a_pool_is_the_same_where_another_kind_is_the_default():
    plain = make("MAPF-FrozenLake-3x3-2ag-v0", num_instances=4)[1].instances
    with jax.default_prng_impl("rbg"):
        assert str(jax.random.key_impl(jax.random.key(0))) == "rbg"
        other = make("MAPF-FrozenLake-3x3-2ag-v0", num_instances=4)[1].instances
    assert (other.holes == plain.holes).all()
    assert (other.starts == plain.starts).all()
