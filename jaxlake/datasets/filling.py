"""Quotas of boards that are new to a set: draw, drop what the set has, draw again.

`generate` keeps one call free of duplicates. Sets that take many calls, and small boards of which
there are only so many, need the same across calls; this module does that on the host.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxlake.datasets.columns import Boards, concatenate
from jaxlake.datasets.digests import DigestSet, digests_of
from jaxlake.generator import Generated, LakeParams, generate
from jaxlake.instance import Instance
from jaxlake.solver import Solution

COUNTERS = ("candidates", "solvable", "unsolvable", "unknown", "duplicates")
"""What is counted for each cell as `generate` does: candidates drawn, by what became of them;
`duplicates` are solvable ones that the call or the set had already. Cells that agree in size,
holes and agents draw from one stream of candidates, and each of them has the stream's counts."""

MAX_CAPACITY = 1 << 16

_LEAST_EXTRA = 8
_MOST_DOUBLINGS = 20


@dataclass(frozen=True)
class Sampler:
    """The static part of drawing: one compilation for all calls with equal values."""

    capacity: int  # boards in one call at most; itself at most MAX_CAPACITY (see `_ask`)
    max_size: int
    max_agents: int
    horizon: int
    max_candidates: int
    batch_size: int | None = None  # None for the generator's own; it changes no board

    def draw(self, key: jax.Array, params: LakeParams) -> Generated:
        """`generate`, with NumPy leaves.

        The random bits are those of JAX's default since 0.5, whatever the process has set.
        """
        with jax.threefry_partitionable(True):
            drawn = generate(
                key,
                params,
                self.capacity,
                max_size=self.max_size,
                max_agents=self.max_agents,
                horizon=self.horizon,
                max_candidates=self.max_candidates,
                batch_size=self.batch_size,
            )
        made: Generated = jax.device_get(drawn)
        return made


@dataclass(frozen=True)
class Filled:
    """What one call of `fill` gave. S cells; kinds are 0 (needs no wait) and 1 (needs a wait)."""

    boards: Boards  # by cell, inside a cell as they were found
    made: np.ndarray  # int64 (S, 2)
    counters: dict[str, np.ndarray]  # each of COUNTERS: int64 (S,)


def fill(
    key: jax.Array,
    params: LakeParams,
    quotas: np.ndarray,
    seen: DigestSet,
    sampler: Sampler,
) -> Filled:
    """Make boards to quotas, none of them in `seen`, and put them there.

    Call a of `generate` has the key `fold_in(key, a)`. Call 0 asks for the quotas; later calls
    for what duplicates left missing and, since more of them are to be expected, for 2**a times as
    many, of which the first new ones are taken. A kind in a cell is done when its quota is full, or
    `max_candidates` candidates were drawn for it by one call, or by all calls after the first.

    Args:
        key: typed PRNG key; it, `params`, `quotas` and `seen` decide the result.
        params: the cells (S,), of which the ratios of data and waits are not used.
        quotas: int (S, 2), boards wanted that need no wait, and that need one; their sum is at
            most the sampler's capacity.
        seen: the digests of all boards of the set so far.
        sampler: the static part.
    """
    missing = np.array(quotas, np.int64)
    counters = {name: np.zeros(len(missing), np.int64) for name in COUNTERS}
    redrawn = np.zeros(len(missing), np.int64)
    parts = []
    attempt = 0
    while missing.any():
        wanted = _with_extra(missing, attempt, sampler.capacity)
        drawn = sampler.draw(
            jax.random.fold_in(key, attempt), _ask(params, wanted, sampler.capacity)
        )
        boards = Boards(drawn.instances, drawn.solutions, np.asarray(drawn.cell, np.int32))
        boards = boards.take(np.asarray(drawn.filled))
        digests = digests_of(boards.instances)
        new = ~seen.contains(digests) & _first_of_equals(digests)
        taken = new & _within(boards, new, missing)
        seen.add(digests[taken])
        parts.append(boards.take(taken))
        missing -= _count(parts[-1], len(missing))
        for name in COUNTERS:
            counters[name] += getattr(drawn, name)[: len(missing)]
        counters["duplicates"] += np.bincount(boards.cell[~new], minlength=len(missing))
        # A shortfall says that a whole budget was spent on this kind, or that it is infeasible. The
        # first call's candidates don't count: the other kind may have used them up.
        if attempt:
            redrawn += drawn.candidates[: len(missing)]
        short = np.stack([drawn.shortfall_no_wait, drawn.shortfall_wait], axis=1)[: len(missing)]
        missing[(short > 0) | (redrawn >= sampler.max_candidates)[:, None]] = 0
        attempt += 1
    found = concatenate(parts) if parts else _none(sampler)
    found = found.take(np.argsort(found.cell, kind="stable"))
    return Filled(found, _count(found, len(quotas)), counters)


def _ask(params: LakeParams, wanted: np.ndarray, capacity: int) -> LakeParams:
    """Parameters that make `generate` aim at exactly these counts.

    The counts are the data ratios. float32 holds them exactly, and up to 65,536 boards rounding
    in the normalisation stays far below one half, so that the largest remainders restore the
    counts. What the counts leave of the capacity goes to a cell that is all holes: nothing is
    drawn for it.
    """
    cells = wanted.sum(axis=1)
    rest = capacity - int(cells.sum())
    waits = wanted[:, 1] / np.maximum(cells, 1)

    def extended(leaf: Any, last: float, dtype: Any) -> np.ndarray:
        return np.append(np.asarray(leaf, dtype), dtype(last))

    leaves: dict[str, Any] = {
        "size": extended(params.size, 2, np.int32),
        "data_ratio": extended(cells, rest, np.float32),
        "hole_ratio": extended(params.hole_ratio, 1, np.float32),
        "wait_ratio": extended(waits, 0, np.float32),
        "num_agents": extended(params.num_agents, 2, np.int32),
    }
    return LakeParams(**leaves)


def _with_extra(missing: np.ndarray, attempt: int, capacity: int) -> np.ndarray:
    if attempt == 0:
        return missing
    many = np.minimum(missing << min(attempt, _MOST_DOUBLINGS), capacity)
    extra = np.where(missing > 0, np.maximum(many, _LEAST_EXTRA) - missing, 0)
    room = capacity - int(missing.sum())
    if extra.sum() > room:
        extra = extra * room // int(extra.sum())
    return missing + extra


def _first_of_equals(digests: np.ndarray) -> np.ndarray:
    """bool (B,): digests that no earlier one equals."""
    first = np.zeros(len(digests), bool)
    first[np.unique(digests, return_index=True)[1]] = True
    return first


def _within(boards: Boards, new: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """bool (B,): new boards among the first `missing` of their cell and kind."""
    kinds = boards.cell * 2 + boards.solutions.needs_wait
    within = np.zeros(len(kinds), bool)
    for kind, room in enumerate(missing.reshape(-1)):
        within[np.flatnonzero(new & (kinds == kind))[:room]] = True
    return within


def _count(boards: Boards, cells: int) -> np.ndarray:
    kinds = boards.cell * 2 + boards.solutions.needs_wait
    return np.bincount(kinds, minlength=2 * cells).reshape(cells, 2)


def _none(sampler: Sampler) -> Boards:
    N, K, T = sampler.max_size, sampler.max_agents, sampler.horizon
    zeros: Callable[..., Any] = np.zeros
    return Boards(
        Instance(
            holes=zeros((0, N, N), bool),
            size=zeros(0, np.int32),
            starts=zeros((0, K, 2), np.int8),
            goals=zeros((0, K, 2), np.int8),
            agent_mask=zeros((0, K), bool),
        ),
        Solution(
            status=zeros(0, np.int8),
            sum_of_costs=zeros(0, np.int16),
            makespan=zeros(0, np.int16),
            needs_wait=zeros(0, bool),
            plan=zeros((0, T, K), np.int8),
            makespan_plan=zeros((0, T, K), np.int8),
            expansions=zeros(0, np.int32),
        ),
        zeros(0, np.int32),
    )
