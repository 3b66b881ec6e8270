"""Plain searches over the joint cells of all agents, for small boards only."""

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.oracles.boards import BoardLike, GridCell, distances_to, neighbours, parse_board

Joint = tuple[GridCell, ...]


def least_makespan(grid: BoardLike) -> int | None:
    """Compute the optimal makespan by breadth-first search; None if the board is unsolvable."""
    board = parse_board(grid)
    choices = {cell: [cell, *neighbours(board, cell)] for cell in board.free}
    seen_cells = {board.starts}
    frontier = [board.starts]
    time = 0
    while frontier:
        if board.goals in seen_cells:
            return time
        time += 1
        next_frontier = []
        for cells in frontier:
            for next_cells in _joint_moves(cells, [choices[cell] for cell in cells]):
                if next_cells not in seen_cells:
                    seen_cells.add(next_cells)
                    next_frontier.append(next_cells)
        frontier = next_frontier
    return None


def least_sum_of_costs(grid: BoardLike) -> tuple[int, bool] | None:
    """Compute the optimal sum of costs and whether every optimal plan has a wait.

    This is A* over (cells, retired agents), ordered by cost, then by the number of waits. An agent
    can retire at its goal at no cost and then stays there; each earlier step costs one.
    Return None if no plan exists.
    """
    board = parse_board(grid)
    agents = range(len(board.starts))
    to_goal = [distances_to(board, goal) for goal in board.goals]
    if any(board.starts[i] not in to_goal[i] for i in agents):
        return None
    choices = {cell: [cell, *neighbours(board, cell)] for cell in board.free}

    def bound(cells: Joint, retired: int) -> int:
        return sum(to_goal[i][cells[i]] for i in agents if not retired >> i & 1)

    all_retired = (1 << len(board.starts)) - 1
    start = (board.starts, 0)
    best_values = {start: (0, 0)}
    queue = [(bound(*start), 0, 0, start)]
    while queue:
        _, waits, cost, state = heapq.heappop(queue)
        if (cost, waits) > best_values[state]:
            continue
        cells, retired = state
        if retired == all_retired:
            return cost, waits > 0
        movers = [i for i in agents if not retired >> i & 1]
        successors = [
            ((cells, retired | 1 << i), (cost, waits)) for i in movers if cells[i] == board.goals[i]
        ]
        options = [[cells[i]] if retired >> i & 1 else choices[cells[i]] for i in agents]
        for next_cells in _joint_moves(cells, options):
            num_stationary = sum(next_cells[i] == cells[i] for i in movers)
            successors.append(((next_cells, retired), (cost + len(movers), waits + num_stationary)))
        for successor, value in successors:
            if successor not in best_values or value < best_values[successor]:
                best_values[successor] = value
                priority = value[0] + bound(*successor)
                heapq.heappush(queue, (priority, value[1], value[0], successor))
    return None


def arrival_times(grid: BoardLike, max_time: int) -> set[tuple[int, ...]]:
    """Return all vectors of arrival times of plans with at most `max_time` steps.

    This is a breadth-first search over (cells, retirement times). An agent at its goal can retire
    and then stays there.
    """
    board = parse_board(grid)
    agents = range(len(board.starts))
    choices = {cell: [cell, *neighbours(board, cell)] for cell in board.free}
    frontier: set[Any] = {(board.starts, (None,) * len(board.starts))}  # cells, arrivals
    arrivals: set[tuple[int, ...]] = set()
    for time in range(max_time + 1):
        for i in agents:
            frontier |= {
                (cells, (*times[:i], time, *times[i + 1 :]))
                for cells, times in frontier
                if times[i] is None and cells[i] == board.goals[i]
            }
        arrivals |= {times for _, times in frontier if None not in times}
        frontier = {
            (next_cells, times)
            for cells, times in frontier
            for next_cells in _joint_moves(
                cells, [choices[cells[i]] if times[i] is None else [cells[i]] for i in agents]
            )
        }
    return arrivals


def _joint_moves(cells: Joint, choices: Sequence[Sequence[GridCell]]) -> Iterator[Joint]:
    """Yield every conflict-free choice of one cell per agent."""

    def extend(next_cells: Joint) -> Iterator[Joint]:
        i = len(next_cells)
        if i == len(cells):
            yield next_cells
            return
        for cell in choices[i]:
            if cell in next_cells:
                continue
            if any(cell == cells[j] and next_cells[j] == cells[i] for j in range(i)):
                continue
            yield from extend((*next_cells, cell))

    return extend(())
