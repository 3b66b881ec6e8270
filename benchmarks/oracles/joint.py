"""Searches over the joint cells of all agents: simple enough to trust, for small boards only."""

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.oracles.boards import Board, GridCell, distances_to, neighbours, read

Joint = tuple[GridCell, ...]


def least_makespan(grid: Board) -> int | None:
    """Search breadth first over joint cells; None if the goals can't be reached together."""
    board = read(grid)
    choices = {cell: [cell, *neighbours(board, cell)] for cell in board.free}
    reached = {board.starts}
    frontier = [board.starts]
    time = 0
    while frontier:
        if board.goals in reached:
            return time
        time += 1
        following = []
        for cells in frontier:
            for moved in _joint_moves(cells, [choices[cell] for cell in cells]):
                if moved not in reached:
                    reached.add(moved)
                    following.append(moved)
        frontier = following
    return None


def least_sum_of_costs(grid: Board) -> tuple[int, bool] | None:
    """Compute the least sum of costs and whether every plan that attains it has a wait.

    This is A* over (cells, retired agents), ordered by cost, then by the number of waits. An agent
    may retire at its goal, for nothing, and then stays; before that each of its steps costs one.
    Return None if no plan exists.
    """
    board = read(grid)
    agents = range(len(board.starts))
    to_goal = [distances_to(board, goal) for goal in board.goals]
    if any(board.starts[i] not in to_goal[i] for i in agents):
        return None
    choices = {cell: [cell, *neighbours(board, cell)] for cell in board.free}

    def bound(cells: Joint, retired: int) -> int:
        return sum(to_goal[i][cells[i]] for i in agents if not retired >> i & 1)

    everyone = (1 << len(board.starts)) - 1
    first = (board.starts, 0)
    best = {first: (0, 0)}
    queue = [(bound(*first), 0, 0, first)]
    while queue:
        _, waits, cost, state = heapq.heappop(queue)
        if (cost, waits) > best[state]:
            continue
        cells, retired = state
        if retired == everyone:
            return cost, waits > 0
        active = [i for i in agents if not retired >> i & 1]
        following = [
            ((cells, retired | 1 << i), (cost, waits)) for i in active if cells[i] == board.goals[i]
        ]
        allowed = [[cells[i]] if retired >> i & 1 else choices[cells[i]] for i in agents]
        for moved in _joint_moves(cells, allowed):
            still = sum(moved[i] == cells[i] for i in active)
            following.append(((moved, retired), (cost + len(active), waits + still)))
        for successor, value in following:
            if successor not in best or value < best[successor]:
                best[successor] = value
                total = value[0] + bound(*successor)
                heapq.heappush(queue, (total, value[1], value[0], successor))
    return None


def arrival_times(grid: Board, last: int) -> set[tuple[int, ...]]:
    """List the arrivals of all agents that plans of at most `last` steps have.

    This is a breadth-first search over (cells, times at which agents retired). An agent that
    stands at its goal may retire, and then stays.
    """
    board = read(grid)
    agents = range(len(board.starts))
    choices = {cell: [cell, *neighbours(board, cell)] for cell in board.free}
    frontier: set[Any] = {(board.starts, (None,) * len(board.starts))}  # cells, arrivals
    arrivals: set[tuple[int, ...]] = set()
    for time in range(last + 1):
        for i in agents:
            frontier |= {
                (cells, (*times[:i], time, *times[i + 1 :]))
                for cells, times in frontier
                if times[i] is None and cells[i] == board.goals[i]
            }
        arrivals |= {times for _, times in frontier if None not in times}
        frontier = {
            (moved, times)
            for cells, times in frontier
            for moved in _joint_moves(
                cells, [choices[cells[i]] if times[i] is None else [cells[i]] for i in agents]
            )
        }
    return arrivals


def _joint_moves(cells: Joint, choices: Sequence[Sequence[GridCell]]) -> Iterator[Joint]:
    """Yield every way to choose one of its cells for each agent without a conflict."""

    def extend(moved: Joint) -> Iterator[Joint]:
        i = len(moved)
        if i == len(cells):
            yield moved
            return
        for cell in choices[i]:
            if cell in moved:
                continue
            if any(cell == cells[j] and moved[j] == cells[i] for j in range(i)):
                continue
            yield from extend((*moved, cell))

    return extend(())
