"""Independent oracles in plain Python: what the lake's JAX code is compared with.

Nothing here imports jaxlake. Boards are grids in the published symbols, plans are lists of steps,
a step is a list of action numbers, one an agent. `tests/jaxlake/test_solver.py` compares the solver
with them on as many boards as the environment variable JAXLAKE_ORACLE_BOARDS says.
"""

import heapq
import random
from collections import deque
from dataclasses import dataclass

MOVES = {0: (0, 0), 1: (-1, 0), 2: (1, 0), 3: (0, -1), 4: (0, 1)}
STARTS, GOALS = "SsABC", "Ggabc"
Cell = tuple[int, int]


@dataclass(frozen=True)
class Board:
    """A grid read cell by cell: `free` holds the cells that are no holes."""

    size: int
    free: frozenset[Cell]
    starts: tuple[Cell, ...]
    goals: tuple[Cell, ...]


def read(grid: list[str]) -> Board:
    """Read a grid of one letter a cell, separated by blanks."""
    letters = {(r, c): x for r, row in enumerate(grid) for c, x in enumerate(row.split(" "))}
    at = {x: cell for cell, x in letters.items() if x not in "FH"}
    k = len(at) // 2
    return Board(
        size=len(grid),
        free=frozenset(cell for cell, x in letters.items() if x != "H"),
        starts=tuple(at[x] for x in STARTS[:k]),
        goals=tuple(at[x] for x in GOALS[:k]),
    )


def random_grid(rng: random.Random, size: int, hole_ratio: float, agents: int = 2) -> list[str]:
    """A random grid with floor(hole_ratio * size**2) holes, fewer if agents need room."""
    cells = [(r, c) for r in range(size) for c in range(size)]
    holes = min(int(hole_ratio * len(cells) + 1e-9), len(cells) - 2 * agents)
    rng.shuffle(cells)
    letters = dict.fromkeys(cells, "F") | dict.fromkeys(cells[:holes], "H")
    for i in range(agents):
        letters[cells[holes + 2 * i]] = STARTS[i]
        letters[cells[holes + 2 * i + 1]] = GOALS[i]
    return [" ".join(letters[r, c] for c in range(size)) for r in range(size)]


def distances_to(board: Board, goal: Cell) -> dict[Cell, int]:
    """Breadth-first distances from every cell that can reach the goal."""
    steps = {goal: 0}
    queue = deque([goal])
    while queue:
        r, c = queue.popleft()
        for dr, dc in MOVES.values():
            cell = (r + dr, c + dc)
            if cell in board.free and cell not in steps:
                steps[cell] = steps[r, c] + 1
                queue.append(cell)
    return steps


def sum_of_distances(grid: list[str]) -> int | None:
    """Sum over the agents of the steps each would need alone; None if one can't get there."""
    board = read(grid)
    pairs = zip(board.starts, board.goals, strict=True)
    steps = [distances_to(board, goal).get(start) for start, goal in pairs]
    return None if None in steps else sum(steps)


def least_makespan(grid: list[str]) -> int | None:
    """Breadth-first search over pairs of cells; None if the goals can't be reached together."""
    board = read(grid)
    reached = {board.starts}
    frontier = [board.starts]
    time = 0
    while frontier:
        if board.goals in reached:
            return time
        time += 1
        following = []
        for p, q in frontier:
            for dp in MOVES.values():
                p2 = (p[0] + dp[0], p[1] + dp[1])
                if p2 not in board.free:
                    continue
                for dq in MOVES.values():
                    q2 = (q[0] + dq[0], q[1] + dq[1])
                    swap = p2 == q and q2 == p
                    if q2 in board.free and p2 != q2 and not swap and (p2, q2) not in reached:
                        reached.add((p2, q2))
                        following.append((p2, q2))
        frontier = following
    return None


def least_sum_of_costs(grid: list[str]) -> tuple[int, bool] | None:
    """Least sum of costs of two agents and whether every plan that attains it has a wait.

    A* over (cell, cell, retired, retired), ordered by cost, then by the number of waits. An agent
    may retire at its goal, for nothing, and then stays; before that each of its steps costs one.
    Returns None if there is no plan.
    """
    board = read(grid)
    to_goal = [distances_to(board, goal) for goal in board.goals]
    if any(start not in steps for start, steps in zip(board.starts, to_goal, strict=True)):
        return None

    def bound(state: tuple) -> int:
        return sum(0 if state[2 + i] else to_goal[i][state[i]] for i in (0, 1))

    first = (*board.starts, False, False)
    best = {first: (0, 0)}
    queue = [(bound(first), 0, 0, first)]
    while queue:
        _, waits, cost, state = heapq.heappop(queue)
        if (cost, waits) > best[state]:
            continue
        p, q, p_done, q_done = state
        if p_done and q_done:
            return cost, waits > 0
        following = []
        if p == board.goals[0] and not p_done:
            following.append((p, q, True, q_done, 0, 0))
        if q == board.goals[1] and not q_done:
            following.append((p, q, p_done, True, 0, 0))
        for a, (dr, dc) in MOVES.items():
            p2 = (p[0] + dr, p[1] + dc)
            if p2 not in to_goal[0] or (p_done and a):
                continue
            for b, (er, ec) in MOVES.items():
                q2 = (q[0] + er, q[1] + ec)
                if q2 not in to_goal[1] or (q_done and b):
                    continue
                if p2 == q2 or (p2 == q and q2 == p):
                    continue
                step_waits = (a == 0 and not p_done) + (b == 0 and not q_done)
                step_cost = (not p_done) + (not q_done)
                following.append((p2, q2, p_done, q_done, step_cost, step_waits))
        for *parts, more_cost, more_waits in following:
            successor = tuple(parts)
            value = (cost + more_cost, waits + more_waits)
            if successor not in best or value < best[successor]:
                best[successor] = value
                total = value[0] + bound(successor)
                heapq.heappush(queue, (total, value[1], value[0], successor))
    return None


def cbs_sum_of_costs(grid: list[str], seconds: float = 10.0) -> int | None:
    """Least sum of costs by Conflict-Based Search (w9-pathfinding, C++).

    Ask only for solvable boards: CBS never ends on the others. None means that CBS gave up, which
    says nothing about the board.
    """
    from w9_pathfinding.envs import Grid
    from w9_pathfinding.mapf import CBS

    board = read(grid)
    weights = [
        [1 if (r, c) in board.free else -1 for c in range(board.size)] for r in range(board.size)
    ]
    environment = Grid(weights, edge_collision=True)
    starts = [(c, r) for r, c in board.starts]
    goals = [(c, r) for r, c in board.goals]
    try:
        paths = CBS(environment).mapf(starts, goals, max_length=400, max_time=seconds)
    except RuntimeError:
        return None
    if not paths:
        return None
    total = 0
    for path, goal in zip(paths, goals, strict=True):
        cells = [tuple(cell) for cell in path]
        while len(cells) > 1 and cells[-2:] == [goal, goal]:
            cells.pop()
        total += len(cells) - 1
    return total


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
