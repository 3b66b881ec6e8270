"""Staircases of arrivals (`jaxlake.solver.pairs.arrivals`), in one launch for many pairs."""

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

EXCESSES = 16
"""Delays of the first agent covered by a staircase, 0 to 15; a second delay of 15 means >= 15."""

BITS_PER_DELAY = 4
"""Bits of a delay; two words of 32 bits hold all delays of a pair."""

MAX_DELAY = EXCESSES - 1
DELAYS_PER_WORD = 32 // BITS_PER_DELAY


def climb(
    pairs: TwoAgentBoards, running: jax.Array, board: Geometry, backend: Kernels
) -> jax.Array:
    """Return the delays of the second agent, by which agent of a pair arrives first.

    Returns:
        int32 (2, EXCESSES, B). Entry e is the minimum delay of the second agent if the first one
        arrives at most e steps later than alone; MAX_DELAY if the search did not get that far.
    """
    kernel = partial(_climb, board=board, backend=backend)
    (output,) = run_pairs(kernel, pairs, [running, *pairs.solo_distances], None, board, backend)
    packed = output[:, :4].astype(jnp.uint32).T.reshape(2, 2, 1, -1)  # (agents, words, 1, B)
    shifts = (BITS_PER_DELAY * np.arange(DELAYS_PER_WORD)).astype(np.uint32)[:, None]
    delays = (packed >> shifts) & np.uint32(MAX_DELAY)
    return delays.reshape(2, EXCESSES, -1).astype(jnp.int32)


class _State(NamedTuple):
    time: jax.Array  # int32 ()
    layer: tuple[jax.Array, ...]  # L_time, the row of each lane
    delays: tuple[jax.Array, ...]  # uint32 (pairs, 1), two words per choice of the first agent
    least: tuple[jax.Array, ...]  # int32 (pairs, 1), last delay written, per first agent
    running: jax.Array  # int32 (pairs, 1)


def _climb(columns: Any, output: Any, memory: Any, *, board: Geometry, backend: Kernels) -> None:
    """Write the four words of each pair."""
    program = _Climb(columns, memory, board, backend)
    output[0] = program.pack_row([word.astype(jnp.int32) for word in program.delays()])


class _Climb(PairLanes):
    """Staircase search of the pairs of one program."""

    def delays(self) -> tuple[jax.Array, ...]:
        """Return the words of agent 0, then those of agent 1."""
        distances = self._distances()
        layer = self.first_layer()
        self.write_layer(jnp.int32(0), layer)
        self.meet_lanes()
        max_delay = jnp.int32(MAX_DELAY) + 0 * self.running
        unknown = ~(max_delay ^ max_delay).astype(jnp.uint32)
        state = _State(jnp.int32(0), tuple(layer), (unknown,) * 4, (max_delay,) * 2, self.running)

        def advance(state: _State) -> _State:
            layer = self.expand(state.time & 1, state.layer, waiting=True)
            time = state.time + 1
            self.write_layer(time & 1, layer)
            self.meet_lanes()
            return self._examine(state._replace(time=time, layer=tuple(layer)), distances)

        def unfinished(state: _State) -> jax.Array:
            return any_lane(state.running != 0)

        return jax.lax.while_loop(unfinished, advance, self._examine(state, distances)).delays

    def _distances(self) -> list[jax.Array]:
        """Return distances from a lane's cell to each agent's goal around the other's goal."""
        nearest = self.home & self.clear
        far = jnp.zeros_like(self.lane) + UNREACHABLE
        steps = tuple(jnp.where(_has(nearest, agent), 0, far) for agent in (0, 1))

        def spread(state: Any) -> Any:
            d, cells, steps, _ = state
            self.write_walk(d & 1, cells)
            self.meet_lanes()
            wider = cells | (self.step_walk(d & 1, 0) & self.clear)
            new = wider & ~cells
            steps = tuple(jnp.where(_has(new, a), d + 1, steps[a]) for a in (0, 1))
            return d + 1, wider, steps, any_lane(new != 0)

        initial = (jnp.int32(0), nearest, steps, jnp.bool_(True))
        return list(jax.lax.while_loop(lambda state: state[3], spread, initial)[2])

    def _examine(self, state: _State, distances: Sequence[jax.Array]) -> _State:
        """Record which agents can arrive first now (`more` are distances alone), and the delay."""
        t = state.time
        # Cells of agent 1 with agent 0 at its goal, and vice versa.
        beside = (
            self.column_of_goal_0(t & 1, state.layer) != 0,
            intersects(state.layer, self.goal_1),
        )
        words, least = list(state.delays), list(state.least)
        for first, second in ((0, 1), (1, 0)):
            distance = self.min(jnp.where(beside[first], distances[second], UNREACHABLE))
            delay = jnp.clip(t + distance - self.more[second], 0, MAX_DELAY)
            late = t - self.more[first]
            in_range = (late >= 0) & (late < EXCESSES)
            least[first] = jnp.where(in_range, jnp.minimum(least[first], delay), least[first])
            place = (late * BITS_PER_DELAY) & 31
            for half in (0, 1):
                mask = in_range & (late * BITS_PER_DELAY >> 5 == half)
                word = words[2 * first + half]
                cleared = word & ~(np.uint32(MAX_DELAY) << place.astype(jnp.uint32))
                updated = cleared | (least[first].astype(jnp.uint32) << place.astype(jnp.uint32))
                words[2 * first + half] = jnp.where(mask, updated, word)
        ended = (least[0] == 0) & (least[1] == 0)
        ended = ended | (t >= jnp.maximum(*self.more) + MAX_DELAY)
        running = jnp.where(ended, 0, state.running)
        return state._replace(delays=tuple(words), least=tuple(least), running=running)


def _has(cells: jax.Array, agent: int) -> jax.Array:
    """Return whether a lane's cell is in the walk of an agent, as bool."""
    return (cells >> agent) & 1 != 0
