"""What one program does: the joint search of its boards, and the way back to their plans.

What the loops of `joint_search` keep as one set of joint cells per time is here the time at which
each joint cell was reached first, in binary, one set per digit: a few times less memory. That is
enough, since the sets only grow. With waits, L_t holds L_{t-1}. Without, L_t holds L_{t-2}, because
both agents can take their last steps back and forth (from t = 1 on, if they can step at all), and a
joint cell is reached at even times or at odd ones.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.joint_search import FAR, HALT_PERIOD, Geometry
from jaxlake.solver.kernels.lanes import NOTHING, Row, any_lane, flag, union
from jaxlake.solver.kernels.word_sets import (
    Words,
    both,
    dilate,
    either,
    meet,
    single,
    where,
    without,
)


class Numbers(NamedTuple):
    """What a program says of each board, int32."""

    sum_of_costs: jax.Array
    makespan: jax.Array
    stuck: jax.Array
    expansions: jax.Array
    walker: jax.Array  # the agent that arrives last
    spent: jax.Array  # the sum of costs where there is a plan, else 0
    retirement: jax.Array  # when the other one has arrived
    head: jax.Array  # steps of the makespan's own plan; 0 where the other plan will do


def memory_rows(horizon: int, board: Geometry) -> list[Row]:
    """Return the leading axes of the `Memory` of a program, words each."""
    T, W, M = horizon, board.words, board.cells
    digits = (T + 1).bit_length()  # one value is left for joint cells that are never reached
    return [(2, M + 2 * board.pitch, W), (digits, M, W), (2 * T + 2, 2, W), (T + 1, 2, W)]


class Memory(NamedTuple):
    """References to memory of the program."""

    layers: Any  # L_t for even and for odd t, with empty rows before the first and after the last
    first_times: Any  # of each joint cell, the digits of when it was reached; the least comes first
    walks: Any  # S_c of either agent, for all c
    joins: Any  # where either agent can be when the other retires, for all t


class _Seen(NamedTuple):
    """What is read off a layer while it is made."""

    joins: tuple[tuple[jax.Array, ...], ...]  # where either agent is with the other at its goal
    grown: jax.Array  # words, not 0 if anything is new


class _State(NamedTuple):
    time: jax.Array
    walks: tuple[tuple[jax.Array, ...], ...]  # S_c of either agent
    running: jax.Array
    cost: jax.Array
    makespan: jax.Array
    stuck: jax.Array
    expansions: jax.Array
    mobile: jax.Array  # whether both can step at once at all


class _Walk(NamedTuple):
    walker: jax.Array  # the agent that is on its way back, the other one retired
    place: jax.Array
    walking: jax.Array
    left: jax.Array  # what had been paid when the other one retired


def search(*refs: Any, horizon: int, board: Geometry, waiting: bool) -> None:
    """Write `Numbers`, the actions of the one that walks alone by cost, and actions of both."""
    free, starts, goals, running, asked, numbers, actions, heads, *memory = refs
    program = _Program(free, starts, goals, asked, Memory(*memory), horizon, board, waiting)
    state = program.search(running[0])
    found = (state.makespan if waiting else state.cost) < FAR
    spent = jnp.where(found, state.cost, 0)
    walk = program.walk_back_alone(found, spent, state.mobile, actions)
    retirement = walk.left >> 1
    too_long = found & (spent - retirement > state.makespan)
    head = jnp.where(too_long, state.makespan, 0) if waiting else 0 * spent
    written = Numbers(
        sum_of_costs=state.cost,
        makespan=state.makespan,
        stuck=state.stuck,
        expansions=state.expansions,
        walker=walk.walker,
        spent=spent,
        retirement=retirement,
        head=head,
    )
    for i, number in enumerate(written):
        numbers[i] = number
    program.walk_back_together(walk, retirement, head, heads)


class _Program:
    """The boards of one program. Times, costs and rows m of a loop are the same for all of them."""

    def __init__(
        self,
        free: Any,
        starts: Any,
        goals: Any,
        asked: Any,
        memory: Memory,
        horizon: int,
        board: Geometry,
        waiting: bool,
    ) -> None:
        self.horizon, self.board, self.waiting, self.memory = horizon, board, waiting, memory
        self.words = range(board.words)
        self.digits = memory.first_times.shape[0]
        self.deltas = (0, *board.deltas)
        self.starts, self.goals = (starts[0], starts[1]), (goals[0], goals[1])
        self.asked = asked[0]
        self.free = [free[w] for w in self.words]
        self.homes = [single(goal, board.words) for goal in self.goals]
        self.zero = jnp.zeros_like(self.asked)
        self.none = [jnp.zeros_like(self.free[0])] * board.words

    def search(self, running: jax.Array) -> _State:
        """Expand layer after layer, as `joint_search` does."""
        far = self.zero + FAR
        nowhere = (tuple(self.none),) * 2
        at_start = _State(
            *(jnp.int32(0), nowhere, running, far, far), *(self.zero, self.zero, self.zero)
        )
        return jax.lax.while_loop(
            lambda state: (state.time < self.horizon) & any_lane(state.running != 0),
            self._advance,
            self._examine(at_start, self._first_layer()),
        )

    def _advance(self, state: _State) -> _State:
        seen = self._expand(state.time)
        expansions = state.expansions + state.running
        halted = self.zero
        if self.waiting:
            due = flag(state.time & (HALT_PERIOD - 1) == HALT_PERIOD - 1)
            halted = jnp.where(seen.grown == 0, state.running, 0) * due
        state = state._replace(
            time=state.time + 1,
            running=state.running - halted,
            stuck=state.stuck | halted,
            expansions=expansions,
            mobile=jnp.where(state.time == 0, flag(seen.grown != 0), state.mobile),
        )
        return self._examine(state, seen)

    def _first_layer(self) -> _Seen:
        start = single(self.starts[1], self.board.words)

        def begin(m: jax.Array, seen: _Seen) -> _Seen:
            row = self._allowed(m, where(self.starts[0] == m, start))
            self._write(0, m, row)
            self._write(1, m, self.none)

            def stamp(digit: jax.Array, _: None) -> None:
                for w in self.words:
                    self.memory.first_times[digit, m, w] = ~row[w]

            jax.lax.fori_loop(0, self.digits, stamp, None)
            return self._look(m, row, row, seen)

        def clear_margins(m: jax.Array, _: None) -> None:
            for parity in range(2):
                self._write(parity, m - self.board.pitch, self.none)
                self._write(parity, m + self.board.cells, self.none)

        jax.lax.fori_loop(0, self.board.pitch, clear_margins, None)
        return jax.lax.fori_loop(0, self.board.cells, begin, self._nothing_seen())

    def _expand(self, t: jax.Array) -> _Seen:
        """Make L_{t+1} of L_t: agent 0 moves first, then agent 1, as in `joint_search`."""
        old, young = t & 1, (t + 1) & 1

        def make_row(m: jax.Array, seen: _Seen) -> _Seen:
            here, still = single(m, self.board.words), self._row(old, m)
            moved = {delta: self._row(old, m - delta) for delta in self.board.deltas}
            beside = either(*moved.values(), *([still] if self.waiting else []))
            row = dilate(without(beside, here), self.board, self.waiting)
            # Where agent 0 steps onto agent 1, that one leaves by any move but the swapping one.
            onto = {delta: flag(meet(cells, here)) for delta, cells in moved.items()}
            for away in self.board.deltas:
                leaves = union([onto[delta] for delta in self.board.deltas if delta != -away])
                row = either(row, where(leaves != 0, single(m + away, self.board.words)))
            row = self._allowed(m, row)
            if self.waiting:
                row = either(row, still)
            new = without(row, still if self.waiting else self._row(young, m))
            self._write(young, m, row)

            def stamp(digit: jax.Array, _: None) -> None:
                now = _digit(t + 1, digit)
                for w in self.words:
                    times = self.memory.first_times[digit, m, w]
                    self.memory.first_times[digit, m, w] = (times & ~new[w]) | (new[w] & now)

            jax.lax.fori_loop(0, self.digits, stamp, None)
            return self._look(m, row, new, seen)

        return jax.lax.fori_loop(0, self.board.cells, make_row, self._nothing_seen())

    def _examine(self, state: _State, seen: _Seen) -> _State:
        """Compute S_{2t} and S_{2t+1}, and say which lanes have come to an end."""
        t, walks, arrived = state.time, [list(walk) for walk in state.walks], []
        for half in range(2):
            steps = [dilate(walk, self.board, self.waiting) for walk in walks]
            walks = [
                without(both(step, self.free), home)
                for step, home in zip(steps, self.homes[::-1], strict=True)
            ]
            if half == 0:
                walks = [either(walk, join) for walk, join in zip(walks, seen.joins, strict=True)]
            at_home = [flag(meet(walk, home)) for walk, home in zip(walks, self.homes, strict=True)]
            arrived.append(union(at_home) != 0)
            for agent in range(2):
                for w in self.words:
                    self.memory.walks[2 * t + half, agent, w] = walks[agent][w]
        for agent in range(2):
            for w in self.words:
                self.memory.joins[t, agent, w] = seen.joins[agent][w]
        even, odd = arrived
        makespan = state.makespan
        if self.waiting:
            ended = meet(seen.joins[1], self.homes[1])
            found = jnp.where(even, 2 * t, jnp.where(odd, 2 * t + 1, jnp.int32(FAR)))
            cost = jnp.minimum(state.cost, found)
            makespan = jnp.minimum(makespan, jnp.where(ended, t, jnp.int32(FAR)))
        else:
            hit = (even & (self.asked == 2 * t)) | (odd & (self.asked == 2 * t + 1))
            cost = jnp.where((state.running != 0) & hit, self.asked, state.cost)
            ended = hit | (2 * t + 1 >= self.asked)
        return state._replace(
            walks=tuple(map(tuple, walks)),
            running=jnp.where(ended, 0, state.running),
            cost=cost,
            makespan=makespan,
        )

    def walk_back_alone(
        self, found: jax.Array, spent: jax.Array, mobile: jax.Array, actions: Any
    ) -> _Walk:
        """Go back from the goal of the agent that arrives last, until the other one has retired."""
        walks, joins = self.memory.walks, self.memory.joins
        # WAIT comes last: a move is better where both will do.
        order = (1, 2, 3, 4, 0) if self.waiting else (1, 2, 3, 4)
        longest = jnp.max(spent)

        def step_back(i: jax.Array, walk: _Walk) -> _Walk:
            cost = longest - i
            begins = found & (spent == cost)
            home = [walks[cost, 0, w] for w in self.words]
            walker = jnp.where(begins, 1 - flag(meet(home, self.homes[0])), walk.walker)
            goal = jnp.where(walker == 0, *self.goals)
            place = jnp.where(begins, goal, walk.place)
            walking = jnp.where(begins, 1, walk.walking)

            # The other one retires in the layer of this cost, if they can both be there.
            t = cost >> 1
            joined = [jnp.where(walker == 0, joins[t, 0, w], joins[t, 1, w]) for w in self.words]
            met = jnp.where(meet(joined, single(place, self.board.words)), 1 - (cost & 1), 0)
            if not self.waiting:
                met = jnp.where((mobile != 0) | (t == 0), met, 0)
            left = jnp.where(walking * met != 0, cost, walk.left)
            walking = walking * (1 - met)

            before = jnp.maximum(cost - 1, 0)
            sets = [
                jnp.where(walker == 0, walks[before, 0, w], walks[before, 1, w]) for w in self.words
            ]
            action = self.zero + order[0]
            for choice in reversed(order):
                origin = single(place - self.deltas[choice], self.board.words)
                action = jnp.where(meet(sets, origin), choice, action)
            action = jnp.where(walking != 0, action, 0)
            actions[cost] = action
            return _Walk(walker, place - self._delta_of(action), walking, left)

        def no_action(cost: jax.Array, _: None) -> None:
            actions[cost] = self.zero

        jax.lax.fori_loop(longest, 2 * self.horizon + 2, no_action, None)
        start = _Walk(self.zero, self.zero, self.zero, self.zero)
        return jax.lax.fori_loop(0, longest + 1, step_back, start)

    def walk_back_together(
        self, walk: _Walk, retirement: jax.Array, head: jax.Array, heads: Any
    ) -> None:
        """Write the steps up to the retirement, and those of the makespan's own plan."""
        other = jnp.where(walk.walker == 0, *self.goals[::-1])
        joint = (
            jnp.where(walk.walker == 0, walk.place, other),
            jnp.where(walk.walker == 0, other, walk.place),
        )

        def no_step(t: jax.Array, _: None) -> None:
            for plan in range(2):
                for agent in range(2):
                    heads[plan, t, agent] = self.zero

        def trace(plan: jax.Array, _: None) -> None:
            end = [jnp.where(plan == 0, *ends) for ends in zip(joint, self.goals, strict=True)]
            steps = jnp.where(plan == 0, retirement, head)
            last = jnp.max(steps)

            def step_back(i: jax.Array, places: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
                t = last - i
                pair = jnp.where(t <= steps, self._last_step(t, *places), 0)
                # A fifth of a number below 25, without a division.
                first = (pair * 13) >> 6
                chosen = (first, pair - 5 * first)
                for agent, action in enumerate(chosen):
                    heads[plan, t - 1, agent] = action
                return tuple(
                    place - self._delta_of(action)
                    for place, action in zip(places, chosen, strict=True)
                )

            jax.lax.fori_loop(0, last, step_back, tuple(end))

        jax.lax.fori_loop(0, self.horizon, no_step, None)
        jax.lax.fori_loop(0, 2 if self.waiting else 1, trace, None)

    def _last_step(self, t: jax.Array, one: jax.Array, two: jax.Array) -> jax.Array:
        """Return 5 times the action of agent 0 plus that of agent 1 that lead here at t."""

        def pick(m: jax.Array, rows: tuple[Any, ...]) -> tuple[Any, ...]:
            """Take the rows of L_{t-1} from which agent 0 may have come."""
            reached = self._reached(t - 1, m)
            return tuple(
                tuple(either(row, where(one - delta == m, reached)))
                for row, delta in zip(rows, self.deltas, strict=True)
            )

        none = (tuple(self.none),) * len(self.deltas)
        rows = jax.lax.fori_loop(0, self.board.cells, pick, none)
        origins = [single(two - delta, self.board.words) for delta in self.deltas]
        # Of the legal predecessors take one in which as few agents as possible wait.
        choices = np.indices((5, 5)).reshape(2, 25)
        order = np.argsort(-np.sum(choices > 0, axis=0), kind="stable")
        choices = choices[:, order][:, : 25 if self.waiting else 16]
        pair = self.zero + int(choices[0, 0]) * 5 + int(choices[1, 0])
        for a, b in reversed(list(zip(*choices.tolist(), strict=True))):
            legal = meet(rows[a], origins[b])
            if a and self.deltas[a] == -self.deltas[b]:
                legal = legal & (one - self.deltas[a] != two)  # they would swap
            pair = jnp.where(legal, a * 5 + b, pair)
        return pair

    def _reached(self, t: jax.Array, m: jax.Array) -> Words:
        """Return the joint cells of row m that were reached at t or before."""

        def compare(i: jax.Array, state: Any) -> Any:
            digit = self.digits - 1 - i
            now = _digit(t, digit)
            earlier, equal = [], []
            for w in self.words:
                times = self.memory.first_times[digit, m, w]
                earlier.append(state[0][w] | (state[1][w] & ~times & now))
                equal.append(state[1][w] & ~(times ^ now))
            return tuple(earlier), tuple(equal)

        begun = tuple(self.none), tuple(~word for word in self.none)
        return either(*jax.lax.fori_loop(0, self.digits, compare, begun))

    def _row(self, parity: jax.Array, m: jax.Array) -> Words:
        return [self.memory.layers[parity, m + self.board.pitch, w] for w in self.words]

    def _write(self, parity: jax.Array | int, m: jax.Array, row: Words) -> None:
        for w in self.words:
            self.memory.layers[parity, m + self.board.pitch, w] = row[w]

    def _allowed(self, m: jax.Array, row: Words) -> Words:
        """Return the joint cells of row m in which both are on the ice, and not in one cell."""
        here = single(m, self.board.words)
        return where(meet(self.free, here), without(both(row, self.free), here))

    def _nothing_seen(self) -> _Seen:
        return _Seen((tuple(self.none),) * 2, self.none[0])

    def _look(self, m: jax.Array, row: Words, new: Words, seen: _Seen) -> _Seen:
        here = where(meet(row, self.homes[1]), single(m, self.board.words))
        joins = (here, where(self.goals[0] == m, row))
        joined = (tuple(either(old, more)) for old, more in zip(seen.joins, joins, strict=True))
        return _Seen(tuple(joined), seen.grown | union(new))

    def _delta_of(self, action: jax.Array) -> jax.Array:
        """Return what an action adds to the number of a cell."""
        delta = self.zero
        for number, value in enumerate(self.deltas):
            delta = jnp.where(action == number, value, delta)
        return delta


def _digit(number: jax.Array, digit: jax.Array) -> jax.Array:
    """Return all ones if a binary digit of a number is 1, else none."""
    return jnp.where((number >> digit) & 1 == 1, ~NOTHING, NOTHING)
