"""Fill quotas with boards that are new to a set, by as many calls of `generate` as it takes."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxlake.board.instance import Instance
from jaxlake.generator.board_digests import DigestSet, board_digests
from jaxlake.generator.generation import Generated, generate
from jaxlake.generator.mixture import LakeParams
from jaxlake.solver import Solution

COUNTERS = ("candidates", "solvable", "unsolvable", "unknown", "duplicates")
"""What is counted for each cell, as in `Generated`; `duplicates` include boards of the set."""

MAX_CAPACITY = 1 << 16
"""The largest capacity for which float32 data ratios restore all counts exactly; see `_request`."""

CAPACITY, HORIZON, BATCH_SIZE = 512, 64, 256
"""For `DrawOptions` of a few thousand boards: one compilation, whatever a request asks for."""

_CALLS_IN_VAIN = 16
"""After more than these in a row hardly any board is left that is new, and calls ask for more."""

_MIN_EXTRA = 8
_MAX_DOUBLINGS = 20


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SolvedBoards:
    """Solved boards with a leading axis (B, ...) and NumPy leaves; all of them OPTIMAL."""

    instances: Instance
    solutions: Solution
    cell: np.ndarray  # int32 (B,), index into the parameters they were made for

    def __len__(self) -> int:
        return len(self.cell)

    def take(self, rows: np.ndarray) -> "SolvedBoards":
        """Give the boards at `rows` (indices or a mask), in that order."""
        taken: SolvedBoards = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], self)
        return taken

    @staticmethod
    def concatenate(parts: "list[SolvedBoards]") -> "SolvedBoards":
        """Join batches of one padding, one after the other."""
        joined: SolvedBoards = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        return joined


@dataclass(frozen=True)
class DrawOptions:
    """The static arguments of `generate`: calls with equal options are compiled once."""

    capacity: int  # boards in one call at most; itself at most MAX_CAPACITY
    max_size: int
    max_agents: int
    horizon: int
    max_candidates: int
    batch_size: int | None = None  # None: the default of `generate`; it changes no board

    def draw(self, key: jax.Array, params: LakeParams) -> Generated:
        """Call `generate` with JAX's default random bits, whatever the process has set."""
        settings = dict(vars(self))
        with jax.threefry_partitionable(True):
            made = generate(key, params, settings.pop("capacity"), **settings)
            host: Generated = jax.device_get(made)
        return host


@dataclass(frozen=True)
class FilledQuotas:
    """What `fill_quotas` made for S cells. Kinds are 0 (needs no wait) and 1 (needs a wait)."""

    boards: SolvedBoards  # by cell, and within a cell in the order in which they were found
    made: np.ndarray  # int64 (S, 2)
    counters: dict[str, np.ndarray]  # each of COUNTERS: int64 (S,)


def fill_quotas(
    key: jax.Array,
    params: LakeParams,
    quotas: np.ndarray,
    seen: DigestSet,
    options: DrawOptions,
    *,
    oversample: bool = False,
) -> FilledQuotas:
    """Make boards to quotas, int (S, 2), none of them in `seen`, and add them to it.

    Call a of `generate` has the key `fold_in(key, a)` and asks for what is still missing. A kind of
    a cell is done when its quota is full, or when its budget of `max_candidates` is spent: by one
    call that came short of it, or by all counted calls of its cell together. After more than
    16 calls in a row that brought nothing new, each asks for more, as with `oversample`, until one
    does.

    With `oversample`, call a > 0 asks for 2**a times as many boards as are missing, and takes the
    first new ones. The first call is not counted then. The sum of the quotas is at most
    `options.capacity` then. Of the parameters (S,), the ratios of data and waits are not used.
    """
    missing = np.array(quotas, np.int64)
    S = len(missing)
    counters = {name: np.zeros(S, np.int64) for name in COUNTERS}
    spent = np.zeros(S, np.int64)
    parts: list[SolvedBoards] = []
    attempt = in_vain = 0
    while missing.any() or not parts:
        doublings = attempt if oversample else max(0, in_vain - _CALLS_IN_VAIN)
        wanted = _with_extra(missing, doublings, options.capacity)
        request = _request(params, wanted, options.capacity)
        drawn = options.draw(jax.random.fold_in(key, attempt), request)
        boards = SolvedBoards(drawn.instances, drawn.solutions, np.asarray(drawn.cell))
        boards = boards.take(np.asarray(drawn.filled))
        digests = board_digests(boards.instances)
        new = ~seen.contains(digests)
        taken = new & _within(boards, new, missing)
        in_vain = 0 if taken.any() else in_vain + 1
        seen.add(digests[taken])
        parts.append(boards.take(taken))
        missing -= _count(parts[-1], S)
        for name in COUNTERS:
            counters[name] += getattr(drawn, name)[:S]
        counters["duplicates"] += np.bincount(boards.cell[~new], minlength=S)
        if attempt or not oversample:
            spent += drawn.candidates[:S]
        # A shortfall says that a whole budget was spent on this kind, or that it is infeasible.
        short = np.stack([drawn.shortfall_no_wait, drawn.shortfall_wait], axis=1)[:S]
        missing[(short > 0) | (spent >= options.max_candidates)[:, None]] = 0
        attempt += 1
    found = SolvedBoards.concatenate(parts)
    found = found.take(np.argsort(found.cell, kind="stable"))
    return FilledQuotas(found, _count(found, S), counters)


def _request(params: LakeParams, wanted: np.ndarray, capacity: int) -> LakeParams:
    """Parameters that make `generate` aim at exactly these counts, as far as they fit."""
    # The counts are the data ratios, which float32 holds exactly. What they leave of the capacity
    # goes to one more cell, all of it holes, so that one program serves any counts.
    cells = wanted.sum(axis=1)
    waits = wanted[:, 1] / np.maximum(cells, 1)
    counts = np.clip(capacity - (np.cumsum(cells) - cells), 0, cells)

    def extended(leaf: Any, last: float, dtype: Any) -> np.ndarray:
        return np.append(np.asarray(leaf, dtype), dtype(last))

    leaves: dict[str, Any] = {
        "size": extended(params.size, 2, np.int32),
        "data_ratio": extended(counts, capacity - counts.sum(), np.float32),
        "hole_ratio": extended(params.hole_ratio, 1, np.float32),
        "wait_ratio": extended(waits, 0, np.float32),
        "num_agents": extended(params.num_agents, 2, np.int32),
    }
    return LakeParams(**leaves)


def _with_extra(missing: np.ndarray, doublings: int, capacity: int) -> np.ndarray:
    if doublings == 0:
        return missing
    many = np.minimum(missing << min(doublings, _MAX_DOUBLINGS), capacity)
    extra = np.where(missing > 0, np.maximum(many, _MIN_EXTRA) - missing, 0).clip(min=0)
    room = max(0, capacity - int(missing.sum()))
    if extra.sum() > room:
        extra = extra * room // int(extra.sum())
    return missing + extra


def _within(boards: SolvedBoards, new: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """The new boards among the first `missing` of their cell and kind: bool (B,)."""
    kinds = _kinds(boards)
    within = np.zeros(len(kinds), bool)
    for kind, room in enumerate(missing.reshape(-1)):
        within[np.flatnonzero(new & (kinds == kind))[:room]] = True
    return within


def _count(boards: SolvedBoards, cells: int) -> np.ndarray:
    """int64 (cells, 2): how many boards there are of each cell and kind."""
    return np.bincount(_kinds(boards), minlength=2 * cells).reshape(cells, 2)


def _kinds(boards: SolvedBoards) -> np.ndarray:
    return boards.cell * 2 + boards.solutions.needs_wait
