"""Playbacks of plans: a board, the displayed steps, and the failure that ends them.

The verifier returns the first failure, its step and the lowest agent involved. This module finds
all agents and cells involved.
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
class UnpaddedBoard:
    """A board without padding, with K agents."""

    holes: NDArray[np.bool_]  # (n, n)
    starts: NDArray[np.int64]  # (K, 2), rows and columns
    goals: NDArray[np.int64]  # (K, 2)


@dataclass(frozen=True)
class Fault:
    """The first failure of a plan, with all agents and cells involved."""

    kind: str
    time: int | None
    agents: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]  # agents that fail together, such as the two of a swap
    cells: tuple[Cell, ...]  # last cell of each agent in the groups; before the step if off board

    @property
    def is_during_step(self) -> bool:
        """Whether the failure happens during a step, not before the first or after the last."""
        return self.kind not in ("parse_error", "goal_not_reached") and self.time is not None


@dataclass(frozen=True)
class Playback:
    """A board and the T displayed steps of a plan, if any."""

    board: UnpaddedBoard
    actions: NDArray[np.int64] | None  # (T, K), up to the failing step
    states: NDArray[np.int64]  # (T + 1, K, 2), positions, possibly off the board
    fault: Fault | None  # None for a plan without failure


def make_board(instance: Instance) -> UnpaddedBoard:
    """Return the board of an instance; raise `ValueError` unless 1 to 5 agents come first."""
    check_instance(instance)
    mask = np.asarray(instance.agent_mask)
    if mask.ndim != 1:
        raise ValueError(f"instance must be a single board, got a batch of shape {mask.shape[:-1]}")
    num_agents = int(mask.sum())
    if not 1 <= num_agents <= MAX_AGENTS or not mask[:num_agents].all():
        raise ValueError(
            f"agent_mask must have 1 to {MAX_AGENTS} agents in the first slots, got "
            f"{mask.astype(int).tolist()}"
        )
    size = int(instance.size)
    return UnpaddedBoard(
        np.asarray(instance.holes)[:size, :size].astype(bool),
        np.asarray(instance.starts)[:num_agents].astype(np.int64),
        np.asarray(instance.goals)[:num_agents].astype(np.int64),
    )


def make_action_array(plan: Sequence[Sequence[str | int]], num_agents: int) -> NDArray[np.int64]:
    """Convert one action sequence per agent to numbers, int64 (T, K), padded with WAIT."""
    if len(plan) != num_agents:
        raise ValueError(f"plan must have {num_agents} agents, got {len(plan)}")
    actions = np.full((max(map(len, plan)), num_agents), Action.WAIT, dtype=np.int64)
    for k, sequence in enumerate(plan):
        for t, action in enumerate(sequence):
            try:
                actions[t, k] = Action[action] if isinstance(action, str) else Action(action)
            except (KeyError, ValueError):
                allowed_actions = ", ".join(f"{member.name} ({member.value})" for member in Action)
                hint = did_you_mean(action, Action.__members__)
                problem = f"must be one of {allowed_actions}, got {action!r}{hint}"
                raise ValueError(f"step {t} of agent {k} {problem}") from None
    return actions


def play(
    board: UnpaddedBoard,
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
    lowest_agent = None if agent is None or agent < 0 else int(agent)
    fault_time = None if time is None or time < 0 else int(time)
    is_in_step = failure not in (None, "parse_error", "goal_not_reached") and fault_time is not None
    steps = None if actions is None else np.asarray(actions, np.int64)
    moves = np.zeros((0, len(board.starts), 2), np.int64)
    if steps is not None:
        if is_in_step and fault_time is not None:
            steps = steps[: fault_time + 1]
        is_valid = (steps >= 0) & (steps < len(ACTION_DELTAS))
        moves = ACTION_DELTAS[np.where(is_valid, steps, Action.WAIT)].astype(np.int64)
    states = np.concatenate([board.starts[None], board.starts + np.cumsum(moves, axis=0)])
    if failure is None:
        return Playback(board, steps, states, None)
    groups: tuple[tuple[int, ...], ...] = ()
    has_location = is_in_step or failure == "goal_not_reached"
    if steps is not None and lowest_agent is not None and has_location:
        groups = _find_groups(failure, board, states, steps, lowest_agent)
    agents = tuple(sorted({k for group in groups for k in group}))
    positions = states[-2 if groups and failure == "off_board" else -1].tolist()
    cells = tuple((positions[k][0], positions[k][1]) for group in groups for k in group)
    return Playback(board, steps, states, Fault(failure, fault_time, agents, groups, cells))


def make_caption(playback: Playback) -> str | None:
    """Return a caption: the failure and its step, or the number of steps; None without a plan."""
    fault = playback.fault
    if fault is not None:
        failure = fault.kind.replace("_", " ")
        return f"{failure} · step {fault.time}" if fault.is_during_step else failure
    if playback.actions is None:
        return None
    num_steps = len(playback.actions)
    return f"{num_steps} step{'' if num_steps == 1 else 's'}"


def describe_fault_location(playback: Playback) -> str | None:
    """Return the agents and cells of a failure as text, or None if they are unknown."""
    fault = playback.fault
    if fault is None or not fault.agents:
        return None
    cells = list(dict.fromkeys(fault.cells))
    if fault.kind == "swapping_conflict":
        cells.sort()
    preposition = "between" if fault.kind == "swapping_conflict" and len(cells) == 2 else "at"
    noun = "agent" if len(fault.agents) == 1 else "agents"
    agents = _join_with_and(list(map(str, fault.agents)))
    return f"{noun} {agents} {preposition} {_join_with_and([f'({r}, {c})' for r, c in cells])}"


def _find_groups(
    kind: str,
    board: UnpaddedBoard,
    states: NDArray[np.int64],
    actions: NDArray[np.int64],
    lowest_agent: int,
) -> tuple[tuple[int, ...], ...]:
    """Return the groups of agents that fail together, including the lowest agent."""
    positions = states[-1]
    is_off_board = ((positions < 0) | (positions >= len(board.holes))).any(axis=1)
    if kind == "vertex_conflict":
        is_same_cell = (positions[:, None] == positions).all(axis=-1)
        groups = {tuple(np.flatnonzero(row).tolist()) for row in is_same_cell}
        return tuple(sorted(group for group in groups if len(group) > 1)) or ((lowest_agent,),)
    if kind == "swapping_conflict":
        enters_cell = (positions[:, None] == states[-2]).all(axis=-1)
        pairs = combinations(range(len(positions)), 2)
        swaps = tuple((i, j) for i, j in pairs if enters_cell[i, j] and enters_cell[j, i])
        return swaps or ((lowest_agent,),)
    if kind == "goal_not_reached":
        has_failed = (positions != board.goals).any(axis=1)
    elif kind == "off_board":
        has_failed = is_off_board | (actions[-1] < 0) | (actions[-1] >= len(ACTION_DELTAS))
    else:
        row, column = np.where(is_off_board[:, None], 0, positions).T
        has_failed = ~is_off_board & board.holes[row, column]
    has_failed[lowest_agent] = True
    return tuple((int(k),) for k in np.flatnonzero(has_failed))


def _join_with_and(items: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))
