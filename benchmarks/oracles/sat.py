"""Both optima by satisfiability: time-expanded formulas, solved by python-sat.

For each agent, time and cell a variable says that the agent is there. For each variable a clause of
the agent's walk says "then it is at one of these cells next". All other clauses on cells are
negative, so a model may say too much about where an agent is, never too little: any walk that
follows the variables from the start keeps them all. Walks are read from the model and left for the
caller to check with `walker.check`.

The sum of costs is encoded as in MDD-SAT (Surynek, Felner, Stern and Boyarski 2016): agent i, whose
individual distance is d_i, costs more than d_i + s if and only if it is not settled at that time.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pysat.solvers import Solver

from benchmarks.oracles.boards import (
    Board,
    GridBoard,
    GridCell,
    distances_alone,
    distances_to,
    neighbours,
    read,
)

SOLVER = "glucose4"
CONFLICTS = 2_000_000
"""Conflicts after which a formula is given up; unlike seconds, they are the same everywhere."""

LONGEST = 400
"""Steps beyond which neither search looks."""

Plan = list[list[int]]
_Clauses = list[list[int]]


class GaveUpError(RuntimeError):
    """The search spent its budget, which says nothing about the board."""


@dataclass(frozen=True)
class SatOptimum:
    """A proven optimum with a plan that attains it, one list of action numbers per step."""

    value: int
    plan: Plan
    needs_wait: bool | None = None


def sat_makespan(
    grid: Board, limit: int = LONGEST, conflicts: int = CONFLICTS
) -> SatOptimum | None:
    """Compute the least makespan: the first satisfiable horizon, from the longest distance on.

    The board must be solvable. Return None if no plan of at most `limit` steps exists.

    Raises:
        GaveUpError: One of the formulas took more conflicts than allowed.
    """
    board = read(grid)
    alone = distances_alone(board)
    if alone is None:
        return None
    for horizon in range(max(alone), limit + 1):
        formula = _Formula(board, [horizon] * len(alone))
        with Solver(name=SOLVER, bootstrap_with=formula.clauses) as solver:
            if _satisfiable(solver, [], conflicts):
                return SatOptimum(horizon, formula.plan(solver.get_model()))
    return None


def sat_sum_of_costs(
    grid: Board, limit: int = LONGEST, conflicts: int = CONFLICTS
) -> SatOptimum | None:
    """Compute the least sum of costs, and whether every plan that attains it has a wait.

    Only waits before an agent's last arrival count. The board must be solvable. Return None if no
    plan with a sum of costs of at most `limit` exists.

    Raises:
        GaveUpError: One of the formulas took more conflicts than allowed.
    """
    board = read(grid)
    alone = distances_alone(board)
    if alone is None:
        return None
    for excess in range(limit - sum(alone) + 1):
        formula = _Formula(board, [n + excess for n in alone])
        waits = formula.bound_costs(alone, excess)
        with Solver(name=SOLVER, bootstrap_with=formula.clauses) as solver:
            if _satisfiable(solver, [], conflicts):
                plan = formula.plan(solver.get_model())
                needs_wait = not _satisfiable(solver, [-waits], conflicts)
                if not needs_wait:
                    plan = formula.plan(solver.get_model())
                return SatOptimum(sum(alone) + excess, plan, needs_wait)
    return None


def _satisfiable(solver: Solver, assumptions: list[int], conflicts: int) -> bool:
    solver.conf_budget(conflicts)
    answer = solver.solve_limited(assumptions=assumptions)
    if answer is None:
        raise GaveUpError(f"a formula took more than {conflicts:,} conflicts")
    return bool(answer)


class _Formula:
    """Walks of all agents without conflicts, with agent i at its goal from step lengths[i] on."""

    def __init__(self, board: GridBoard, lengths: Sequence[int]) -> None:
        self.board = board
        self.lengths = lengths
        self.horizon = max(lengths)
        self.clauses: _Clauses = []
        self._variables = 0
        self.at = [self._cells(i) for i in range(len(lengths))]
        for layers in self.at:
            self.clauses += self._walk(layers)
        self._forbid_conflicts()

    def variable(self) -> int:
        self._variables += 1
        return self._variables

    def _cells(self, i: int) -> list[dict[GridCell, int]]:
        """Make, for each time, a variable for each cell from which agent i can be in time."""
        since = distances_to(self.board, self.board.starts[i])
        until = distances_to(self.board, self.board.goals[i])
        return [
            {
                cell: self.variable()
                for cell in since
                if since[cell] <= t and until[cell] <= max(0, self.lengths[i] - t)
            }
            for t in range(self.horizon + 1)
        ]

    def _walk(self, layers: list[dict[GridCell, int]]) -> Iterable[list[int]]:
        yield [*layers[0].values()]
        for layer, next_layer in itertools.pairwise(layers):
            for cell, variable in layer.items():
                following = [cell, *neighbours(self.board, cell)]
                yield [
                    -variable,
                    *(next_layer[target] for target in following if target in next_layer),
                ]

    def _forbid_conflicts(self) -> None:
        for i, first in enumerate(self.at):
            for two in self.at[:i]:
                for t in range(self.horizon + 1):
                    for cell in first[t].keys() & two[t].keys():
                        self.clauses.append([-first[t][cell], -two[t][cell]])
                for t in range(self.horizon):
                    for u in first[t].keys() & two[t + 1].keys():
                        for v in neighbours(self.board, u):
                            if v in first[t + 1] and v in two[t]:
                                moves = first[t][u], first[t + 1][v], two[t][v], two[t + 1][u]
                                self.clauses.append([-x for x in moves])

    def bound_costs(self, alone: Sequence[int], excess: int) -> int:
        """Bound the sum of costs by sum(alone) + excess; return the variable that allows waits."""
        waits = self.variable()
        late = []
        for i, layers in enumerate(self.at):
            goal = self.board.goals[i]
            # late[s]: the cost of agent i is above alone[i] + s.
            mine = [self.variable() for _ in range(excess)]
            late.append(mine)
            self.clauses += [[-more, less] for less, more in itertools.pairwise(mine)]
            for s, variable in enumerate(mine):
                for cell, arrival in layers[alone[i] + s].items():
                    if cell != goal:
                        self.clauses.append([variable, -arrival])
            for t in range(self.lengths[i]):
                for cell in layers[t].keys() & layers[t + 1].keys():
                    still = [waits, -layers[t][cell], -layers[t + 1][cell]]
                    if cell != goal:
                        self.clauses.append(still)
                    elif alone[i] <= t:
                        self.clauses.append([*still, -mine[t - alone[i]]])
        self._at_most(late, excess)
        return waits

    def _at_most(self, counts: list[list[int]], bound: int) -> None:
        """Let numbers, written as that many leading true variables, add up to `bound` at most."""
        total = counts[0]
        for count in counts[1:]:
            merged = [self.variable() for _ in range(bound)]
            for p in range(bound + 1):
                for q in range(bound + 1 - p):
                    if p + q > 0:
                        self.clauses.append(
                            [-x for x in (*total[p - 1 : p], *count[q - 1 : q])]
                            + [merged[p + q - 1]]
                        )
                if p > 0:
                    self.clauses.append([-total[p - 1], -count[bound - p]])
            total = merged

    def plan(self, model: Sequence[int]) -> Plan:
        """Return the walks of a model as actions."""
        true = {x for x in model if x > 0}
        columns = [self._actions(layers, true) for layers in self.at]
        return [list(actions) for actions in zip(*columns, strict=True)]

    def _actions(self, layers: list[dict[GridCell, int]], true: set[int]) -> list[int]:
        (cell,) = layers[0]
        actions = []
        for layer in layers[1:]:
            r, c = cell
            reached = [cell, (r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)]
            action = next(a for a, target in enumerate(reached) if layer.get(target) in true)
            actions.append(action)
            cell = reached[action]
        return actions
