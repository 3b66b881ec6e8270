"""Kernel that computes the staircases of many pairs of agents (see `pairs.arrivals`)."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.distance_fields import UNREACHABLE
from jaxlake.solver.chunks import Kernels
from jaxlake.solver.kernels.lanes import any_lane, intersects
from jaxlake.solver.kernels.pair_lanes import PairLanes, run_pairs
from jaxlake.solver.pairs.joint_search import Geometry, TwoAgentBoards

STAIRCASE_LENGTH = 16
"""Number of entries of a staircase, one for each delay 0 to 15 of the first agent."""

BITS_PER_DELAY = 4
"""Number of bits of an entry. Two words of 32 bits hold a staircase."""

MAX_DELAY = STAIRCASE_LENGTH - 1
"""Largest entry, which also stands for larger delays of the second agent."""

DELAYS_PER_WORD = 32 // BITS_PER_DELAY


def search_delays_in_kernel(
    pairs: TwoAgentBoards, running: jax.Array, board: Geometry, backend: Kernels
) -> jax.Array:
    """Return the least delays of the second agent, for either agent as the first to arrive.

    Args:
        pairs: B pairs of agents, one per lane.
        running: bool (B,), pairs to search.
        board: Geometry of the boards (static).
        backend: Target for which the kernel is compiled (static).

    Returns:
        int32 (2, STAIRCASE_LENGTH, B), by first agent. Entry e is the least delay of the second
        agent if the delay of the first is at most e; MAX_DELAY if the search ended earlier.
    """
    kernel = partial(_search_program, board=board, backend=backend)
    (output,) = run_pairs(kernel, pairs, [running, *pairs.solo_distances], None, board, backend)
    packed_words = output[:, :4].astype(jnp.uint32).T.reshape(2, 2, 1, -1)  # (agents, words, 1, B)
    shifts = (BITS_PER_DELAY * np.arange(DELAYS_PER_WORD)).astype(np.uint32)[:, None]
    delays = (packed_words >> shifts) & np.uint32(MAX_DELAY)
    return delays.reshape(2, STAIRCASE_LENGTH, -1).astype(jnp.int32)


class _State(NamedTuple):
    time: jax.Array  # int32 ()
    layer: tuple[jax.Array, ...]  # L_time, the cells of agent 1 for each lane
    delays: tuple[jax.Array, ...]  # uint32 (pairs, 1), two words per first agent
    last_delays: tuple[jax.Array, ...]  # int32 (pairs, 1), last entry written per first agent
    running: jax.Array  # int32 (pairs, 1)


def _search_program(
    columns: Any, output: Any, memory: Any, *, board: Geometry, backend: Kernels
) -> None:
    """Write four words per pair: those with agent 0 as the first agent, then with agent 1."""
    search = _StaircaseSearch(columns, memory, board, backend)
    output[0] = search.pack_row([word.astype(jnp.int32) for word in search.run()])


class _StaircaseSearch(PairLanes):
    """Search for the staircases of one program. The extra columns are the distances alone."""

    def run(self) -> tuple[jax.Array, ...]:
        """Return the four words of delays."""
        distances = self._distances()
        layer = self.first_layer()
        self.write_layer(jnp.int32(0), layer)
        self.synchronise()
        max_delay = jnp.int32(MAX_DELAY) + 0 * self.running
        full_word = ~(max_delay ^ max_delay).astype(jnp.uint32)
        state = _State(jnp.int32(0), tuple(layer), (full_word,) * 4, (max_delay,) * 2, self.running)

        def advance(state: _State) -> _State:
            layer = self.expand(state.time & 1, state.layer, may_wait=True)
            time = state.time + 1
            self.write_layer(time & 1, layer)
            self.synchronise()
            return self._examine(state._replace(time=time, layer=tuple(layer)), distances)

        def is_unfinished(state: _State) -> jax.Array:
            return any_lane(state.running != 0)

        return jax.lax.while_loop(is_unfinished, advance, self._examine(state, distances)).delays

    def _distances(self) -> list[jax.Array]:
        """Return the distances of each agent to its goal past the other agent's goal."""
        goals = self.goal_flags & self.open_flags
        far = jnp.zeros_like(self.lane) + UNREACHABLE
        distances = tuple(jnp.where(_has_flag(goals, agent), 0, far) for agent in (0, 1))

        def spread(state: Any) -> Any:
            radius, flags, distances, _ = state
            self.write_walk(radius & 1, flags)
            self.synchronise()
            next_flags = flags | (self.step_walk(radius & 1, 0) & self.open_flags)
            new_flags = next_flags & ~flags
            distances = tuple(
                jnp.where(_has_flag(new_flags, agent), radius + 1, distances[agent])
                for agent in (0, 1)
            )
            return radius + 1, next_flags, distances, any_lane(new_flags != 0)

        initial_state = (jnp.int32(0), goals, distances, jnp.bool_(True))
        return list(jax.lax.while_loop(lambda state: state[3], spread, initial_state)[2])

    def _examine(self, state: _State, distances: Sequence[jax.Array]) -> _State:
        """Record the delays of the second agent for first agents that can be at their goals now."""
        t = state.time
        # Cells of agent 1 while agent 0 is at its goal, and of agent 0 while agent 1 is.
        partner_cells = (
            self.find_partner_cells(t & 1, state.layer) != 0,
            intersects(state.layer, self.goal_1),
        )
        words, last_delays = list(state.delays), list(state.last_delays)
        for first, second in ((0, 1), (1, 0)):
            distance = self.lane_min(
                jnp.where(partner_cells[first], distances[second], UNREACHABLE)
            )
            delay = jnp.clip(t + distance - self.extra_columns[second], 0, MAX_DELAY)
            first_delay = t - self.extra_columns[first]
            is_in_range = (first_delay >= 0) & (first_delay < STAIRCASE_LENGTH)
            last_delay = last_delays[first]
            last_delays[first] = jnp.where(is_in_range, jnp.minimum(last_delay, delay), last_delay)
            shift = (first_delay * BITS_PER_DELAY) & 31
            for w in (0, 1):
                mask = is_in_range & (first_delay * BITS_PER_DELAY >> 5 == w)
                word = words[2 * first + w]
                cleared_word = word & ~(np.uint32(MAX_DELAY) << shift.astype(jnp.uint32))
                entry = last_delays[first].astype(jnp.uint32) << shift.astype(jnp.uint32)
                words[2 * first + w] = jnp.where(mask, cleared_word | entry, word)
        is_finished = (last_delays[0] == 0) & (last_delays[1] == 0)
        is_finished = is_finished | (t >= jnp.maximum(*self.extra_columns) + MAX_DELAY)
        running = jnp.where(is_finished, 0, state.running)
        return state._replace(delays=tuple(words), last_delays=tuple(last_delays), running=running)


def _has_flag(flags: jax.Array, agent: int) -> jax.Array:
    return (flags >> agent) & 1 != 0
