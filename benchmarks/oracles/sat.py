"""Optimal makespan and sum of costs by SAT: time-expanded formulas, solved by python-sat.

A variable per agent, time and cell means that the agent is there. For each variable, a clause of
the agent's walk requires one of the adjacent cells at the next time. All other clauses on cells are
negative. A model may therefore place an agent in several cells at once, but every walk that follows
true variables from the start satisfies all clauses. Callers check the walks with `check_plan`.

The sum of costs is encoded as in MDD-SAT (Surynek, Felner, Stern and Boyarski 2016): agent i with
the individual distance d_i costs more than d_i + s if and only if it is not settled at that time.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pysat.solvers import Solver

from benchmarks.oracles.boards import (
    BoardLike,
    GridCell,
    ParsedBoard,
    distances_to,
    neighbours,
    parse_board,
    solo_distances,
)

SOLVER = "glucose4"
CONFLICTS = 2_000_000
"""Conflicts after which a formula is given up; unlike seconds, independent of the machine."""

MAX_STEPS = 400
"""Maximum number of steps of a plan."""

Plan = list[list[int]]
_Clauses = list[list[int]]


class GaveUpError(RuntimeError):
    """The search exhausted its budget, which says nothing about the board."""


@dataclass(frozen=True)
class SatOptimum:
    """A proven optimum with a plan that attains it, one list of action numbers per step."""

    value: int
    plan: Plan
    needs_wait: bool | None = None


def sat_makespan(
    grid: BoardLike, max_steps: int = MAX_STEPS, conflicts: int = CONFLICTS
) -> SatOptimum | None:
    """Compute the optimal makespan: the first satisfiable horizon from the longest distance on.

    The board must be solvable. Return None if no plan of at most `max_steps` steps exists.

    Raises:
        GaveUpError: One of the formulas took more conflicts than allowed.
    """
    board = parse_board(grid)
    distances = solo_distances(board)
    if distances is None:
        return None
    for horizon in range(max(distances), max_steps + 1):
        formula = _Formula(board, [horizon] * len(distances))
        with Solver(name=SOLVER, bootstrap_with=formula.clauses) as solver:
            if _is_satisfiable(solver, [], conflicts):
                return SatOptimum(horizon, formula.read_plan(solver.get_model()))
    return None


def sat_sum_of_costs(
    grid: BoardLike, max_cost: int = MAX_STEPS, conflicts: int = CONFLICTS
) -> SatOptimum | None:
    """Compute the optimal sum of costs, and whether every optimal plan has a wait.

    Only waits before an agent's last arrival count. The board must be solvable. Return None if no
    plan with a sum of costs of at most `max_cost` exists.

    Raises:
        GaveUpError: One of the formulas took more conflicts than allowed.
    """
    board = parse_board(grid)
    distances = solo_distances(board)
    if distances is None:
        return None
    for excess in range(max_cost - sum(distances) + 1):
        formula = _Formula(board, [n + excess for n in distances])
        waits = formula.bound_costs(distances, excess)
        with Solver(name=SOLVER, bootstrap_with=formula.clauses) as solver:
            if _is_satisfiable(solver, [], conflicts):
                plan = formula.read_plan(solver.get_model())
                needs_wait = not _is_satisfiable(solver, [-waits], conflicts)
                if not needs_wait:
                    plan = formula.read_plan(solver.get_model())
                return SatOptimum(sum(distances) + excess, plan, needs_wait)
    return None


def _is_satisfiable(solver: Solver, assumptions: list[int], conflicts: int) -> bool:
    solver.conf_budget(conflicts)
    answer = solver.solve_limited(assumptions=assumptions)
    if answer is None:
        raise GaveUpError(f"a formula took more than {conflicts:,} conflicts")
    return bool(answer)


class _Formula:
    """Walks of all agents without conflicts, with agent i at its goal from step lengths[i] on."""

    def __init__(self, board: ParsedBoard, lengths: Sequence[int]) -> None:
        self.board = board
        self.lengths = lengths
        self.horizon = max(lengths)
        self.clauses: _Clauses = []
        self._variables = 0
        self.at = [self._make_cell_variables(i) for i in range(len(lengths))]
        for layers in self.at:
            self.clauses += self._make_walk_clauses(layers)
        self._forbid_conflicts()

    def make_variable(self) -> int:
        self._variables += 1
        return self._variables

    def _make_cell_variables(self, i: int) -> list[dict[GridCell, int]]:
        """Make a variable per time and per cell from which agent i can still arrive in time."""
        from_start = distances_to(self.board, self.board.starts[i])
        to_goal = distances_to(self.board, self.board.goals[i])
        return [
            {
                cell: self.make_variable()
                for cell in from_start
                if from_start[cell] <= t and to_goal[cell] <= max(0, self.lengths[i] - t)
            }
            for t in range(self.horizon + 1)
        ]

    def _make_walk_clauses(self, layers: list[dict[GridCell, int]]) -> Iterable[list[int]]:
        yield [*layers[0].values()]
        for layer, next_layer in itertools.pairwise(layers):
            for cell, variable in layer.items():
                next_cells = [cell, *neighbours(self.board, cell)]
                yield [
                    -variable,
                    *(next_layer[target] for target in next_cells if target in next_layer),
                ]

    def _forbid_conflicts(self) -> None:
        for i, layers_1 in enumerate(self.at):
            for layers_2 in self.at[:i]:
                for t in range(self.horizon + 1):
                    for cell in layers_1[t].keys() & layers_2[t].keys():
                        self.clauses.append([-layers_1[t][cell], -layers_2[t][cell]])
                for t in range(self.horizon):
                    for cell_u in layers_1[t].keys() & layers_2[t + 1].keys():
                        for cell_v in neighbours(self.board, cell_u):
                            if cell_v in layers_1[t + 1] and cell_v in layers_2[t]:
                                moves = (
                                    layers_1[t][cell_u],
                                    layers_1[t + 1][cell_v],
                                    layers_2[t][cell_v],
                                    layers_2[t + 1][cell_u],
                                )
                                self.clauses.append([-x for x in moves])

    def bound_costs(self, distances: Sequence[int], excess: int) -> int:
        """Bound the costs by sum(distances) + excess; return the variable that allows waits."""
        waits = self.make_variable()
        variables_by_agent = []
        for i, layers in enumerate(self.at):
            goal = self.board.goals[i]
            # late_variables[s]: the cost of agent i is above distances[i] + s.
            late_variables = [self.make_variable() for _ in range(excess)]
            variables_by_agent.append(late_variables)
            self.clauses += [[-b, a] for a, b in itertools.pairwise(late_variables)]
            for s, variable in enumerate(late_variables):
                for cell, arrival in layers[distances[i] + s].items():
                    if cell != goal:
                        self.clauses.append([variable, -arrival])
            for t in range(self.lengths[i]):
                for cell in layers[t].keys() & layers[t + 1].keys():
                    wait_clause = [waits, -layers[t][cell], -layers[t + 1][cell]]
                    if cell != goal:
                        self.clauses.append(wait_clause)
                    elif distances[i] <= t:
                        self.clauses.append([*wait_clause, -late_variables[t - distances[i]]])
        self._bound_sum(variables_by_agent, excess)
        return waits

    def _bound_sum(self, counts: list[list[int]], bound: int) -> None:
        """Bound the sum of numbers in unary: a number is its count of leading true variables."""
        total = counts[0]
        for count in counts[1:]:
            sum_variables = [self.make_variable() for _ in range(bound)]
            for p in range(bound + 1):
                for q in range(bound + 1 - p):
                    if p + q > 0:
                        self.clauses.append(
                            [-x for x in (*total[p - 1 : p], *count[q - 1 : q])]
                            + [sum_variables[p + q - 1]]
                        )
                if p > 0:
                    self.clauses.append([-total[p - 1], -count[bound - p]])
            total = sum_variables

    def read_plan(self, model: Sequence[int]) -> Plan:
        """Return the walks of a model as actions."""
        variables = {x for x in model if x > 0}
        columns = [self._read_actions(layers, variables) for layers in self.at]
        return [list(actions) for actions in zip(*columns, strict=True)]

    def _read_actions(self, layers: list[dict[GridCell, int]], model: set[int]) -> list[int]:
        (cell,) = layers[0]
        actions = []
        for layer in layers[1:]:
            r, c = cell
            neighbourhood = [cell, (r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)]
            action = next(a for a, target in enumerate(neighbourhood) if layer.get(target) in model)
            actions.append(action)
            cell = neighbourhood[action]
        return actions
