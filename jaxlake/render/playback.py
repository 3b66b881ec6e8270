"""The content of a picture: a board, the played steps of a plan, and the failure that ends it.

The verifier returns the first failure, its step and the lowest agent; this module finds all agents
and cells involved.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jaxlake.board.dynamics import ACTION_DELTAS, Action
from jaxlake.board.instance import Instance, check_instance
from jaxlake.errors import did_you_mean
from jaxlake.render.palette import AGENT_COLOURS

MAX_AGENTS: Final = len(AGENT_COLOURS)

Cell = tuple[int, int]


@dataclass(frozen=True)
class Board:
    """A board without padding, with K agents."""

    holes: NDArray[np.bool_]  # (n, n)
    starts: NDArray[np.int64]  # (K, 2), rows and columns
    goals: NDArray[np.int64]  # (K, 2)


@dataclass(frozen=True)
class Fault:
    """The first failure of a plan."""

    kind: str
    time: int | None
    agents: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]  # agents that fail together, such as the two of a swap
    cells: tuple[Cell, ...]  # last cell of each agent in the groups; before the step if off board

    @property
    def in_a_step(self) -> bool:
        """Whether it happens during a step, not before the first or after the last one."""
        return self.kind not in ("parse_error", "goal_not_reached") and self.time is not None


@dataclass(frozen=True)
class Playback:
    """A board and the T displayed steps of a plan, if any."""

    board: Board
    actions: NDArray[np.int64] | None  # (T, K), up to the failing step
    states: NDArray[np.int64]  # (T + 1, K, 2), positions, possibly off the board
    fault: Fault | None  # None for a plan without failure


def board_of_instance(instance: Instance) -> Board:
    """Return the board of an instance; raise `ValueError` unless 1 to 5 agents come first."""
    check_instance(instance)
    mask = np.asarray(instance.agent_mask)
    if mask.ndim != 1:
        raise ValueError(f"instance must be a single board, got a batch of shape {mask.shape[:-1]}")
    agents = int(mask.sum())
    if not 1 <= agents <= MAX_AGENTS or not mask[:agents].all():
        raise ValueError(
            f"agent_mask must have 1 to {MAX_AGENTS} agents in the first slots, got "
            f"{mask.astype(int).tolist()}"
        )
    size = int(instance.size)
    return Board(
        np.asarray(instance.holes)[:size, :size].astype(bool),
        np.asarray(instance.starts)[:agents].astype(np.int64),
        np.asarray(instance.goals)[:agents].astype(np.int64),
    )


def actions_of_agents(plan: Sequence[Sequence[str | int]], agents: int) -> NDArray[np.int64]:
    """Convert one action sequence per agent to numbers, int64 (T, K), padded with WAIT."""
    if len(plan) != agents:
        raise ValueError(f"plan must have {agents} agents, got {len(plan)}")
    actions = np.full((max(map(len, plan)), agents), Action.WAIT, dtype=np.int64)
    for k, moves in enumerate(plan):
        for t, move in enumerate(moves):
            try:
                actions[t, k] = Action[move] if isinstance(move, str) else Action(move)
            except (KeyError, ValueError):
                allowed = ", ".join(f"{action.name} ({action.value})" for action in Action)
                suggestion = did_you_mean(move, Action.__members__)
                raise ValueError(
                    f"step {t} of agent {k} must be one of {allowed}, got {move!r}{suggestion}"
                ) from None
    return actions


def play(
    board: Board,
    actions: ArrayLike | None,
    *,
    failure: str | None = None,
    agent: int | None = None,
    time: int | None = None,
) -> Playback:
    """Play a plan up to the failure found by the verifier.

    Args:
        board: the board.
        actions: int (T, K), or None. Invalid numbers do not move the agent.
        failure: the label of a `Failure`, or None.
        agent: the lowest agent involved; None or negative if unknown.
        time: the 0-based step of the failure; None or negative if unknown.
    """
    agents = len(board.starts)
    lowest = None if agent is None or agent < 0 else int(agent)
    step = None if time is None or time < 0 else int(time)
    visible = None if actions is None else np.asarray(actions, np.int64)
    breaks = failure not in (None, "parse_error", "goal_not_reached") and step is not None
    if visible is not None and breaks and step is not None:
        visible = visible[: step + 1]
    moves = np.zeros((0, agents, 2), np.int64)
    if visible is not None:
        valid = (visible >= 0) & (visible < len(ACTION_DELTAS))
        moves = ACTION_DELTAS[np.where(valid, visible, Action.WAIT)].astype(np.int64)
    states = np.concatenate([board.starts[None], board.starts + np.cumsum(moves, axis=0)])
    fault = None
    if failure is not None:
        groups: tuple[tuple[int, ...], ...] = ()
        if visible is not None and lowest is not None and (breaks or failure == "goal_not_reached"):
            groups = _groups(failure, board, states, visible, lowest)
        faulty = tuple(sorted({k for group in groups for k in group}))
        places = states[-2 if groups and failure == "off_board" else -1].tolist()
        cells = tuple((places[k][0], places[k][1]) for group in groups for k in group)
        fault = Fault(failure, step, faulty, groups, cells)
    return Playback(board, visible, states, fault)


def caption(playback: Playback) -> str | None:
    """Return a caption: the failure and its step, or the number of steps; None without a plan."""
    fault = playback.fault
    if fault is not None:
        words = [fault.kind.replace("_", " ")]
        if fault.in_a_step:
            words.append(f"step {fault.time}")
        return " · ".join(words)
    if playback.actions is None:
        return None
    steps = len(playback.actions)
    return f"{steps} step{'' if steps == 1 else 's'}"


def whereabouts(playback: Playback) -> str | None:
    """Return a description of the agents and cells of a failure, or None if they are unknown."""
    fault = playback.fault
    if fault is None or not fault.agents:
        return None
    cells = list(dict.fromkeys(fault.cells))
    if fault.kind == "swapping_conflict":
        cells.sort()
    places = _list([f"({r}, {c})" for r, c in cells])
    where = "between" if fault.kind == "swapping_conflict" and len(cells) == 2 else "at"
    agents = f"agent{'' if len(fault.agents) == 1 else 's'} {_list(list(map(str, fault.agents)))}"
    return f"{agents} {where} {places}"


def _groups(
    kind: str, board: Board, states: NDArray[np.int64], actions: NDArray[np.int64], lowest: int
) -> tuple[tuple[int, ...], ...]:
    """Return the groups of agents that fail together, including the lowest agent."""
    after = states[-1]
    outside = ((after < 0) | (after >= len(board.holes))).any(axis=1)
    if kind == "goal_not_reached":
        alone = (after != board.goals).any(axis=1)
    elif kind == "off_board":
        alone = outside | (actions[-1] < 0) | (actions[-1] >= len(ACTION_DELTAS))
    elif kind == "hole":
        inside = np.where(outside[:, None], 0, after)
        alone = ~outside & board.holes[inside[:, 0], inside[:, 1]]
    elif kind == "vertex_conflict":
        together = {tuple(np.flatnonzero((after == cell).all(axis=1)).tolist()) for cell in after}
        return tuple(sorted(group for group in together if len(group) > 1)) or ((lowest,),)
    else:
        before = states[-2]
        swaps = (
            (i, j)
            for i, j in combinations(range(len(after)), 2)
            if (after[i] == before[j]).all() and (after[j] == before[i]).all()
        )
        return tuple(swaps) or ((lowest,),)
    alone[lowest] = True
    return tuple((int(k),) for k in np.flatnonzero(alone))


def _list(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
