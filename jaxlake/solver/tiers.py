"""From cheap certificates to exact search, each tier for what the one before left open.

1. Distances. An agent that can't reach its goal alone proves the board unsolvable.
2. Prioritised planning in two orders. A plan whose costs are the distances is optimal in both
   objectives and needs no wait. Other plans give upper bounds.
3. All pairs of agents, exactly. A pair without a plan proves the board unsolvable; the optima of
   the pairs give lower bounds, and where they meet the upper bounds the board is done.
4. Where no plan is known, the proof of `crowd` that there is none.
5. Conflict-based search between the bounds: for the sum of costs, the makespan, and a plan of
   optimal sum of costs without waits where parity leaves that open.

With two slots for agents, the joint search of `two_agents` comes after tier 2.
"""

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.instance import Instance
from jaxlake.solver.certificates import Boards, prepare, prioritise, undisturbed
from jaxlake.solver.constraint_tree import search
from jaxlake.solver.crowd import proved_unsolvable
from jaxlake.solver.pairs import matching_bound, pair_optima, pairs_of
from jaxlake.solver.queries import Answers, Queries
from jaxlake.solver.solution import DEFAULT_HORIZON, Solution, Status
from jaxlake.solver.space_time import NEVER, plan_of
from jaxlake.solver.two_agents import solve_two

DEFAULT_MAX_EXPANSIONS = {3: 65536, 4: 16384, 5: 16384}
"""Agents that one search of the constraint tree replans before it gives up, by their number."""

MAX_AGENTS = 5
MAX_SIZE = 32
_MAX_HORIZON = 4096
_LANES = 128
"""Nodes of constraint trees in hand at a time."""

_SOON = 64
"""Expansions of one lane after which a team takes over."""

_TEAM, _SPLIT = 16, 6
"""Lanes of a team, and how many splits at the top of a tree are shared out among them."""


def solve(
    instance: Instance,
    *,
    horizon: int = DEFAULT_HORIZON,
    max_expansions: int | None = None,
) -> Solution:
    """Solve one instance of up to five agents exactly; `jax.vmap` solves a batch at full speed.

    An instance needs a wait if no plan of optimal sum of costs exists in which no agent waits
    before its last arrival at its goal.

    Args:
        instance: holes bool (N, N) with N at most 32, 2 to 5 slots for agents.
        horizon: longest plan to look for, in steps (static, 1 to 4096).
        max_expansions: agents that one search of the constraint tree may replan, beyond the few
            after which it is begun anew by more lanes; with three or more slots only. There are
            up to three such searches: for either objective, and for a plan without waits. None
            stands for `DEFAULT_MAX_EXPANSIONS` of the instance's number of agents.

    Returns:
        A `Solution`. OPTIMAL and UNSOLVABLE are proved; UNKNOWN means that the budget was spent or
        that the shortest plans are longer than `horizon`. `expansions` counts layers of the joint
        search where two slots exist, else agents replanned in constraint trees.

    Raises:
        ValueError: `horizon`, N or the number of slots is out of range.
    """
    if not 1 <= horizon <= _MAX_HORIZON:
        raise ValueError(f"horizon: got {horizon}, 1 to {_MAX_HORIZON} are allowed")
    slots, size = np.shape(instance.agent_mask)[-1], np.shape(instance.holes)[-1]
    if not 2 <= slots <= MAX_AGENTS:
        raise ValueError(
            f"agent_mask: got shape {np.shape(instance.agent_mask)}, 2 to {MAX_AGENTS} slots are "
            "allowed"
        )
    if size > MAX_SIZE:
        raise ValueError(f"holes: got a board of {size} rows, at most {MAX_SIZE} are allowed")
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], instance)
    if max_expansions is None:
        agents = jnp.sum(batch.agent_mask, axis=-1)
        budget = jnp.array(list(DEFAULT_MAX_EXPANSIONS.values()))[jnp.clip(agents, 3, 5) - 3]
    else:
        budget = jnp.asarray(max_expansions, jnp.int32)[None]
    return jax.tree.map(lambda leaf: leaf[0], _batch_solver(horizon)(batch, budget))


@cache
def _batch_solver(horizon: int) -> Callable[[Instance, jax.Array], Solution]:
    """The solver of a whole batch, with a vmap rule that merges further batch axes into one.

    Under plain vmap a while loop selects between old and new state for every lane in every
    iteration, and no lane could take the next board.
    """

    @jax.custom_batching.custom_vmap
    def solver(batch: Instance, budget: jax.Array) -> Solution:
        if batch.agent_mask.shape[-1] == 2:
            return _solve_twos(batch, horizon)
        return _solve_batch(batch, horizon, budget)

    @solver.def_vmap
    def merge_axes(
        axis_size: int, in_batched: list[Instance], batch: Instance, budget: jax.Array
    ) -> tuple[Solution, Solution]:
        wide = jax.tree.map(
            lambda leaf, batched: (
                leaf if batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))
            ),
            (batch, budget),
            tuple(in_batched),
        )
        merged = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), wide)
        solutions = solver(*merged)
        split = jax.tree.map(lambda leaf: leaf.reshape(axis_size, -1, *leaf.shape[1:]), solutions)
        return split, jax.tree.map(lambda _: True, split)

    return solver


def _solve_twos(batch: Instance, horizon: int) -> Solution:
    """Boards with two slots: the joint search, where prioritised planning does not settle it."""
    boards = prepare(batch)
    connected = jnp.all(boards.alone < NEVER, axis=0)
    best = prioritise(boards, connected, horizon)
    floor = jnp.sum(jnp.where(connected, boards.alone, 0), axis=0, dtype=jnp.int16)
    sure = connected & (best.sum_of_costs == floor)
    plan = plan_of(best.paths).transpose(2, 1, 0)
    longest = jnp.max(boards.alone, axis=0)
    certain = Solution(
        status=jnp.full(sure.shape, Status.OPTIMAL, jnp.int8),
        sum_of_costs=floor,
        makespan=longest,
        needs_wait=jnp.zeros_like(sure),
        plan=plan,
        makespan_plan=plan,
        expansions=jnp.zeros(sure.shape, jnp.int32),
    )
    searched = solve_two(batch, ~sure, horizon)
    return jax.tree.map(
        lambda x, y: jnp.where(sure.reshape(-1, *(1,) * (x.ndim - 1)), x, y), certain, searched
    )


def _solve_batch(batch: Instance, horizon: int, budget: jax.Array) -> Solution:
    B, K = batch.agent_mask.shape
    boards = prepare(batch)
    connected = jnp.all(boards.alone < NEVER, axis=0)
    floor = jnp.sum(jnp.where(connected, boards.alone, 0), axis=0, dtype=jnp.int16)
    longest = jnp.max(jnp.where(connected, boards.alone, 0), axis=0)

    best = prioritise(boards, connected, horizon)
    open_boards = connected & (best.sum_of_costs > floor)
    pair_costs, pair_makespan, waitless, blocked = _pairs(batch, boards, open_boards, horizon)
    lower = matching_bound(jnp.where(connected, boards.alone, 0), pair_costs)
    least_makespan = jnp.maximum(longest, pair_makespan)
    puzzling = open_boards & ~blocked & (best.sum_of_costs == NEVER)
    blocked |= proved_unsolvable(
        ~batch.holes, batch.starts, batch.goals, batch.agent_mask, puzzling
    )
    unsolvable = ~connected | blocked
    open_boards &= ~blocked

    def ask(
        total: bool, waits: bool, first: jax.Array, last: jax.Array, wanted: jax.Array
    ) -> Queries:
        costs = pair_costs if waits else _without_waits(pair_costs, boards.alone, waitless)
        return Queries(
            free=boards.free,
            starts=boards.starts,
            goals=boards.goals,
            pair_costs=costs,
            total=jnp.full(B, total),
            waits=jnp.full(B, waits),
            first=first.astype(jnp.int16),
            last=last.astype(jnp.int16),
            budget=budget,
            wanted=wanted,
        )

    limit = jnp.int16(K * horizon)
    cost_last = jnp.where(best.sum_of_costs < NEVER, best.sum_of_costs - 1, limit)
    span_last = jnp.where(best.makespan < NEVER, best.makespan - 1, jnp.int16(horizon))
    objectives = _join(
        ask(True, True, lower, cost_last, open_boards & (lower <= cost_last)),
        ask(False, True, least_makespan, span_last, open_boards & (least_makespan <= span_last)),
    )
    bound_without = matching_bound(
        jnp.where(connected, boards.alone, 0), _without_waits(pair_costs, boards.alone, waitless)
    )

    def settled(costs: Answers, spans: Answers) -> tuple[jax.Array, jax.Array, jax.Array]:
        cost = jnp.where(costs.found, costs.bound, best.sum_of_costs)
        span = jnp.where(spans.found, spans.bound, best.makespan)
        known = connected & ~blocked & (cost < NEVER) & (span < NEVER)
        return cost, span, known & ~costs.gave_up & ~spans.gave_up

    def ask_on(costs: Answers, spans: Answers) -> Queries:
        # On a bipartite grid an odd excess can only come from waiting, and none needs no wait.
        cost, _, known = settled(costs, spans)
        even = known & (cost > floor) & ((cost - floor) % 2 == 0)
        asked = ask(True, False, cost, cost, even & (bound_without <= cost))
        return _join(asked, asked._replace(wanted=jnp.zeros(B, bool)))

    def one_round(before: Answers, second: jax.Array) -> tuple[Answers, Answers]:
        queries = jax.tree.map(
            lambda x, y: jnp.where(second, x, y), ask_on(*_halves(before)), objectives
        )
        answers = _search_twice(queries, horizon)
        return answers, answers

    # One loop for both rounds, so that the search is compiled once.
    nothing = Answers(
        found=jnp.zeros(2 * B, bool),
        gave_up=jnp.zeros(2 * B, bool),
        bound=jnp.zeros(2 * B, jnp.int16),
        expansions=jnp.zeros(2 * B, jnp.int32),
        paths=jnp.zeros((K, horizon + 1, 2 * B), jnp.int16),
    )
    _, rounds = jax.lax.scan(one_round, nothing, jnp.array([False, True]))
    costs, spans = _halves(jax.tree.map(lambda leaf: leaf[0], rounds))
    without, _ = _halves(jax.tree.map(lambda leaf: leaf[1], rounds))
    cost, span, known = settled(costs, spans)
    # Cheaper plans were refuted only as far as every agent arrives within the horizon.
    known &= ~without.gave_up & ((cost == lower) | (cost <= horizon + 1 + floor - longest))
    needs_wait = known & (cost > floor) & ~without.found

    paths = jnp.where(costs.found, costs.paths, best.paths)
    span_paths = jnp.where(spans.found, spans.paths, best.makespan_paths)
    status = jnp.where(
        known, Status.OPTIMAL, jnp.where(unsolvable, Status.UNSOLVABLE, Status.UNKNOWN)
    )

    def plan(paths: jax.Array) -> jax.Array:
        return jnp.where(known[:, None, None], plan_of(paths).transpose(2, 1, 0), jnp.int8(-1))

    none = jnp.int16(-1)
    return Solution(
        status=status.astype(jnp.int8),
        sum_of_costs=jnp.where(known, cost, none),
        makespan=jnp.where(known, span, none),
        needs_wait=needs_wait,
        plan=plan(paths),
        makespan_plan=plan(span_paths),
        expansions=costs.expansions + spans.expansions + without.expansions,
    )


def _search_twice(queries: Queries, horizon: int) -> Answers:
    """Search each tree by one lane, and by a team the few that are not done soon."""
    K, Q = queries.starts.shape
    lanes = min(_LANES, max(_TEAM, 1 << (Q // 2 - 1).bit_length()))
    unknown = Answers(
        found=jnp.zeros(Q, bool),
        gave_up=queries.wanted,
        bound=queries.first,
        expansions=jnp.zeros(Q, jnp.int32),
        paths=jnp.zeros((K, horizon + 1, Q), jnp.int16),
    )

    def go_on(so_far: Answers, effort: tuple[jax.Array, ...]) -> tuple[Answers, None]:
        team, split, most = effort
        wanted = so_far.gave_up
        budget = jnp.minimum(queries.budget, most)
        answers = search(
            queries._replace(first=so_far.bound, budget=budget, wanted=wanted),
            horizon=horizon,
            lanes=lanes,
            team=team,
            split=split,
        )
        return Answers(
            found=so_far.found | answers.found,
            gave_up=answers.gave_up,
            bound=jnp.where(wanted, answers.bound, so_far.bound),
            expansions=so_far.expansions + answers.expansions,
            paths=jnp.where(wanted, answers.paths, so_far.paths),
        ), None

    efforts = (
        jnp.array([1, _TEAM]),
        jnp.array([0, _SPLIT]),
        jnp.array([_SOON, np.iinfo(np.int32).max]),
    )
    return jax.lax.scan(go_on, unknown, efforts)[0]


def _halves(answers: Answers) -> tuple[Answers, Answers]:
    B = answers.found.shape[0] // 2
    return (
        jax.tree.map(lambda leaf: leaf[..., :B], answers),
        jax.tree.map(lambda leaf: leaf[..., B:], answers),
    )


def _join(left: Queries, right: Queries) -> Queries:
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y], axis=-1), left, right)


def _pairs(
    batch: Instance, boards: Boards, wanted: jax.Array, horizon: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """What the pairs of agents prove.

    Returns:
        int16 (P, B) least costs of both (0 where unknown), int16 (B,) the largest least makespan,
        bool (P, B) whether a plan of that cost without waits exists or may exist, and bool (B,)
        whether some pair has no plan at all.
    """
    B, K = batch.agent_mask.shape
    i, j = (np.array(side) for side in zip(*pairs_of(K), strict=True))
    P = len(i)
    exist = (batch.agent_mask[:, i] & batch.agent_mask[:, j] & wanted[:, None]).T

    def of_pairs(leaf: jax.Array) -> jax.Array:
        both = jnp.stack([leaf[:, i], leaf[:, j]], axis=2)
        return both.swapaxes(0, 1).reshape(P * B, *both.shape[2:])

    def of_agents(leaf: jax.Array) -> jax.Array:
        return jnp.stack([leaf[i], leaf[j]]).reshape(2, P * B)

    pairs = Boards(
        jnp.tile(boards.free, P),
        *(of_agents(leaf) for leaf in (boards.starts, boards.goals, boards.alone)),
    )
    sure = undisturbed(pairs, exist.reshape(-1), horizon).reshape(P, B)
    optima = pair_optima(
        jnp.tile(~batch.holes, (P, 1, 1)),
        of_pairs(batch.starts),
        of_pairs(batch.goals),
        (exist & ~sure).reshape(-1),
        horizon,
    )
    optima = jax.tree.map(lambda leaf: leaf.reshape(P, B), optima)
    known = exist & ~sure & optima.known & optima.solvable
    both = pairs.alone.reshape(2, P, B)
    cost = jnp.where(sure, both[0] + both[1], jnp.where(known, optima.sum_of_costs, 0))
    makespan = jnp.where(sure, jnp.max(both, axis=0), jnp.where(known, optima.makespan, 0))
    return (
        cost.astype(jnp.int16),
        jnp.max(makespan, axis=0).astype(jnp.int16),
        optima.waitless | ~known,
        jnp.any(exist & ~sure & ~optima.solvable, axis=0),
    )


def _without_waits(pair_costs: jax.Array, alone: jax.Array, waitless: jax.Array) -> jax.Array:
    """Lower bounds on the cost of pairs that do not wait: their excess is even."""
    i, j = (np.array(side) for side in zip(*pairs_of(alone.shape[0]), strict=True))
    excess = pair_costs - (alone[i] + alone[j])
    odd = excess % 2 == 1
    more = jnp.where(odd, 1, jnp.where(waitless | (excess == 0), 0, 2)).astype(jnp.int16)
    return jnp.where(pair_costs > 0, pair_costs + more, 0).astype(jnp.int16)
