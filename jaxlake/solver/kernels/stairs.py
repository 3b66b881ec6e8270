"""Staircases of arrivals (`jaxlake.solver.arrivals`), in one launch for many pairs.

A lane is a cell of agent 0, as in the joint search, whose layers a program expands. Only the last
two of them are in memory. In each round the least distance is taken of the cells in which one
agent can be while the other is at its goal.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.distance_fields import UNREACHABLE
from jaxlake.solver.chunks import Kernels, Widths
from jaxlake.solver.joint_search import Geometry, TwoAgentBoards, pack_cells
from jaxlake.solver.kernels.joint_lanes import (
    BOARDS,
    MAX_ROWS,
    PairLanes,
    lanes_of,
    memory_rows,
    told_of,
)
from jaxlake.solver.kernels.lanes import VECTOR_REGISTER, WARP, any_lane, fits, run_programs
from jaxlake.solver.kernels.word_sets import meet


class _Columns(NamedTuple):
    """What a program is told of each pair, int32, after the words of its board's free cells."""

    start_0: jax.Array
    start_1: jax.Array
    goal_0: jax.Array
    goal_1: jax.Array
    running: jax.Array
    alone_0: jax.Array
    alone_1: jax.Array


def serves(machine: Kernels | None, board: Geometry) -> Kernels | None:
    """Return what climbs on boards of this geometry: a kernel, or None."""
    if machine is None or board.pitch > MAX_ROWS + 1:
        return None
    lanes = lanes_of(machine, board)
    return machine if fits(machine, _rows(board) * -(-lanes // VECTOR_REGISTER[1])) else None


def pairs_at_once(board: Geometry, widths: Widths) -> int:
    """Return how many pairs one launch climbs for."""
    lanes = lanes_of(widths.kernels, board)
    return widths.fitting(widths.joint_boards, 4 * lanes * _rows(board))


def _rows(board: Geometry) -> int:
    """Return the rows of lanes that a pair takes in memory, and one for the output."""
    return int(np.prod(memory_rows(None, board))) + 1


def climb(
    pairs: TwoAgentBoards,
    running: jax.Array,
    board: Geometry,
    machine: Kernels,
    *,
    entries: int,
    bits: int,
) -> jax.Array:
    """Find the delays of the other agent, by which agent of a pair is the first to arrive.

    Gives int32 (2, entries, B): entry e says how late the other agent is at least if the first one
    arrives e steps later than alone, or earlier; where no search came so far, it says the most that
    `bits` bits hold. All entries of a pair are in two words of 32 bits.
    """
    from jax.experimental import pallas as pl  # as slow as all of JAX to import

    B = len(running)
    (start_0, start_1), (goal_0, goal_1), (alone_0, alone_1) = (
        pairs.starts,
        pairs.goals,
        pairs.alone,
    )
    numbers = _Columns(start_0, start_1, goal_0, goal_1, running, alone_0, alone_1)
    words = (*pack_cells(pairs.free, board), *numbers)
    told = jnp.stack([word.astype(jnp.int32) for word in words], axis=1)
    at_once, lanes = BOARDS[machine], lanes_of(machine, board)
    programs = -(-B // at_once)
    told = jnp.pad(told, [(0, programs * at_once - B), (0, 0)])
    (output,) = run_programs(
        partial(_climb, board=board, machine=machine, entries=entries, bits=bits),
        machine,
        programs,
        [(told, pl.BlockSpec((at_once, told.shape[1]), lambda i: (i, 0)))],
        [
            (
                jax.ShapeDtypeStruct((programs * at_once, lanes), jnp.int32),
                pl.BlockSpec((at_once, lanes), lambda i: (i, 0)),
            )
        ],
        [((*memory_rows(None, board), at_once, lanes), jnp.uint32)],
        warps=lanes // WARP,
    )
    packed = output[:B, :4].astype(jnp.uint32).T.reshape(2, 2, 1, B)  # (agents, words, 1, B)
    shifts = (bits * np.arange(32 // bits)).astype(np.uint32)[:, None]
    delays = (packed >> shifts) & np.uint32((1 << bits) - 1)
    return delays.reshape(2, entries, B).astype(jnp.int32)


class _State(NamedTuple):
    time: jax.Array  # int32 ()
    layer: tuple[jax.Array, ...]  # L_time, the row of each lane
    delays: tuple[jax.Array, ...]  # uint32 (pairs, 1), two words by which agent is the first
    least: tuple[jax.Array, ...]  # int32 (pairs, 1), the last delay written, by the same
    running: jax.Array  # int32 (pairs, 1)


def _climb(
    columns: Any,
    output: Any,
    memory: Any,
    *,
    board: Geometry,
    machine: Kernels,
    entries: int,
    bits: int,
) -> None:
    """Write the four words of each pair."""
    program = _Climb(columns, memory, board, machine, entries, bits)
    output[...] = program.row_of([word.astype(jnp.int32) for word in program.delays()])


class _Climb(PairLanes):
    """The pairs of one program."""

    def __init__(
        self, columns: Any, memory: Any, board: Geometry, machine: Kernels, entries: int, bits: int
    ) -> None:
        free, told = told_of(columns, board, _Columns)
        super().__init__(free, told, memory, board, machine)
        self.alone = (told.alone_0, told.alone_1)
        self.entries, self.bits = entries, bits

    def delays(self) -> tuple[jax.Array, ...]:
        """Return the words of agent 0, then those of agent 1."""
        left = self._distances()
        layer = self.first_layer()
        self.write_layer(jnp.int32(0), layer)
        self.meet_lanes()
        most = jnp.int32((1 << self.bits) - 1) + 0 * self.running
        unknown = ~(most ^ most).astype(jnp.uint32)
        state = _State(jnp.int32(0), tuple(layer), (unknown,) * 4, (most,) * 2, self.running)

        def advance(state: _State) -> _State:
            layer = self.expand(state.time & 1, state.layer, waiting=True)
            time = state.time + 1
            self.write_layer(time & 1, layer)
            self.meet_lanes()
            return self._examine(state._replace(time=time, layer=tuple(layer)), left)

        def unfinished(state: _State) -> jax.Array:
            return any_lane(state.running != 0)

        return jax.lax.while_loop(unfinished, advance, self._examine(state, left)).delays

    def _distances(self) -> list[jax.Array]:
        """Count the steps from a lane's cell to its goal of each agent around the other's goal."""
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

        begun = (jnp.int32(0), nearest, steps, jnp.bool_(True))
        return list(jax.lax.while_loop(lambda state: state[3], spread, begun)[2])

    def _examine(self, state: _State, left: Sequence[jax.Array]) -> _State:
        """See who can be the first to arrive now, and how late the other one is then."""
        t, most = state.time, (1 << self.bits) - 1
        # Of agent 1 with agent 0 at its goal, and the other way round.
        beside = self.column_of_goal_0(t & 1, state.layer) != 0, meet(state.layer, self.goal_1)
        words, least = list(state.delays), list(state.least)
        for first, other in ((0, 1), (1, 0)):
            distance = self.least(jnp.where(beside[first], left[other], UNREACHABLE))
            delay = jnp.clip(t + distance - self.alone[other], 0, most)
            late = t - self.alone[first]
            known = (late >= 0) & (late < self.entries)
            least[first] = jnp.where(known, jnp.minimum(least[first], delay), least[first])
            place = (late * self.bits) & 31
            for half in (0, 1):
                here = known & (late * self.bits >> 5 == half)
                word = words[2 * first + half]
                cleared = word & ~(np.uint32(most) << place.astype(jnp.uint32))
                put = cleared | (least[first].astype(jnp.uint32) << place.astype(jnp.uint32))
                words[2 * first + half] = jnp.where(here, put, word)
        ended = (least[0] == 0) & (least[1] == 0)
        ended = ended | (t >= jnp.maximum(*self.alone) + self.entries - 1)
        running = jnp.where(ended, 0, state.running)
        return state._replace(delays=tuple(words), least=tuple(least), running=running)


def _has(cells: jax.Array, agent: int) -> jax.Array:
    """Tell, as bool, whether a lane's cell is in the walk of an agent."""
    return (cells >> agent) & 1 != 0
