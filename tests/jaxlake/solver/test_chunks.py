"""The order in which lanes are worked on, and plans turned to boards first, beside plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake.solver.chunks import Rows, in_chunks, wanted_first, widths_for
from jaxlake.solver.space_time import by_board

RANDOM = np.random.default_rng(20261126)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("count", [1, 7, 1000])
def test_wanted_lanes_come_first_and_all_keep_their_order(count, share):
    wanted = RANDOM.random(count) < share
    expected = np.argsort(~wanted, kind="stable")
    np.testing.assert_array_equal(jax.jit(wanted_first)(jnp.asarray(wanted)), expected)


@pytest.mark.parametrize("longest", [20, np.iinfo(np.int32).max])
@pytest.mark.parametrize("dtype", [np.int16, np.int32])
@pytest.mark.parametrize("most_wanted", [False, True])
@pytest.mark.parametrize("share", [0.4, 1.0])
def test_lanes_of_similar_length_share_a_chunk_and_every_wanted_lane_is_worked_on(
    longest, dtype, most_wanted, share
):
    count, width = 1000, 64
    wanted = RANDOM.random(count) < share
    length = RANDOM.integers(0, min(longest, np.iinfo(dtype).max), count).astype(dtype)

    def work(operands, chunk):
        lane, lengths, rows = operands
        found = (
            lane,
            jnp.full(width, chunk),
            lengths,
            Rows(rows.values + lane[:, None].astype(dtype)),
        )
        return found, chunk + 1

    def run(wanted, length):
        lanes = jnp.arange(count)
        rows = Rows(jnp.stack([length, -length], axis=1))
        none = jnp.full((count, 2), -7, dtype)
        blank = (jnp.full(count, -1), jnp.full(count, -1), jnp.zeros(count, dtype), Rows(none))
        operands = (lanes, length, rows)
        return in_chunks(
            work, operands, wanted, length, blank, width, jnp.int32(0), most_wanted=most_wanted
        )

    found, chunks = jax.jit(run)(jnp.asarray(wanted), jnp.asarray(length))
    lane, chunk, lengths, (rows,) = jax.tree.map(np.asarray, found)
    assert chunks == -(-wanted.sum() // width)
    worked_on = lane >= 0
    assert worked_on.sum() in (wanted.sum(), min(chunks * width, count))
    assert (lane[worked_on] == np.flatnonzero(worked_on)).all()
    signed = np.stack([length, -length], axis=1) + np.arange(count)[:, None]
    np.testing.assert_array_equal(rows[worked_on], signed[worked_on].astype(dtype))
    assert (rows[~worked_on] == -7).all()
    assert (lane[wanted] == np.flatnonzero(wanted)).all()
    assert (lengths[wanted] == length[wanted]).all()
    # Lengths beyond what there is room for share the last chunks, in the order of the lanes.
    known = np.minimum(length[wanted].astype(np.int64), np.iinfo(np.int32).max // count - 2)
    place = np.empty(wanted.sum(), int)
    place[np.argsort(known, kind="stable")] = np.arange(wanted.sum())
    # The last chunk is filled up with lanes of the one before.
    last = place >= min((chunks - 1) * width, count - width)
    np.testing.assert_array_equal(np.asarray(chunk)[wanted][~last], place[~last] // width)


@pytest.mark.parametrize(("agents", "steps"), [(5, 64), (2, 64), (3, 7), (1, 1)])
def test_actions_are_turned_to_boards_first(agents, steps):
    actions = RANDOM.integers(-1, 5, (agents, steps, 33)).astype(np.int8)
    turned = jax.jit(by_board)(jnp.asarray(actions))
    np.testing.assert_array_equal(turned, actions.transpose(2, 1, 0))


def test_widths_are_by_default_those_of_the_device_that_jax_is_told_to_use(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert widths_for() == widths_for("gpu")
    for device in (jax.local_devices(backend="cpu")[0], "cpu"):
        with jax.default_device(device):
            assert widths_for() == widths_for("cpu")
    assert widths_for("tpu", 32 << 30).loop_bytes == 2 * widths_for("tpu").loop_bytes
