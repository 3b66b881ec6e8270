"""Plans played step by step: which share of the agents ends at its goal."""

from benchmarks.recomputed_study.comparison import Object, mean

MOVES = {"UP": (-1, 0), "DOWN": (1, 0), "LEFT": (0, -1), "RIGHT": (0, 1), "WAIT": (0, 0)}
STARTS, GOALS = "SsABC", "Ggabc"
"""Symbols of agents 0 to 4 on a board."""


def individual(episodes: list[Object]) -> float:
    """Play all plans, and return the mean share of agents that end at their goals."""
    return mean([_share_at_goal(one) for one in episodes])


def _share_at_goal(episode: Object) -> float:
    """Play a plan up to the step that breaks a rule; an answer that can't be read moves nobody."""
    if episode["plan"] is None:
        return 0.0
    places = {
        symbol: (row, column)
        for row, line in enumerate(episode["grid"])
        for column, symbol in enumerate(line.split())
    }
    broken = episode["failure"] not in (None, "goal_not_reached")
    arrived = 0
    for agent, moves in enumerate(episode["plan"]):
        row, column = places[STARTS[agent]]
        for move in moves[: episode["time"] if broken else None]:
            down, right = MOVES[move]
            row, column = row + down, column + right
        arrived += places[GOALS[agent]] == (row, column)
    return arrived / len(episode["plan"])
