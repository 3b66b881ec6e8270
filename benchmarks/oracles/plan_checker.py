"""The plan checker executes a plan step by step and returns its first failure or its costs."""

from dataclasses import dataclass

from benchmarks.oracles.boards import MOVES, BoardLike, parse_board


@dataclass(frozen=True)
class PlanVerdict:
    """The first failure of a plan or its costs; the other fields are None."""

    failure: str | None
    agent: int | None
    time: int | None
    sum_of_costs: int | None
    makespan: int | None


def check_plan(grid: BoardLike, plan: list[list[int]]) -> PlanVerdict:
    """Execute a plan; return its first failure or its costs.

    Args:
        grid: The board.
        plan: One list per step, with one action number of `MOVES` per agent.

    Returns:
        The failure of the earliest step. Within a step, `off_board` precedes `hole`,
        `vertex_conflict` and `swapping_conflict`; `goal_not_reached` comes after all steps. The
        agent is the lowest-numbered one with this failure. If no failure occurs, the costs.
    """
    board = parse_board(grid)
    agents = range(len(board.starts))
    history = [list(board.starts)]
    for time, actions in enumerate(plan):
        cells = history[-1]
        next_cells = []
        for i in agents:
            dr, dc = MOVES[actions[i]]
            next_cells.append((cells[i][0] + dr, cells[i][1] + dc))
        is_inside = [0 <= r < board.size and 0 <= c < board.size for r, c in next_cells]
        pairs = [(i, j) for i in agents for j in agents if i < j]
        violations = [
            ("off_board", [i for i in agents if not is_inside[i]]),
            ("hole", [i for i in agents if is_inside[i] and next_cells[i] not in board.free]),
            ("vertex_conflict", [i for i, j in pairs if next_cells[i] == next_cells[j]]),
            (
                "swapping_conflict",
                [i for i, j in pairs if next_cells[i] == cells[j] and next_cells[j] == cells[i]],
            ),
        ]
        for kind, agents_involved in violations:
            if agents_involved:
                return PlanVerdict(kind, min(agents_involved), time, None, None)
        history.append(next_cells)
    for i in agents:
        if history[-1][i] != board.goals[i]:
            return PlanVerdict("goal_not_reached", i, len(plan), None, None)
    costs = [
        1 + max(t for t in range(len(history)) if history[t][i] != board.goals[i]) for i in agents
    ]
    return PlanVerdict(None, None, None, sum(costs), max(costs))


def count_waits_before_arrival(grid: BoardLike, plan: list[list[int]]) -> int:
    """Count the WAIT actions of a valid plan before the last arrival of the agent that waits."""
    board = parse_board(grid)
    waits = 0
    for i, start in enumerate(board.starts):
        cells = [start]
        for actions in plan:
            dr, dc = MOVES[actions[i]]
            cells.append((cells[-1][0] + dr, cells[-1][1] + dc))
        cost = 1 + max(t for t in range(len(cells)) if cells[t] != board.goals[i])
        waits += sum(actions[i] == 0 for actions in plan[:cost])
    return waits
