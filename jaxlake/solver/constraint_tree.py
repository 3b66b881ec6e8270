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

from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.bitboard import PITCH, line_and_bit, marks, single, word_type
from jaxlake.solver.hold import hold
from jaxlake.solver.space_time import (
    NEVER,
    NOBODY,
    Closed,
    Scratch,
    Track,
    occupied,
    reach,
    scratch,
    trace,
    track_of,
)

MAX_DEPTH = 64
"""Constraints on one branch; a query that needs more gives up."""

_NARROW = 1 << 14
_NONE, _VERTEX, _SWAP, _TARGET = range(4)


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
    both = [
        gains[p] + gains[q]
        for p, first in enumerate(pairs)
        for q in range(p)
        if not set(first) & set(pairs[q])
    ]
    best = jnp.max(jnp.stack([*gains, *both]), axis=0)
    return jnp.sum(costs, axis=0, dtype=jnp.int16) + best


class _Conflict(NamedTuple):
    """Two agents that can't both do what they do: vertex, swapping or target. int16 (B,) each."""

    one: jax.Array  # whom the first child constrains and replans
    other: jax.Array  # whom the second child does; at a target the one at rest
    kind: jax.Array  # _NONE, _VERTEX, _SWAP or _TARGET
    time: jax.Array
    one_here: jax.Array  # cells of both at `time`
    other_here: jax.Array
    one_there: jax.Array  # cells of both at `time` + 1
    other_there: jax.Array


class _Level(NamedTuple):
    """A node of the branch in hand, and the constraint that leads to the next: int16 (B,) each."""

    conflict: _Conflict  # what the node splits on
    side: jax.Array  # the child in hand or to be tried; 2 when both are done
    clashes: jax.Array  # conflicts of the node
    cost: jax.Array  # of the constrained agent before
    limit: jax.Array  # the arrival limit that the constraint replaced
    fixed: jax.Array  # what the constraint fixed: 1 at its time, 2 one step later


_FIELDS = len(_Conflict._fields) + len(_Level._fields) - 1
_SIDE = len(_Conflict._fields)


class _Branch(NamedTuple):
    """The branch in hand, one level for each constraint."""

    levels: jax.Array  # int16 (_FIELDS, L, B), the fields of `_Level`
    paths: jax.Array  # int16 (B, L, T + 1), of the constrained agent before; with _NARROW


class _Node(NamedTuple):
    """The node in hand."""

    paths: jax.Array  # int16 (K, T + 1, B), cells; with _NARROW where the agent has no choice
    costs: jax.Array  # int16 (K, B)
    earliest: jax.Array  # int16 (K, B), arrivals before that are forbidden
    latest: jax.Array  # int16 (K, B), likewise after that; others keep off the goal from then on
    forbidden: jax.Array  # words (5, K, T + 1, R, B), to one agent: the fields of `Closed`
    fixed: jax.Array  # words (2, K, T + 1, B), line and bit of where one agent has to be; no bit
    #   where it does not matter
    tracks: Track  # words (K, T + 1, B) each, of the paths


class _Teams(NamedTuple):
    """Lanes that search the tree of one query together, each below prefixes of its own.

    A prefix says which child to take at the first `split` splits. A team hands its lanes prefix
    after prefix; when all of them are done and every lane is through, the bound is refuted. The
    splits must be the same ones for all: so there is no bypass above `split`, and every prefix
    begins with the same paths. What a team does depends on its query alone.
    """

    size: jax.Array  # int32 (), lanes of a team; divides the number of lanes
    split: jax.Array  # int32 (), at most 14
    budget: jax.Array  # int32 (), agents that a team may replan for one query


class _Lanes(NamedTuple):
    query: jax.Array  # int32 (B,), index of the query in hand, -1 if there is none
    task: Queries  # leaves (..., B), of the queries in hand
    bound: jax.Array  # int16 (B,)
    cut: jax.Array  # int16 (B,), least cost that was cut at this bound
    prefix: jax.Array  # int32 (B,), the sides taken at the first splits, a bit each
    upcoming: jax.Array  # int32 (B,), the prefix that the team hands out next
    through: jax.Array  # bool (B,), done with its prefix
    root: tuple[jax.Array, Track]  # the paths and tracks of the root
    planned: jax.Array  # int16 (B,), agents of the root that have their first path
    depth: jax.Array  # int16 (B,)
    expansions: jax.Array  # int32 (B,)
    done: jax.Array  # bool (B,), has its answer
    found: jax.Array  # bool (B,)
    gave_up: jax.Array  # bool (B,)
    node: _Node
    branch: _Branch
    level: _Level  # of the node in hand
    agent: jax.Array  # int16 (B,), to be planned next
    scratch: Scratch


class _State(NamedTuple):
    lanes: _Lanes
    answers: Answers
    served: jax.Array  # int32 (), queries handed out


def search(
    queries: Queries,
    *,
    horizon: int,
    max_expansions: jax.Array | int,
    lanes: int,
    team: jax.Array | int = 1,
    split: jax.Array | int = 0,
) -> Answers:
    """Answer every wanted query.

    Args:
        queries: see there; a bound that starts below the true lower bound costs time, no more.
        horizon: T, the longest plan looked for (static).
        max_expansions: replanned agents after which a query gives up.
        lanes: B, nodes in hand at a time (static).
        team: lanes that work on one query together; divides `lanes`.
        split: the tree is shared out at its first splits, as many as that, at most 14.

    Returns:
        The `Answers`; of queries that are not wanted nothing is found and nothing given up.
    """
    R, Q = queries.free.shape
    K = queries.starts.shape[0]
    word = word_type(R)
    teams = _Teams(*(jnp.asarray(x, jnp.int32) for x in (team, split, max_expansions)))
    order = jnp.argsort(~queries.wanted, stable=True)
    number_wanted = jnp.sum(queries.wanted, dtype=jnp.int32)
    T, L, B = horizon, MAX_DEPTH, lanes

    def zeros(*shape: int, dtype: jax.typing.DTypeLike = jnp.int16) -> jax.Array:
        return jnp.zeros(shape, dtype)

    blank = Track(*(zeros(K, T + 1, B, dtype=word) for _ in Track._fields))
    idle = _Lanes(
        query=jnp.full(B, -1, jnp.int32),
        task=jax.tree.map(lambda leaf: zeros(*leaf.shape[:-1], B, dtype=leaf.dtype), queries),
        bound=zeros(B),
        cut=zeros(B),
        prefix=zeros(B, dtype=jnp.int32),
        upcoming=zeros(B, dtype=jnp.int32),
        through=zeros(B, dtype=bool),
        root=(zeros(K, T + 1, B), blank),
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
            forbidden=zeros(5, K, T + 1, R, B, dtype=word),
            fixed=zeros(2, K, T + 1, B, dtype=word),
            tracks=blank,
        ),
        level=_Level(_Conflict(*(zeros(B),) * 8), *(zeros(B),) * 5),
        agent=zeros(B),
        branch=_Branch(levels=zeros(_FIELDS, L, B), paths=zeros(B, L, T + 1)),
        scratch=scratch(T, R, B, levels=2),
    )
    answers = Answers(
        found=zeros(Q, dtype=bool),
        gave_up=zeros(Q, dtype=bool),
        bound=queries.first,
        expansions=zeros(Q, dtype=jnp.int32),
        paths=jnp.full((K, T + 1, Q), NOBODY, jnp.int16),
    )

    def refill(state: _State) -> _State:
        lanes, answers = _hand_in(state.lanes, state.answers, teams)
        empty = lanes.query < 0
        leads = empty & (jnp.arange(B) % teams.size == 0)
        place = state.served + jnp.cumsum(leads, dtype=jnp.int32) - 1
        taken = empty & (place < number_wanted)
        query = order[jnp.where(taken, place, 0)]
        return _State(
            _load(lanes, queries, query, taken, teams),
            answers,
            state.served + jnp.sum(taken & leads, dtype=jnp.int32),
        )

    def step(state: _State) -> _State:
        finished = state.lanes.done | (state.lanes.query < 0)
        waiting = number_wanted - state.served
        due = jnp.sum(finished) >= jnp.maximum(teams.size, B // 8)
        state = jax.lax.cond(
            (waiting > 0) & due | jnp.all(finished), refill, lambda state: state, state
        )
        return state._replace(lanes=_replan(state.lanes, teams))

    def unfinished(state: _State) -> jax.Array:
        busy = jnp.any((state.lanes.query >= 0) & ~state.lanes.done)
        return busy | (state.served < number_wanted)

    state = jax.lax.while_loop(unfinished, step, _State(idle, answers, jnp.int32(0)))
    return _hand_in(state.lanes, state.answers, teams)[1]


def _hand_in(lanes: _Lanes, answers: Answers, teams: _Teams) -> tuple[_Lanes, Answers]:
    """Write the answers of the teams that have one, and free their lanes."""
    Q = answers.found.shape[0]
    # The first lane that found a plan speaks for its team, or else the first.
    mates, before = _mates(lanes.found.shape[0], teams)
    silent = jnp.any(mates & before & lanes.found, axis=1) | (
        jnp.any(mates & (lanes.found | before), axis=1) & ~lanes.found
    )
    target = jnp.where(lanes.done & (lanes.query >= 0) & ~silent, lanes.query, Q)

    def put(old: jax.Array, new: jax.Array) -> jax.Array:
        return old.at[..., target].set(new, mode="drop")

    answers = Answers(
        found=put(answers.found, lanes.found),
        gave_up=put(answers.gave_up, lanes.gave_up),
        bound=put(answers.bound, lanes.bound),
        expansions=put(answers.expansions, _sum_of(lanes.expansions, mates)),
        paths=put(answers.paths, lanes.node.paths & (_NARROW - 1)),
    )
    freed = jnp.where(lanes.done, -1, lanes.query)
    return lanes._replace(query=freed, done=jnp.zeros_like(lanes.done)), answers


def _mates(lanes: int, teams: _Teams) -> tuple[jax.Array, jax.Array]:
    """bool (B, B): whether lane j is in the team of lane i, and whether it comes before it."""
    lane = jnp.arange(lanes)
    team = lane // teams.size
    return team[:, None] == team, lane[:, None] > lane


def _sum_of(values: jax.Array, mates: jax.Array) -> jax.Array:
    """int32 (B,): the sum over the lanes that bool (B, B) marks."""
    return jnp.sum(jnp.where(mates, values.astype(jnp.int32), 0), axis=1)


def _load(
    lanes: _Lanes, queries: Queries, query: jax.Array, taken: jax.Array, teams: _Teams
) -> _Lanes:
    """Put queries (B,) into the lanes that `taken`, bool (B,), marks."""
    rank = jnp.arange(query.shape[0]) % teams.size

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(taken, new, old)

    task = jax.tree.map(lambda old, new: choose(new[..., query], old), lanes.task, queries)
    node = lanes.node
    blank = jnp.zeros((), node.forbidden.dtype)
    return lanes._replace(
        query=choose(query, lanes.query),
        task=task,
        bound=choose(task.first, lanes.bound),
        cut=choose(jnp.int16(NEVER), lanes.cut),
        prefix=choose(rank, lanes.prefix),
        upcoming=choose(teams.size, lanes.upcoming),
        # All plan the root, also those for which there is no prefix.
        through=lanes.through & ~taken,
        planned=choose(jnp.int16(0), lanes.planned),
        depth=choose(jnp.int16(0), lanes.depth),
        agent=choose(jnp.int16(0), lanes.agent),
        expansions=choose(jnp.int32(0), lanes.expansions),
        found=lanes.found & ~taken,
        gave_up=lanes.gave_up & ~taken,
        node=_Node(
            paths=choose(_unplanned(node.paths.shape[0]), node.paths),
            costs=choose(jnp.int16(0), node.costs),
            earliest=choose(jnp.int16(0), node.earliest),
            latest=choose(jnp.int16(NEVER), node.latest),
            forbidden=choose(blank, node.forbidden),
            fixed=choose(blank, node.fixed),
            tracks=Track(*(choose(blank, words) for words in node.tracks)),
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
    K, B = values.shape[0], values.shape[-1]
    here = where & (agent == np.arange(K, dtype=np.int16)[:, None])
    return jnp.where(here.reshape(K, *(1,) * (values.ndim - 2), B), new, values)


def _with_path(
    node: _Node, agent: jax.Array, path: jax.Array, where: jax.Array, true: jax.Array
) -> _Node:
    """The node with the path, int16 (T + 1, B) with _NARROW, of agent (B,) replaced."""
    track = hold(track_of(path & (_NARROW - 1), node.forbidden.shape[3]), true)
    return node._replace(
        paths=_put(node.paths, agent, path, where),
        tracks=Track(
            *(_put(old, agent, new, where) for old, new in zip(node.tracks, track, strict=True))
        ),
    )


def _read(branch: _Branch, depth: jax.Array) -> _Level:
    """The levels at depth (B,)."""
    fields = branch.levels[:, depth, jnp.arange(depth.shape[0])]
    of_conflict = len(_Conflict._fields)
    return _Level(_Conflict(*fields[:of_conflict]), *fields[of_conflict:])


def _write(branch: _Branch, depth: jax.Array, level: _Level) -> _Branch:
    fields = jnp.stack([field.astype(jnp.int16) for field in jax.tree.leaves(level)])
    b = jnp.arange(depth.shape[0])
    return branch._replace(levels=branch.levels.at[:, depth, b].set(fields))


def _sort_of_move(here: jax.Array, there: jax.Array) -> jax.Array:
    """int32 (B,): which field of `Closed` a move between neighbouring cells, int16 (B,), is in."""
    step = there - here
    downwards = jnp.where(step > 0, 3, 4)
    return jnp.where(step == 1, 1, jnp.where(step == -1, 2, downwards))


def _toggle(
    node: _Node, level: _Level, where: jax.Array, undo: bool = False
) -> tuple[_Node, tuple[jax.Array, jax.Array]]:
    """Add the constraint of the child at hand, or take it away again.

    A vertex or swapping constraint is one bit, never set twice on a branch, since paths obey what
    is on it; adding and removing are the same exclusive or.

    Args:
        node: the node.
        level: the level; to undo it with the `limit` and `fixed` that adding returned.
        where: bool (B,), which lanes.
        undo: whether to take it away.

    Returns:
        The node, int16 (B,) the arrival limit that was replaced, and int16 (B,) which steps of the
        first agent were fixed.
    """
    conflict = level.conflict
    word = node.forbidden.dtype.type
    R = node.forbidden.shape[3]
    first = level.side == 0
    agent = jnp.where(first, conflict.one, conflict.other)
    here = jnp.where(first, conflict.one_here, conflict.other_here)
    there = jnp.where(first, conflict.one_there, conflict.other_there)
    vertex = where & (conflict.kind == _VERTEX)
    swap = where & (conflict.kind == _SWAP)
    b = jnp.arange(agent.shape[0])
    lower = jnp.where(swap, jnp.minimum(here, there), here)
    bit = word(1) << (lower & (PITCH - 1)).astype(word)
    bit = jnp.where(vertex | swap, bit, jnp.zeros_like(bit))
    sort = jnp.where(vertex | ~swap, 0, _sort_of_move(here, there))
    at = (sort, agent, conflict.time, jnp.clip(lower >> 6, 0, R - 1), b)
    forbidden = node.forbidden.at[at].set(node.forbidden[at] ^ bit)

    # A target conflict names the agent at rest second. Side 0: it rests there by then, and nobody
    # else may enter; side 1: it arrives later.
    target = where & (conflict.kind == _TARGET)
    rests, delayed = target & first, target & ~first
    old = jnp.where(first, _pick(node.latest, conflict.other), _pick(node.earliest, conflict.other))
    # Disjoint splitting: in the second child the first agent does what the first child forbids.
    now = (conflict.one, conflict.time, b)
    then = (conflict.one, jnp.minimum(conflict.time + 1, node.fixed.shape[2] - 1), b)
    before, after = node.fixed[:, *now], node.fixed[:, *then]
    if undo:
        earliest = latest = level.limit
        fixed = jnp.where(where, level.fixed, jnp.int16(0))
        before = jnp.where(fixed & 1 != 0, word(0), before)
        after = jnp.where(fixed & 2 != 0, word(0), after)
    else:
        earliest = jnp.maximum(old, conflict.time + 1)
        latest = jnp.minimum(old, conflict.time)
        at_first = (vertex | swap) & ~first & (before[1] == 0)
        at_second = swap & ~first & (after[1] == 0)
        fixed = at_first + jnp.int16(2) * at_second
        before = jnp.where(at_first, jnp.stack(line_and_bit(conflict.one_here, R)), before)
        after = jnp.where(at_second, jnp.stack(line_and_bit(conflict.one_there, R)), after)
    rested, turned = node.latest[conflict.other, b], node.earliest[conflict.other, b]
    node = node._replace(
        forbidden=forbidden,
        earliest=node.earliest.at[conflict.other, b].set(jnp.where(delayed, earliest, turned)),
        latest=node.latest.at[conflict.other, b].set(jnp.where(rests, latest, rested)),
        fixed=node.fixed.at[:, *now].set(before).at[:, *then].set(after),
    )
    return node, (old, fixed)


def _first_side(lanes: _Lanes, depth: jax.Array, teams: _Teams) -> jax.Array:
    """int16 (B,): the child to begin with at a depth, int16 (B,)."""
    bit = (lanes.prefix >> jnp.minimum(depth, 14)) & 1
    return jnp.where(depth < teams.split, bit, 0).astype(jnp.int16)


def _next_side(side: jax.Array, depth: jax.Array, teams: _Teams) -> jax.Array:
    """int16 (B,): what comes after a child is done: the other one, if it is this lane's."""
    return jnp.where(depth < teams.split, jnp.int16(2), side + 1)


def _replan(lanes: _Lanes, teams: _Teams) -> _Lanes:
    """In every lane try one child of the node in hand, or plan one agent of the root."""
    K, times, B = lanes.node.paths.shape
    T = times - 1
    b = jnp.arange(B)
    task, depth = lanes.task, lanes.depth
    active = (lanes.query >= 0) & ~lanes.done & ~lanes.through
    rooting = active & (lanes.planned < K)
    splitting = active & ~rooting
    level, agent = lanes.level, lanes.agent

    node, (limit, fixed) = _toggle(lanes.node, level, splitting)
    tried = level._replace(limit=limit, fixed=fixed)
    absent = _pick(task.goals, agent) == NOBODY
    old_cost = _pick(node.costs, agent)
    old_path = _pick(node.paths, agent)
    others = jnp.sum(node.costs, axis=0, dtype=jnp.int16) - old_cost
    ceiling = jnp.where(task.total, lanes.bound - others, lanes.bound)
    latest = jnp.minimum(jnp.minimum(_pick(node.latest, agent), ceiling), T)
    path, arrival, memory = _best_path(
        lanes, node, agent, jnp.where(active & ~absent, latest, jnp.int16(-1))
    )
    arrival = jnp.where(absent, jnp.int16(0), arrival)
    path = jnp.where(absent, old_path, path)

    true = jnp.any(lanes.query >= 0)  # a search without queries ends
    path, arrival, old_path = hold((path, arrival, old_path), true)
    planned = active & (arrival != NEVER)
    costs = _put(node.costs, agent, arrival, planned)
    estimate = jnp.where(task.total, matching_bound(costs, task.pair_costs), jnp.max(costs, axis=0))
    fits = planned & (estimate <= lanes.bound)
    fits, estimate = hold((fits, estimate), true)
    paths = _put(node.paths, agent, path, fits)
    next_conflict, clashes = _first_conflict(paths, costs, task.total, lanes.bound)

    bypass = splitting & fits & (arrival == old_cost) & (clashes < level.clashes)
    bypass &= depth >= teams.split
    commit = splitting & fits & ~bypass
    refused = active & ~fits
    # Where the search met the ceiling, a plan may lie one above the bound.
    above = jnp.where(planned, estimate, lanes.bound + 1)
    hopeless = ~planned & (ceiling >= jnp.minimum(_pick(node.latest, agent), T))
    cut = jnp.where(refused & ~hopeless, jnp.minimum(lanes.cut, above), lanes.cut)

    bypass, commit, cut, next_conflict = hold((bypass, commit, cut, next_conflict), true)
    # The constraint stays only where its child becomes the node in hand.
    node, _ = _toggle(node, tried, splitting & ~commit, undo=True)
    kept_narrow = (path & (_NARROW - 1)) | (old_path & _NARROW)
    node = _with_path(node, agent, jnp.where(bypass, kept_narrow, path), fits, true)
    node = node._replace(costs=jnp.where(fits, costs, node.costs))
    side = jnp.where(splitting & refused, _next_side(level.side, depth, teams), level.side)
    branch = _write(lanes.branch, depth, tried._replace(side=side, cost=old_cost))
    saved = jnp.where(commit[:, None], old_path.T, branch.paths[b, depth])
    branch = branch._replace(paths=branch.paths.at[b, depth].set(saved))

    depth = jnp.where(commit, depth + 1, depth)
    too_deep = depth >= MAX_DEPTH
    depth = jnp.minimum(depth, MAX_DEPTH - 1)
    rooted = rooting & fits & (lanes.planned == K - 1)
    arrived = commit | bypass | rooted
    nothing = jnp.zeros(B, jnp.int16)
    first = _first_side(lanes, depth, teams)
    new = _Level(next_conflict, first, clashes, nothing, nothing, nothing)
    branch = _write(
        branch,
        depth,
        jax.tree.map(lambda x, y: jnp.where(arrived, x, y), new, _read(branch, depth)),
    )

    found = arrived & (next_conflict.kind == _NONE)
    expansions = lanes.expansions + active
    spent = active & ~found & too_deep
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
        scratch=memory,
    )
    lanes = _climb(lanes, splitting & refused & ~spent, teams)
    lanes = _confer(lanes, rooted, teams)
    level = _read(lanes.branch, lanes.depth)
    child = jnp.where(level.side == 0, level.conflict.one, level.conflict.other)
    return lanes._replace(level=level, agent=jnp.where(lanes.planned < K, lanes.planned, child))


def _confer(lanes: _Lanes, rooted: jax.Array, teams: _Teams) -> _Lanes:
    """Let the teams hand out prefixes, raise their bounds and end."""
    B = lanes.query.shape[0]
    mates, before = _mates(B, teams)
    prefixes = jnp.int32(1) << teams.split

    def any_of(marked: jax.Array) -> jax.Array:
        return jnp.any(mates & marked, axis=1)

    busy = lanes.query >= 0
    over = any_of(busy & (lanes.found | lanes.gave_up | lanes.done))
    spent = busy & ~over & (_sum_of(lanes.expansions, mates) >= teams.budget)
    gave_up = (any_of(lanes.gave_up) & ~any_of(lanes.found)) | spent
    open_teams = busy & ~over & ~spent

    # A lane for which there is no prefix is through as soon as the root is planned.
    through = lanes.through | (rooted & (lanes.prefix >= prefixes))
    idle = open_teams & through
    offered = lanes.upcoming + _sum_of(idle, mates & before)
    refuted = open_teams & ~any_of(~idle) & (lanes.upcoming >= prefixes)
    cut = jnp.min(jnp.where(mates, lanes.cut, jnp.int16(NEVER)), axis=1)
    again = refuted & (cut <= lanes.task.last)
    offered = jnp.where(again, jnp.arange(B) % teams.size, offered)
    taken = idle & (offered < prefixes)
    prefix = jnp.where(taken, offered, lanes.prefix)
    handed_out = jnp.where(again, teams.size, lanes.upcoming + _sum_of(idle, mates))
    node = lanes.node
    root = jax.tree.map(
        lambda kept, new: jnp.where(rooted, new, kept), lanes.root, (node.paths, node.tracks)
    )
    paths, tracks = jax.tree.map(
        lambda old, kept: jnp.where(taken & (teams.split > 0), kept, old),
        (node.paths, node.tracks),
        root,
    )
    levels = lanes.branch.levels
    side = jnp.where(taken & (teams.split > 0), prefix & 1, 0).astype(jnp.int16)
    at_top = levels[_SIDE, 0]
    return lanes._replace(
        prefix=prefix,
        upcoming=jnp.where(open_teams, jnp.minimum(handed_out, prefixes), lanes.upcoming),
        through=through & ~taken,
        root=root,
        node=node._replace(paths=paths, tracks=tracks),
        bound=jnp.where(again, cut, lanes.bound),
        cut=jnp.where(again, jnp.int16(NEVER), lanes.cut),
        done=lanes.done | over | spent | (refuted & ~again),
        gave_up=gave_up,
        branch=lanes.branch._replace(
            levels=levels.at[_SIDE, 0].set(jnp.where(taken, side, at_top))
        ),
    )


def _climb(lanes: _Lanes, moved: jax.Array, teams: _Teams) -> _Lanes:
    """Leave nodes whose children are both refuted, up to one that has a child left."""
    b = jnp.arange(lanes.depth.shape[0])
    true = jnp.any(lanes.query >= 0)  # a search without queries ends

    def exhausted(lanes: _Lanes) -> jax.Array:
        tried = lanes.branch.levels[_SIDE, lanes.depth, b] > 1
        return moved & ~lanes.done & ~lanes.through & tried

    def leave(lanes: _Lanes) -> _Lanes:
        stuck = exhausted(lanes)
        top = stuck & (lanes.depth == 0)
        inner = stuck & ~top
        depth = jnp.where(inner, lanes.depth - 1, lanes.depth)
        level = _read(lanes.branch, depth)
        agent = jnp.where(level.side == 0, level.conflict.one, level.conflict.other)
        node, _ = _toggle(lanes.node, level, inner, undo=True)
        path, inner, agent = hold((lanes.branch.paths[b, depth].T, inner, agent), true)
        node = _with_path(node, agent, path, inner, true)
        node = node._replace(costs=_put(node.costs, agent, level.cost, inner))
        turned = jnp.where(inner, _next_side(level.side, depth, teams), level.side)
        return lanes._replace(
            through=lanes.through | top,
            depth=depth,
            node=node,
            branch=_write(lanes.branch, depth, level._replace(side=turned)),
        )

    return jax.lax.while_loop(lambda lanes: jnp.any(exhausted(lanes)), leave, lanes)


def _best_path(
    lanes: _Lanes, node: _Node, agent: jax.Array, latest: jax.Array
) -> tuple[jax.Array, jax.Array, Scratch]:
    """An earliest path of one agent (B,) under its constraints, with few conflicts.

    Returns:
        int16 (T + 1, B) cells with _NARROW where the agent has no choice, int16 (B,) its arrival
        or NEVER, and the scratch memory.
    """
    task = lanes.task
    K = node.paths.shape[0]
    R = task.free.shape[0]
    is_agent = agent == np.arange(K, dtype=np.int16)[:, None]
    hard = _forbidden(task, node, agent, is_agent)
    soft = occupied(node.tracks, R, ~is_agent)
    closed = (hard, hard | soft)
    goal = single(_pick(task.goals, agent), R)
    found = reach(
        single(_pick(task.starts, agent), R),
        goal,
        closed,
        waits=task.waits,
        earliest=_pick(node.earliest, agent),
        latest=latest,
        layers=lanes.scratch.layers,
    )
    path, cells = trace(goal, found, closed, waits=task.waits, scratch=lanes.scratch.cells)
    narrow = jnp.where(path.narrow, jnp.int16(_NARROW), jnp.int16(0))
    return path.cells | narrow, found.arrival, Scratch(found.layers, cells)


def _forbidden(task: Queries, node: _Node, agent: jax.Array, is_agent: jax.Array) -> Closed:
    """What holes and constraints close to an agent (B,): words (T + 1, R, B)."""
    K, times, _ = node.paths.shape
    R = task.free.shape[0]
    none = jnp.zeros((), task.free.dtype)
    number = np.arange(R, dtype=task.free.dtype)[:, None]
    t = np.arange(times, dtype=np.int16)[:, None, None]
    cells, *moves = (_pick(words, agent) for words in node.forbidden)
    cells |= ~task.free
    for k in range(K):
        # At its goal at the end of its path; nobody else may enter once it has to be at rest.
        resting = (number == node.tracks.line[k, -1]) & (node.latest[k] <= t) & ~is_agent[k]
        cells |= jnp.where(resting, node.tracks.bit[k, -1], none)
    cells |= marks(node.fixed[0], node.fixed[1], R, ~is_agent)
    line, bit = _pick(node.fixed[0], agent)[:, None], _pick(node.fixed[1], agent)[:, None]
    cells |= jnp.where(bit == 0, none, ~jnp.where(number == line, bit, none))
    return Closed(cells, *moves)


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
    one, other = jnp.where(turned, other, one), jnp.where(turned, one, other)
    return (
        _Conflict(
            one=one,
            other=other,
            kind=jnp.where(best > 0, kind, _NONE).astype(jnp.int16),
            time=time,
            one_here=cells[one, time, b],
            other_here=cells[other, time, b],
            one_there=cells[one, time + 1, b],
            other_there=cells[other, time + 1, b],
        ),
        clashes,
    )
