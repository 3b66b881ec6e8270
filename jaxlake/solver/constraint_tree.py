"""Conflict-based search, depth first, in lanes that refill.

A query asks for a plan of 2 to 5 agents within a bound, and the search proves that there is one, by
showing it, or that there is none, by exhausting the constraint tree (Sharon et al. 2015) as an
iterative-deepening search (Boyarski et al. 2020): nodes above the bound are cut, and when the
tree is exhausted the bound rises to the least cost that was cut. Only the branch in hand is kept.

Conflicts are chosen cardinal ones first (Boyarski et al. 2015); a path that meets an agent at rest
splits on that agent's arrival (target reasoning, Li et al. 2021); a replanned path of equal cost
and fewer conflicts is taken without a split (bypass, Boyarski et al. 2015); and the optima of all
pairs of agents, where known, give a lower bound by matchings (after Li et al. 2019).

Every lane holds one query and is at its own node; in each step every lane replans one agent. A lane
that has its answer takes the next query, so that none waits for the slowest.
"""

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.dynamics import Action
from jaxlake.solver.bitboard import PITCH, dilate, holds, single, word_type
from jaxlake.solver.space_time import NEVER, NOBODY, Closed, occupied, reach, swaps, trace

MAX_DEPTH = 64
"""Constraints on one branch; a query that needs more gives up."""

_NARROW = 1 << 14
_NONE, _VERTEX, _SWAP, _TARGET = range(4)
_LIKES = (Action.UP, Action.DOWN, Action.LEFT, Action.RIGHT, Action.WAIT)


class Queries(NamedTuple):
    """What is asked, Q questions about boards that lie in the last axis."""

    free: jax.Array  # words (R, Q)
    starts: jax.Array  # int16 (K, Q), cells; NOBODY for agents that do not exist
    goals: jax.Array  # int16 (K, Q), likewise
    pair_costs: jax.Array  # int16 (P, Q), lower bounds on the cost of both; 0 where unknown
    total: jax.Array  # bool (Q,), bounds are on the sum of costs; else on the makespan
    waits: jax.Array  # bool (Q,), whether agents may wait before their last arrival
    first: jax.Array  # int16 (Q,), the bound to begin with
    last: jax.Array  # int16 (Q,), the largest bound of interest
    wanted: jax.Array  # bool (Q,)


class Answers(NamedTuple):
    """What was found."""

    found: jax.Array  # bool (Q,), a plan within `bound`, which is the least possible
    gave_up: jax.Array  # bool (Q,), neither a plan nor a proof that there is none up to `last`
    bound: jax.Array  # int16 (Q,), the least bound not refuted
    expansions: jax.Array  # int32 (Q,), agents replanned
    paths: jax.Array  # int16 (K, T + 1, Q), cells, where found


def pairs_of(agents: int) -> list[tuple[int, int]]:
    """The pairs of agents in the order in which arrays list them."""
    return list(combinations(range(agents), 2))


def matching_bound(costs: jax.Array, pair_costs: jax.Array) -> jax.Array:
    """A lower bound on the sum of costs: the best matching of agents into pairs.

    Args:
        costs: int16 (K, B), a lower bound for each agent.
        pair_costs: int16 (P, B), lower bounds for both agents of each pair together.

    Returns:
        int16 (B,).
    """
    pairs = pairs_of(costs.shape[0])
    gains = [jnp.maximum(pair_costs[p] - costs[i] - costs[j], 0) for p, (i, j) in enumerate(pairs)]
    best = jnp.zeros(costs.shape[1:], jnp.int16)
    for p, first in enumerate(pairs):
        best = jnp.maximum(best, gains[p])
        for q in range(p):
            if not set(first) & set(pairs[q]):
                best = jnp.maximum(best, gains[p] + gains[q])
    return jnp.sum(costs, axis=0, dtype=jnp.int16) + best


class _Conflict(NamedTuple):
    """Two agents that can't both do what they do: vertex, swapping or target."""

    agents: jax.Array  # int16 (2, ...), whom the two children constrain and replan
    kind: jax.Array  # int16 (...), _NONE, _VERTEX, _SWAP or _TARGET
    time: jax.Array  # int16 (...)
    here: jax.Array  # int16 (2, ...), cells of both at `time`
    there: jax.Array  # int16 (2, ...), cells of both at `time` + 1


class _Branch(NamedTuple):
    """The branch in hand, a level for each constraint: (B, L, ...)."""

    conflict: _Conflict  # the split of the node at this depth; (B, L) leaves, agents etc. (2, B, L)
    side: jax.Array  # int8 (B, L), the child in hand or to be tried
    clashes: jax.Array  # int16 (B, L), conflicts of the node
    path: jax.Array  # int16 (B, L, T + 1), of the constrained agent before; with _NARROW
    cost: jax.Array  # int16 (B, L), of the constrained agent before
    limit: jax.Array  # int16 (B, L), the arrival limit that the constraint replaced


class _Node(NamedTuple):
    """The node in hand."""

    paths: jax.Array  # int16 (K, T + 1, B), cells; with _NARROW where the agent has no choice
    costs: jax.Array  # int16 (K, B)
    earliest: jax.Array  # int16 (K, B), arrivals before that are forbidden
    latest: jax.Array  # int16 (K, B), likewise after that; others keep off the goal from then on
    cells: jax.Array  # words (T + 1, K, R, B), forbidden to one agent
    across: jax.Array  # words (T + 1, K, R, B)
    along: jax.Array  # words (T + 1, K, R, B)


class _Lanes(NamedTuple):
    query: jax.Array  # int32 (B,), index of the query in hand, -1 if idle
    task: Queries  # leaves (..., B), of the queries in hand
    bound: jax.Array  # int16 (B,)
    cut: jax.Array  # int16 (B,), least cost that was cut at this bound
    planned: jax.Array  # int16 (B,), agents of the root that have their first path
    depth: jax.Array  # int16 (B,)
    expansions: jax.Array  # int32 (B,)
    done: jax.Array  # bool (B,), has its answer
    found: jax.Array  # bool (B,)
    gave_up: jax.Array  # bool (B,)
    node: _Node
    branch: _Branch
    layers: jax.Array  # words (T + 1, 2, R, B), scratch


class _State(NamedTuple):
    lanes: _Lanes
    answers: Answers
    served: jax.Array  # int32 (), queries handed out


def search(
    queries: Queries, *, horizon: int, max_expansions: jax.Array | int, lanes: int
) -> Answers:
    """Answer every wanted query.

    Args:
        queries: see there; a bound that starts below the true lower bound costs time, no more.
        horizon: T, the longest plan looked for (static).
        max_expansions: replanned agents after which a query gives up.
        lanes: B, queries in hand at a time (static).

    Returns:
        The `Answers`; of queries that are not wanted nothing is found and nothing given up.
    """
    R, Q = queries.free.shape
    K = queries.starts.shape[0]
    word = word_type(R)
    budget = jnp.asarray(max_expansions, jnp.int32)
    order = jnp.argsort(~queries.wanted, stable=True)
    number_wanted = jnp.sum(queries.wanted, dtype=jnp.int32)
    T, L, B = horizon, MAX_DEPTH, lanes

    def zeros(*shape: int, dtype: jax.typing.DTypeLike = jnp.int16) -> jax.Array:
        return jnp.zeros(shape, dtype)

    idle = _Lanes(
        query=jnp.full(B, -1, jnp.int32),
        task=jax.tree.map(lambda leaf: zeros(*leaf.shape[:-1], B, dtype=leaf.dtype), queries),
        bound=zeros(B),
        cut=zeros(B),
        planned=zeros(B),
        depth=zeros(B),
        expansions=zeros(B, dtype=jnp.int32),
        done=zeros(B, dtype=bool),
        found=zeros(B, dtype=bool),
        gave_up=zeros(B, dtype=bool),
        node=_Node(
            paths=jnp.broadcast_to(_unplanned(K), (K, T + 1, B)),
            costs=zeros(K, B),
            earliest=zeros(K, B),
            latest=zeros(K, B),
            cells=zeros(T + 1, K, R, B, dtype=word),
            across=zeros(T + 1, K, R, B, dtype=word),
            along=zeros(T + 1, K, R, B, dtype=word),
        ),
        branch=_Branch(
            conflict=_Conflict(
                zeros(2, B, L), zeros(B, L), zeros(B, L), zeros(2, B, L), zeros(2, B, L)
            ),
            side=zeros(B, L, dtype=jnp.int8),
            clashes=zeros(B, L),
            path=zeros(B, L, T + 1),
            cost=zeros(B, L),
            limit=zeros(B, L),
        ),
        layers=zeros(T + 1, 2, R, B, dtype=word),
    )
    answers = Answers(
        found=zeros(Q, dtype=bool),
        gave_up=zeros(Q, dtype=bool),
        bound=queries.first,
        expansions=zeros(Q, dtype=jnp.int32),
        paths=jnp.full((K, T + 1, Q), NOBODY, jnp.int16),
    )

    def refill(state: _State) -> _State:
        lanes, answers = _hand_in(state.lanes, state.answers)
        empty = lanes.query < 0
        place = state.served + jnp.cumsum(empty, dtype=jnp.int32) - empty
        taken = empty & (place < number_wanted)
        query = order[jnp.where(taken, place, 0)]
        return _State(
            _load(lanes, queries, query, taken),
            answers,
            state.served + jnp.sum(taken, dtype=jnp.int32),
        )

    def step(state: _State) -> _State:
        finished = state.lanes.done | (state.lanes.query < 0)
        waiting = number_wanted - state.served
        due = jnp.sum(finished) >= jnp.minimum(B, 1 + B // 8)
        state = jax.lax.cond(
            (waiting > 0) & due | jnp.all(finished), refill, lambda state: state, state
        )
        return state._replace(lanes=_replan(state.lanes, budget))

    def unfinished(state: _State) -> jax.Array:
        busy = jnp.any((state.lanes.query >= 0) & ~state.lanes.done)
        return busy | (state.served < number_wanted)

    state = jax.lax.while_loop(unfinished, step, _State(idle, answers, jnp.int32(0)))
    return _hand_in(state.lanes, state.answers)[1]


def _hand_in(lanes: _Lanes, answers: Answers) -> tuple[_Lanes, Answers]:
    """Write the answers of the lanes that have one, and free these lanes."""
    Q = answers.found.shape[0]
    target = jnp.where(lanes.done & (lanes.query >= 0), lanes.query, Q)

    def put(old: jax.Array, new: jax.Array) -> jax.Array:
        return old.at[..., target].set(new, mode="drop")

    answers = Answers(
        found=put(answers.found, lanes.found),
        gave_up=put(answers.gave_up, lanes.gave_up),
        bound=put(answers.bound, lanes.bound),
        expansions=put(answers.expansions, lanes.expansions),
        paths=put(answers.paths, lanes.node.paths & (_NARROW - 1)),
    )
    freed = jnp.where(lanes.done, -1, lanes.query)
    return lanes._replace(query=freed, done=jnp.zeros_like(lanes.done)), answers


def _load(lanes: _Lanes, queries: Queries, query: jax.Array, taken: jax.Array) -> _Lanes:
    """Put queries (B,) into the lanes that `taken`, bool (B,), marks."""

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(taken, new, old)

    task = jax.tree.map(lambda old, new: choose(new[..., query], old), lanes.task, queries)
    node = lanes.node
    blank = lanes.node.cells[0, 0, 0, 0] * 0
    return lanes._replace(
        query=choose(query, lanes.query),
        task=task,
        bound=choose(task.first, lanes.bound),
        cut=choose(jnp.int16(NEVER), lanes.cut),
        planned=choose(jnp.int16(0), lanes.planned),
        depth=choose(jnp.int16(0), lanes.depth),
        expansions=choose(jnp.int32(0), lanes.expansions),
        found=lanes.found & ~taken,
        gave_up=lanes.gave_up & ~taken,
        node=_Node(
            paths=choose(_unplanned(node.paths.shape[0]), node.paths),
            costs=choose(jnp.int16(0), node.costs),
            earliest=choose(jnp.int16(0), node.earliest),
            latest=choose(jnp.int16(NEVER), node.latest),
            cells=choose(blank, node.cells),
            across=choose(blank, node.across),
            along=choose(blank, node.along),
        ),
    )


def _unplanned(agents: int) -> jax.Array:
    """int16 (K, 1, 1): cells off the board, another one for each agent, so that none meet."""
    return (NOBODY - jnp.arange(agents, dtype=jnp.int16))[:, None, None]


def _pick(values: jax.Array, agent: jax.Array) -> jax.Array:
    """(K, ..., B) to (..., B): the entry of agent (B,)."""
    chosen = values[0]
    for k in range(1, values.shape[0]):
        chosen = jnp.where(agent == k, values[k], chosen)
    return chosen


def _put(values: jax.Array, agent: jax.Array, new: jax.Array, where: jax.Array) -> jax.Array:
    """(K, ..., B) with the entry of agent (B,) replaced by `new` (..., B) where bool (B,) says."""
    return jnp.stack(
        [jnp.where(where & (agent == k), new, values[k]) for k in range(values.shape[0])]
    )


def _split(lanes: _Lanes) -> tuple[_Conflict, jax.Array]:
    """The conflict (B,) on which the node in hand splits, and the side (B,) to be tried."""
    b = jnp.arange(lanes.depth.shape[0])
    depth = lanes.depth
    stored = lanes.branch.conflict
    conflict = _Conflict(
        agents=stored.agents[:, b, depth],
        kind=stored.kind[b, depth],
        time=stored.time[b, depth],
        here=stored.here[:, b, depth],
        there=stored.there[:, b, depth],
    )
    return conflict, lanes.branch.side[b, depth]


def _toggle(
    node: _Node, conflict: _Conflict, side: jax.Array, where: jax.Array, limit: jax.Array | None
) -> tuple[_Node, jax.Array]:
    """Add the constraint of one child, or take it away again.

    A vertex or swapping constraint is one bit, never set twice on a branch, since paths obey what
    is on it; adding and removing are the same exclusive or.

    Args:
        node: the node.
        conflict: leaves (B,).
        side: int8 (B,), which child.
        where: bool (B,), which lanes.
        limit: int16 (B,), the arrival limit to restore; None to add the constraint.

    Returns:
        The node, and int16 (B,) the arrival limit that was replaced.
    """
    word = node.cells.dtype
    R = node.cells.shape[2]
    first = side == 0
    agent = jnp.where(first, conflict.agents[0], conflict.agents[1])
    here = jnp.where(first, conflict.here[0], conflict.here[1])
    there = jnp.where(first, conflict.there[0], conflict.there[1])
    vertex = where & (conflict.kind == _VERTEX)
    swap = where & (conflict.kind == _SWAP)
    b = jnp.arange(agent.shape[0])
    lower = jnp.where(swap, jnp.minimum(here, there), here)
    bit = jnp.asarray(1, word) << (lower & (PITCH - 1)).astype(word)
    sideways = jnp.abs(there - here) == 1
    none = jnp.zeros_like(bit)
    at = (conflict.time, agent, jnp.clip(lower >> 6, 0, R - 1), b)

    def flip(board: jax.Array, bits: jax.Array) -> jax.Array:
        return board.at[at].set(board[at] ^ bits)

    cells = flip(node.cells, jnp.where(vertex, bit, none))
    across = flip(node.across, jnp.where(swap & sideways, bit, none))
    along = flip(node.along, jnp.where(swap & ~sideways, bit, none))

    # A target conflict names the agent at rest second. Side 0: it rests there by then, and nobody
    # else may enter; side 1: it arrives later. Who is banned from its own goal arrives later too.
    target = where & (conflict.kind == _TARGET)
    resting = conflict.agents[1]
    rests = target & first
    delayed = (target & ~first) | (vertex & (here == _goal_of(node, agent)))
    old = jnp.where(rests, _pick(node.latest, resting), _pick(node.earliest, agent))
    if limit is None:
        earliest = jnp.maximum(old, conflict.time + 1)
        latest = jnp.minimum(old, conflict.time)
    else:
        earliest = latest = limit
    node = node._replace(
        cells=cells,
        across=across,
        along=along,
        earliest=_put(node.earliest, agent, earliest, delayed),
        latest=_put(node.latest, resting, latest, rests),
    )
    return node, old


def _goal_of(node: _Node, agent: jax.Array) -> jax.Array:
    """int16 (B,): the goal of an agent, which is where its path ends."""
    return _pick(node.paths[:, -1], agent) & (_NARROW - 1)


def _replan(lanes: _Lanes, budget: jax.Array) -> _Lanes:
    """In every lane try one child of the node in hand, or plan one agent of the root."""
    K, times, B = lanes.node.paths.shape
    T = times - 1
    b = jnp.arange(B)
    task = lanes.task
    active = (lanes.query >= 0) & ~lanes.done
    rooting = active & (lanes.planned < K)
    splitting = active & ~rooting
    conflict, side = _split(lanes)
    clashes_here = lanes.branch.clashes[b, lanes.depth]

    node, old_limit = _toggle(lanes.node, conflict, side, splitting, None)
    child = jnp.where(side == 0, conflict.agents[0], conflict.agents[1])
    agent = jnp.where(rooting, lanes.planned, child)
    goal = _pick(task.goals, agent)
    absent = goal == NOBODY
    old_cost = _pick(node.costs, agent)
    old_path = _pick(node.paths, agent)
    others = jnp.sum(node.costs, axis=0, dtype=jnp.int16) - old_cost
    ceiling = jnp.where(task.total, lanes.bound - others, lanes.bound)
    latest = jnp.minimum(jnp.minimum(_pick(node.latest, agent), ceiling), T)
    path, arrival, layers = _best_path(
        lanes, node, agent, goal, jnp.where(active & ~absent, latest, jnp.int16(-1))
    )
    arrival = jnp.where(absent, jnp.int16(0), arrival)
    path = jnp.where(absent, old_path, path)

    planned = active & (arrival != NEVER)
    costs = _put(node.costs, agent, arrival, planned)
    estimate = jnp.where(task.total, matching_bound(costs, task.pair_costs), jnp.max(costs, axis=0))
    fits = planned & (estimate <= lanes.bound)
    paths = _put(node.paths, agent, path, fits)
    next_conflict, clashes = _first_conflict(paths, costs, task.total, lanes.bound)

    bypass = splitting & fits & (arrival == old_cost) & (clashes < clashes_here)
    commit = splitting & fits & ~bypass
    refused = active & ~fits
    # Where the search met the ceiling, a plan may lie one above the bound.
    above = jnp.where(planned, estimate, lanes.bound + 1)
    hopeless = ~planned & (ceiling >= jnp.minimum(_pick(node.latest, agent), T))
    cut = jnp.where(refused & ~hopeless, jnp.minimum(lanes.cut, above), lanes.cut)

    # The constraint stays only where its child becomes the node in hand.
    node, _ = _toggle(node, conflict, side, splitting & ~commit, old_limit)
    kept_narrow = (path & (_NARROW - 1)) | (old_path & _NARROW)
    node = node._replace(
        paths=_put(paths, agent, kept_narrow, bypass), costs=jnp.where(fits, costs, node.costs)
    )
    depth = lanes.depth
    branch = lanes.branch
    at = (b, depth)

    def write(old: jax.Array, new: jax.Array, where: jax.Array) -> jax.Array:
        return old.at[at].set(jnp.where(where, new, old[at]))

    branch = branch._replace(
        path=branch.path.at[at].set(jnp.where(commit[:, None], old_path.T, branch.path[at])),
        cost=write(branch.cost, old_cost, commit),
        limit=write(branch.limit, old_limit, commit),
        side=write(branch.side, (side + 1).astype(jnp.int8), splitting & refused),
    )

    depth = jnp.where(commit, depth + 1, depth)
    too_deep = depth >= MAX_DEPTH
    depth = jnp.minimum(depth, MAX_DEPTH - 1)
    rooted = rooting & fits & (lanes.planned == K - 1)
    arrived = commit | bypass | rooted
    at = (b, depth)
    stored = branch.conflict
    branch = branch._replace(
        conflict=_Conflict(
            agents=stored.agents.at[:, b, depth].set(
                jnp.where(arrived, next_conflict.agents, stored.agents[:, b, depth])
            ),
            kind=write(stored.kind, next_conflict.kind, arrived),
            time=write(stored.time, next_conflict.time, arrived),
            here=stored.here.at[:, b, depth].set(
                jnp.where(arrived, next_conflict.here, stored.here[:, b, depth])
            ),
            there=stored.there.at[:, b, depth].set(
                jnp.where(arrived, next_conflict.there, stored.there[:, b, depth])
            ),
        ),
        side=write(branch.side, jnp.int8(0), arrived),
        clashes=write(branch.clashes, clashes, arrived),
    )

    found = arrived & (next_conflict.kind == _NONE)
    expansions = lanes.expansions + active
    spent = active & ~found & (too_deep | (expansions >= budget))
    # A root without a path within the bound is tried again under the next.
    unrooted = rooting & refused
    next_bound = jnp.where(unrooted, cut, lanes.bound)
    hopeless_root = unrooted & (cut > task.last)
    lanes = lanes._replace(
        bound=jnp.where(hopeless_root, lanes.bound, next_bound),
        cut=jnp.where(unrooted, jnp.int16(NEVER), cut),
        planned=jnp.where(rooting & fits, lanes.planned + 1, lanes.planned),
        depth=depth,
        expansions=expansions,
        done=lanes.done | found | spent | hopeless_root,
        found=lanes.found | found,
        gave_up=lanes.gave_up | spent,
        node=node,
        branch=branch,
        layers=layers,
    )
    return _climb(lanes, splitting & refused & ~spent)


def _climb(lanes: _Lanes, moved: jax.Array) -> _Lanes:
    """Leave nodes whose children are both refuted, up to one that has a child left."""
    b = jnp.arange(lanes.depth.shape[0])

    def exhausted(lanes: _Lanes) -> jax.Array:
        return moved & ~lanes.done & (lanes.branch.side[b, lanes.depth] > 1)

    def leave(lanes: _Lanes) -> _Lanes:
        stuck = exhausted(lanes)
        top = stuck & (lanes.depth == 0)
        again = top & (lanes.cut <= lanes.task.last)
        inner = stuck & ~top
        depth = jnp.where(inner, lanes.depth - 1, lanes.depth)
        lanes = lanes._replace(depth=depth)
        conflict, side = _split(lanes)
        at = (b, depth)
        branch = lanes.branch
        agent = jnp.where(side == 0, conflict.agents[0], conflict.agents[1])
        node, _ = _toggle(lanes.node, conflict, side, inner, branch.limit[at])
        node = node._replace(
            paths=_put(node.paths, agent, branch.path[at].T, inner),
            costs=_put(node.costs, agent, branch.cost[at], inner),
        )
        turned = jnp.where(top, jnp.int8(0), side + 1).astype(jnp.int8)
        return lanes._replace(
            bound=jnp.where(again, lanes.cut, lanes.bound),
            cut=jnp.where(again, jnp.int16(NEVER), lanes.cut),
            done=lanes.done | (top & ~again),
            node=node,
            branch=branch._replace(
                side=branch.side.at[at].set(jnp.where(stuck, turned, branch.side[at]))
            ),
        )

    return jax.lax.while_loop(lambda lanes: jnp.any(exhausted(lanes)), leave, lanes)


def _best_path(
    lanes: _Lanes, node: _Node, agent: jax.Array, goal: jax.Array, latest: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """An earliest path of one agent (B,) under its constraints, with few conflicts.

    Returns:
        int16 (T + 1, B) cells with _NARROW where the agent has no choice, int16 (B,) its arrival
        or NEVER, and the scratch memory.
    """
    task = lanes.task
    K, times, _ = node.paths.shape
    R = task.free.shape[0]
    word = task.free.dtype
    b = jnp.arange(agent.shape[0])
    is_agent = agent == np.arange(K, dtype=np.int16)[:, None]
    others = jnp.where(is_agent[:, None], jnp.int16(NOBODY), node.paths & (_NARROW - 1))
    resting = [single(task.goals[k], R, ~is_agent[k]) for k in range(K)]

    def forbidden(t: jax.Array) -> Closed:
        now = t.astype(jnp.int16)
        cells = _pick(node.cells[t], agent)
        for k in range(K):
            cells |= jnp.where(node.latest[k] <= now, resting[k], jnp.zeros((), word))
        return Closed(cells, _pick(node.across[t], agent), _pick(node.along[t], agent))

    def closed(t: jax.Array) -> Closed:
        hard, soft = forbidden(t), occupied(others, t, R)
        return Closed(*(jnp.stack([x, x | y]) for x, y in zip(hard, soft, strict=True)))

    found = reach(
        _pick(task.starts, agent),
        goal,
        task.free,
        closed,
        waits=task.waits,
        earliest=_pick(node.earliest, agent),
        latest=latest,
        quiet=0,
        layers=lanes.layers,
    )

    def liking(t: jax.Array, here: jax.Array, there: jax.Array) -> jax.Array:
        lower = jnp.minimum(here, there)
        row = jnp.clip(lower >> 6, 0, R - 1)
        bits = jnp.where(
            jnp.abs(there - here) == 1,
            node.across[t, agent, row, b],
            node.along[t, agent, row, b],
        )
        shut = (here != there) & ((bits >> (lower & (PITCH - 1)).astype(word)) & 1 != 0)
        legal = holds(found.layers[t, 0], here) & ~shut & ((here != there) | task.waits)
        meets = swaps(others, t, here, there) | jnp.any(others[:, t] == here, axis=0)
        clean = holds(found.layers[t, 1], here)
        return jnp.where(legal, 1 + (~meets) * (1 + 2 * clean), 0).astype(jnp.int8)

    path = trace(goal, found.arrival, times - 1, liking, _LIKES)
    narrow = _narrow(found.layers, found.arrival, goal, forbidden, task.waits)
    return path | narrow, found.arrival, found.layers


def _narrow(
    layers: jax.Array,
    arrival: jax.Array,
    goal: jax.Array,
    forbidden: Callable[[jax.Array], Closed],
    waits: jax.Array,
) -> jax.Array:
    """int16 (T + 1, B): _NARROW where all earliest paths are in one cell."""
    times, _, R, B = layers.shape
    last = jnp.max(jnp.where(arrival == NEVER, 0, arrival)).astype(jnp.int32)
    at_goal = single(goal, R)

    def back(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        board, narrow = state
        t = last - 1 - i
        stay = jnp.where(waits, board, jnp.zeros_like(board))
        earlier = (stay | dilate(board, forbidden(t).edges)) & layers[t, 0]
        board = jnp.where(t.astype(jnp.int16) < arrival, earlier, at_goal)
        width = jnp.sum(jax.lax.population_count(board), axis=0, dtype=board.dtype)
        return board, narrow.at[t].set(jnp.where(width == 1, jnp.int16(_NARROW), jnp.int16(0)))

    narrow = jnp.full((times, B), _NARROW, jnp.int16)
    return jax.lax.fori_loop(0, last, back, (at_goal, narrow))[1]


def _first_conflict(
    paths: jax.Array, costs: jax.Array, total: jax.Array, bound: jax.Array
) -> tuple[_Conflict, jax.Array]:
    """The conflict to split on, and int16 (B,) how many there are.

    Cardinal conflicts first, then semi-cardinal ones, then the earliest.
    """
    K, times, B = paths.shape
    T = times - 1
    pairs = pairs_of(K)
    clock = 8 if T < 256 else 13
    width = jnp.int16 if T < 256 else jnp.int32
    cells = paths & (_NARROW - 1)
    # An agent with time to spare has a choice.
    tight = total | (costs == bound)
    narrow = ((paths & _NARROW) != 0) & tight[:, None]
    t = np.arange(T)[:, None]
    at_rest = t >= costs[:, None]
    stays = narrow[:, :-1] & narrow[:, 1:]
    best = jnp.zeros(B, width)
    clashes = jnp.zeros(B, jnp.int16)
    for p, (i, j) in enumerate(pairs):
        meets = cells[i, :-1] == cells[j, :-1]
        swap = (cells[i, :-1] == cells[j, 1:]) & (cells[i, 1:] == cells[j, :-1]) & ~meets
        vertex_rank = (narrow[i, :-1] | at_rest[i]).astype(width) + (
            narrow[j, :-1] | at_rest[j]
        ).astype(width)
        swap_rank = stays[i].astype(width) + stays[j].astype(width)
        rank = 1 + jnp.where(meets, vertex_rank, swap_rank)
        which = width(2 * p) | swap.astype(width)
        key = (rank << (5 + clock)) | ((T - t).astype(width) << 5) | which
        best = jnp.maximum(best, jnp.max(jnp.where(meets | swap, key, width(0)), axis=0))
        clashes += jnp.sum(meets | swap, axis=0, dtype=jnp.int16)

    b = jnp.arange(B)
    time = jnp.clip(T - ((best >> 5) & ((1 << clock) - 1)), 0, T - 1).astype(jnp.int16)
    index = jnp.clip((best >> 1) & 15, 0, len(pairs) - 1)
    one, other = (jnp.asarray(np.array(side, np.int16))[index] for side in zip(*pairs, strict=True))
    rests = time >= costs[one, b]
    other_rests = time >= costs[other, b]
    is_swap = (best & 1) != 0
    kind = jnp.where(is_swap, _SWAP, jnp.where(rests | other_rests, _TARGET, _VERTEX))
    # First the child that is likely to cost nothing: whoever moves, or has a choice.
    choice = narrow[one, time, b] & ~narrow[other, time, b]
    turned = jnp.where(kind == _TARGET, rests, choice)
    agents = jnp.stack([jnp.where(turned, other, one), jnp.where(turned, one, other)])
    return (
        _Conflict(
            agents=agents,
            kind=jnp.where(best > 0, kind, _NONE).astype(jnp.int16),
            time=time,
            here=cells[agents, time, b],
            there=cells[agents, time + 1, b],
        ),
        clashes,
    )
