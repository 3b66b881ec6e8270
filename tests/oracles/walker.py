"""A plan walked step by step: its first failure, or its costs."""

from dataclasses import dataclass

from tests.oracles.boards import MOVES, read


@dataclass(frozen=True)
class Verdict:
    """What a plan does; failure is None for a valid plan, costs are None for any other."""

    failure: str | None
    agent: int | None
    time: int | None
    sum_of_costs: int | None
    makespan: int | None


def check(grid: list[str], plan: list[list[int]]) -> Verdict:
    """Walk a plan and name its first failure, or its costs."""
    board = read(grid)
    agents = range(len(board.starts))
    history = [list(board.starts)]
    for time, actions in enumerate(plan):
        here = history[-1]
        there = []
        for i in agents:
            dr, dc = MOVES[actions[i]]
            there.append((here[i][0] + dr, here[i][1] + dc))
        inside = [0 <= r < board.size and 0 <= c < board.size for r, c in there]
        pairs = [(i, j) for i in agents for j in agents if i < j]
        broken = [
            ("off_board", [i for i in agents if not inside[i]]),
            ("hole", [i for i in agents if inside[i] and there[i] not in board.free]),
            ("vertex_conflict", [i for i, j in pairs if there[i] == there[j]]),
            (
                "swapping_conflict",
                [i for i, j in pairs if there[i] == here[j] and there[j] == here[i]],
            ),
        ]
        for kind, involved in broken:
            if involved:
                return Verdict(kind, min(involved), time, None, None)
        history.append(there)
    for i in agents:
        if history[-1][i] != board.goals[i]:
            return Verdict("goal_not_reached", i, len(plan), None, None)
    costs = [
        1 + max(t for t in range(len(history)) if history[t][i] != board.goals[i]) for i in agents
    ]
    return Verdict(None, None, None, sum(costs), max(costs))


def waits_before_arrival(grid: list[str], plan: list[list[int]]) -> int:
    """Number of WAIT actions of a valid plan before the last arrival of the agent that waits."""
    board = read(grid)
    waits = 0
    for i, start in enumerate(board.starts):
        cells = [start]
        for actions in plan:
            dr, dc = MOVES[actions[i]]
            cells.append((cells[-1][0] + dr, cells[-1][1] + dc))
        cost = 1 + max(t for t in range(len(cells)) if cells[t] != board.goals[i])
        waits += sum(actions[i] == 0 for actions in plan[:cost])
    return waits
