"""Smaller calls in which the rounds of a large call's loops are counted.

Kernels are interpreted for a count, which takes milliseconds a board. So rounds of `solve` and
`generate` are counted in a call of a few thousand boards, on a machine that is smaller in
proportion: it works on as much fewer boards at a time, so that a loop over chunks of boards has the
rounds that it has in the large call.

What that would miss are the few boards that take the longest. `solve` is counted a second time on
the hardest boards of the large call, which XLA's loops find on this CPU.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxlake
from benchmarks.accelerators.programs import Program, generator, solver
from jaxlake.solver import Widths

COUNTED_BOARDS = 4096
"""Boards of a sample, if a call has more."""

HARDEST = 64
"""Boards of a call that are counted apart, since one of them may take as long as all others."""


@dataclass(frozen=True)
class Part:
    """One call in which rounds are counted."""

    arguments: tuple[Any, ...]
    weight: float  # boards of the large call for each one of it


@dataclass(frozen=True)
class Sample:
    """A function and the calls that stand for a large one, arguments all of the same shapes."""

    function: Callable[..., Any]
    parts: tuple[Part, ...]
    boards: int | None = None  # of a call; None: it is the large one itself
    hardest: int = 0  # boards that the last of the calls is for


def sample_of(program: Program, counted: int, widths: Widths) -> Sample:
    """Return what stands for a program when `counted` boards are looked at.

    `widths` are those of the target for the whole program.
    """
    kind, agents = program.name.split("-")
    if kind not in _SMALLER or counted >= program.units:
        return Sample(program.function, (Part(program.arguments, 1.0),))
    smaller = scaled(widths, counted / program.units)
    return _SMALLER[kind](int(agents), program, counted, smaller)


def scaled(widths: Widths, share: float) -> Widths:
    """Return widths of a machine that works on a share of the boards at a time."""
    # One board at a time, or fewer than 64 in a joint search, are other programs.
    least = {"crowded_boards": min(2, widths.crowded_boards)}
    least |= {"joint_boards": min(64, widths.joint_boards)}
    same = ("kernels", "node_lanes")
    numbers = {name: x for name, x in vars(widths).items() if name not in same}
    smaller = {name: max(least.get(name, 1), round(share * x)) for name, x in numbers.items()}
    return replace(widths, **smaller)


def _sample_of_solve(agents: int, program: Program, counted: int, widths: Widths) -> Sample:
    """Count a sample of all but the hardest boards, and these in a call filled up with idle ones.

    In the second call the boards without agents stand for none.
    """
    boards = program.arguments[0]
    hardest = min(HARDEST, counted, program.units - counted)
    effort = np.asarray(solver()(boards).expansions)
    order = np.argsort(-effort, kind="stable")
    others = np.sort(order[hardest:])[:counted]
    hard = _rows(boards, np.resize(order[:hardest], counted))
    there = jnp.arange(counted)[:, None] < hardest
    hard = replace(hard, agent_mask=hard.agent_mask & there)
    weight = (program.units - hardest) / counted
    parts = Part((_rows(boards, others),), weight), Part((hard,), 1.0)
    return Sample(solver(widths), parts, counted, hardest)


def _sample_of_generate(agents: int, program: Program, counted: int, widths: Widths) -> Sample:
    function = generator(agents, counted, widths)
    part = Part(program.arguments, program.units / counted)
    return Sample(function, (part,), counted)


def _rows(boards: jaxlake.Instance, rows: np.ndarray) -> jaxlake.Instance:
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[rows]), boards)


_SMALLER = {"solve": _sample_of_solve, "generate": _sample_of_generate}
"""What makes a sample, by the kind of a program. All others are fast enough as they are."""
