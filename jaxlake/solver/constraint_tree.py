"""Conflict-based search, depth first, in lanes that refill.

A query asks for a plan of 2 to 5 agents within a bound, and the search proves that there is one, by
showing it, or that there is none, by exhausting the constraint tree (Sharon et al. 2015) as an
iterative-deepening search (Boyarski et al. 2020): nodes above the bound are cut, and when the
tree is exhausted the bound rises to the least cost that was cut. Only the branch in hand is kept.

Conflicts are chosen cardinal ones first (Boyarski et al. 2015); a path that meets an agent at rest
splits on that agent's arrival (target reasoning, Li et al. 2021); of two children one bans an agent
from what the other makes it do (disjoint splits, Li et al. 2019); a replanned path of equal cost
and fewer conflicts is taken without a split (bypass, Boyarski et al. 2015); and the optima of all
pairs of agents, where known, give a lower bound by matchings (after Li et al. 2019).

Every lane is at a node of its own; in each step every lane replans one agent. A team of one or more
lanes works on one query; when it has the answer it takes the next one, so that none waits for the
slowest.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.bitboard import word_type
from jaxlake.solver.conflicts import NARROW, NONE, Conflict, first_conflict
from jaxlake.solver.hold import hold
from jaxlake.solver.pairs import matching_bound
from jaxlake.solver.queries import Answers, Queries
from jaxlake.solver.space_time import NEVER, NOBODY, Scratch, Track, scratch
from jaxlake.solver.tree_node import (
    FIELDS,
    SIDE,
    Branch,
    Level,
    Node,
    best_path,
    pick,
    put,
    read,
    toggle,
    unplanned,
    with_path,
    write,
)

MAX_DEPTH = 64
"""Constraints on one branch; a query that needs more gives up."""


class _Teams(NamedTuple):
    """Lanes that search the tree of one query together, each below prefixes of its own.

    A prefix says which child to take at the first `split` splits. A team hands its lanes prefix
    after prefix; when all of them are done and every lane is through, the bound is refuted. The
    splits must be the same ones for all: so there is no bypass above `split`, and every prefix
    begins with the same paths. What a team does depends on its query alone.
    """

    size: jax.Array  # int32 (), lanes of a team; divides the number of lanes
    split: jax.Array  # int32 (), at most 14


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
    node: Node
    branch: Branch
    level: Level  # of the node in hand
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
    lanes: int,
    team: jax.Array | int = 1,
    split: jax.Array | int = 0,
) -> Answers:
    """Answer every wanted query.

    Args:
        queries: see there; a bound that starts below the true lower bound costs time, no more.
        horizon: T, the longest plan looked for (static).
        lanes: B, nodes in hand at a time (static).
        team: lanes that work on one query together; divides `lanes`.
        split: the tree is shared out at its first splits, as many as that, at most 14.

    Returns:
        The `Answers`; of queries that are not wanted nothing is found and nothing given up.
    """
    R, Q = queries.free.shape
    K = queries.starts.shape[0]
    word = word_type(R)
    teams = _Teams(*(jnp.asarray(x, jnp.int32) for x in (team, split)))
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
        node=Node(
            paths=jnp.broadcast_to(unplanned(K), (K, T + 1, B)),
            costs=zeros(K, B),
            earliest=zeros(K, B),
            latest=zeros(K, B),
            forbidden=zeros(5, K, T + 1, R, B, dtype=word),
            fixed=zeros(2, K, T + 1, B, dtype=word),
            tracks=blank,
        ),
        level=Level(Conflict(*(zeros(B),) * 8), *(zeros(B),) * 5),
        agent=zeros(B),
        branch=Branch(levels=zeros(FIELDS, L, B), paths=zeros(B, L, T + 1)),
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
        paths=put(answers.paths, lanes.node.paths & (NARROW - 1)),
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
        node=Node(
            paths=choose(unplanned(node.paths.shape[0]), node.paths),
            costs=choose(jnp.int16(0), node.costs),
            earliest=choose(jnp.int16(0), node.earliest),
            latest=choose(jnp.int16(NEVER), node.latest),
            forbidden=choose(blank, node.forbidden),
            fixed=choose(blank, node.fixed),
            tracks=Track(*(choose(blank, words) for words in node.tracks)),
        ),
    )


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

    node, (limit, fixed) = toggle(lanes.node, level, splitting)
    tried = level._replace(limit=limit, fixed=fixed)
    absent = pick(task.goals, agent) == NOBODY
    old_cost = pick(node.costs, agent)
    old_path = pick(node.paths, agent)
    others = jnp.sum(node.costs, axis=0, dtype=jnp.int16) - old_cost
    ceiling = jnp.where(task.total, lanes.bound - others, lanes.bound)
    latest = jnp.minimum(jnp.minimum(pick(node.latest, agent), ceiling), T)
    path, arrival, memory = best_path(
        task, lanes.scratch, node, agent, jnp.where(active & ~absent, latest, jnp.int16(-1))
    )
    arrival = jnp.where(absent, jnp.int16(0), arrival)
    path = jnp.where(absent, old_path, path)

    true = jnp.any(lanes.query >= 0)  # a search without queries ends
    path, arrival, old_path = hold((path, arrival, old_path), true)
    planned = active & (arrival != NEVER)
    costs = put(node.costs, agent, arrival, planned)
    estimate = jnp.where(task.total, matching_bound(costs, task.pair_costs), jnp.max(costs, axis=0))
    fits = planned & (estimate <= lanes.bound)
    fits, estimate = hold((fits, estimate), true)
    paths = put(node.paths, agent, path, fits)
    next_conflict, clashes = first_conflict(paths, costs, task.total, lanes.bound)

    bypass = splitting & fits & (arrival == old_cost) & (clashes < level.clashes)
    bypass &= depth >= teams.split
    commit = splitting & fits & ~bypass
    refused = active & ~fits
    # Where the search met the ceiling, a plan may lie one above the bound.
    above = jnp.where(planned, estimate, lanes.bound + 1)
    hopeless = ~planned & (ceiling >= jnp.minimum(pick(node.latest, agent), T))
    cut = jnp.where(refused & ~hopeless, jnp.minimum(lanes.cut, above), lanes.cut)

    bypass, commit, cut, next_conflict = hold((bypass, commit, cut, next_conflict), true)
    # The constraint stays only where its child becomes the node in hand.
    node, _ = toggle(node, tried, splitting & ~commit, undo=True)
    kept_narrow = (path & (NARROW - 1)) | (old_path & NARROW)
    node = with_path(node, agent, jnp.where(bypass, kept_narrow, path), fits, true)
    node = node._replace(costs=jnp.where(fits, costs, node.costs))
    side = jnp.where(splitting & refused, _next_side(level.side, depth, teams), level.side)
    branch = write(lanes.branch, depth, tried._replace(side=side, cost=old_cost))
    saved = jnp.where(commit[:, None], old_path.T, branch.paths[b, depth])
    branch = branch._replace(paths=branch.paths.at[b, depth].set(saved))

    depth = jnp.where(commit, depth + 1, depth)
    too_deep = depth >= MAX_DEPTH
    depth = jnp.minimum(depth, MAX_DEPTH - 1)
    rooted = rooting & fits & (lanes.planned == K - 1)
    arrived = commit | bypass | rooted
    nothing = jnp.zeros(B, jnp.int16)
    first = _first_side(lanes, depth, teams)
    new = Level(next_conflict, first, clashes, nothing, nothing, nothing)
    branch = write(
        branch,
        depth,
        jax.tree.map(lambda x, y: jnp.where(arrived, x, y), new, read(branch, depth)),
    )

    found = arrived & (next_conflict.kind == NONE)
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
    level = read(lanes.branch, lanes.depth)
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
    spent = busy & ~over & (_sum_of(lanes.expansions, mates) >= lanes.task.budget)
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
    at_top = levels[SIDE, 0]
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
        branch=lanes.branch._replace(levels=levels.at[SIDE, 0].set(jnp.where(taken, side, at_top))),
    )


def _climb(lanes: _Lanes, moved: jax.Array, teams: _Teams) -> _Lanes:
    """Leave nodes whose children are both refuted, up to one that has a child left."""
    b = jnp.arange(lanes.depth.shape[0])
    true = jnp.any(lanes.query >= 0)  # a search without queries ends

    def exhausted(lanes: _Lanes) -> jax.Array:
        tried = lanes.branch.levels[SIDE, lanes.depth, b] > 1
        return moved & ~lanes.done & ~lanes.through & tried

    def leave(lanes: _Lanes) -> _Lanes:
        stuck = exhausted(lanes)
        top = stuck & (lanes.depth == 0)
        inner = stuck & ~top
        depth = jnp.where(inner, lanes.depth - 1, lanes.depth)
        level = read(lanes.branch, depth)
        agent = jnp.where(level.side == 0, level.conflict.one, level.conflict.other)
        node, _ = toggle(lanes.node, level, inner, undo=True)
        path, inner, agent = hold((lanes.branch.paths[b, depth].T, inner, agent), true)
        node = with_path(node, agent, path, inner, true)
        node = node._replace(costs=put(node.costs, agent, level.cost, inner))
        turned = jnp.where(inner, _next_side(level.side, depth, teams), level.side)
        return lanes._replace(
            through=lanes.through | top,
            depth=depth,
            node=node,
            branch=write(lanes.branch, depth, level._replace(side=turned)),
        )

    return jax.lax.while_loop(lambda lanes: jnp.any(exhausted(lanes)), leave, lanes)
