"""Quotas of boards that are new to a set, filled by repeated calls of `generate`."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxlake.board.instance import Instance
from jaxlake.generator.board_digests import DigestSet, board_digests
from jaxlake.generator.generation import Generated, generate_quietly
from jaxlake.generator.mixture import LakeParams
from jaxlake.solver import Solution

COUNTERS = ("candidates", "solvable", "unsolvable", "unknown", "duplicates")
"""Counters per component, as in `Generated`; `duplicates` include boards of the set."""

MAX_CAPACITY = 1 << 16
"""Largest capacity for which the float32 data ratios of a request give all counts exactly."""

CAPACITY, HORIZON, BATCH_SIZE = 512, 64, 256
"""Capacity for requests of a few thousand boards: one compilation serves every request."""

_MAX_FAILED_CALLS = 16
"""Consecutive calls without a new board before calls request more boards than are missing."""

_MIN_EXTRA = 8
_MAX_DOUBLINGS = 20


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SolvedBoards:
    """OPTIMAL solved boards with a leading axis (B, ...) and NumPy leaves."""

    instances: Instance
    solutions: Solution
    component: np.ndarray  # int32 (B,), index into the parameters of the request

    def __len__(self) -> int:
        return len(self.component)

    def take(self, rows: np.ndarray) -> "SolvedBoards":
        """Return the boards at `rows` (indices or a mask), in that order."""
        selection: SolvedBoards = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], self)
        return selection

    @staticmethod
    def concatenate(parts: "list[SolvedBoards]") -> "SolvedBoards":
        """Return batches of equal padding joined one after the other."""
        batch: SolvedBoards = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        return batch


@dataclass(frozen=True)
class DrawOptions:
    """Static arguments of `generate`; calls with equal options share a compilation."""

    capacity: int  # largest number of boards per call, at most MAX_CAPACITY
    max_size: int
    max_agents: int
    horizon: int
    max_candidates: int
    batch_size: int | None = None  # None: the default of `generate`; results do not depend on it

    def draw(self, key: jax.Array, params: LakeParams) -> Generated:
        """Call `generate` with JAX's default random bits, regardless of the process settings."""
        settings = dict(vars(self))
        with jax.threefry_partitionable(True):
            generated = generate_quietly(key, params, settings.pop("capacity"), **settings)
            host_result: Generated = jax.device_get(generated)
        return host_result


@dataclass(frozen=True)
class FilledQuotas:
    """Result of `fill_quotas` for S components and 2 wait classes (0: no wait, 1: a wait)."""

    boards: SolvedBoards  # by component, in order of generation
    counts: np.ndarray  # int64 (S, 2)
    counters: dict[str, np.ndarray]  # each of COUNTERS: int64 (S,)


def fill_quotas(
    key: jax.Array,
    params: LakeParams,
    quotas: np.ndarray,
    digest_set: DigestSet,
    options: DrawOptions,
    *,
    oversample: bool = False,
) -> FilledQuotas:
    """Generate boards that are not in `digest_set` until quotas are full, and add them to it.

    Call a of `generate` has the key `fold_in(key, a)` and requests the missing boards. A quota is
    done when it is full or its budget of `max_candidates` is spent. The budget is spent by one call
    with a shortfall, or by all counted calls of the component. After more than 16 consecutive calls
    without a new board, calls request more boards until one succeeds.

    Args:
        key: Typed PRNG key.
        params: Leaves (S,). `data_ratio` and `wait_ratio` are ignored.
        quotas: int (S, 2), boards of each component and wait class. With `oversample` their sum is
            at most `options.capacity`.
        digest_set: Digests of the boards of the set; the new boards are added.
        options: Static arguments of `generate`.
        oversample: Let call a > 0 request 2**a times the missing boards and accept the first new
            ones. The first call then does not count towards the budget.

    Returns:
        The boards and the counters per component.
    """
    num_missing = np.array(quotas, np.int64)
    S = len(num_missing)
    counters = {name: np.zeros(S, np.int64) for name in COUNTERS}
    num_spent = np.zeros(S, np.int64)  # candidates that count towards the budget
    batches: list[SolvedBoards] = []
    attempt = failed_calls = 0
    while num_missing.any() or not batches:
        doublings = attempt if oversample else max(0, failed_calls - _MAX_FAILED_CALLS)
        targets = _add_extra(num_missing, doublings, options.capacity)
        request = _make_request(params, targets, options.capacity)
        generated = options.draw(jax.random.fold_in(key, attempt), request)
        boards = SolvedBoards(
            generated.instances, generated.solutions, np.asarray(generated.component)
        )
        boards = boards.take(np.asarray(generated.filled))
        digests = board_digests(boards.instances)
        is_new = ~digest_set.contains(digests)
        is_accepted = is_new & _is_within_quota(boards, is_new, num_missing)
        failed_calls = 0 if is_accepted.any() else failed_calls + 1
        digest_set.add(digests[is_accepted])
        batches.append(boards.take(is_accepted))
        num_missing -= _count_boards(batches[-1], S)
        for name in COUNTERS:
            counters[name] += getattr(generated, name)[:S]
        counters["duplicates"] += np.bincount(boards.component[~is_new], minlength=S)
        if attempt or not oversample:
            num_spent += generated.candidates[:S]
        # A shortfall means that a whole budget was spent on this quota, or that it is infeasible.
        shortfall = np.stack([generated.shortfall_no_wait, generated.shortfall_wait], axis=1)[:S]
        num_missing[(shortfall > 0) | (num_spent >= options.max_candidates)[:, None]] = 0
        attempt += 1
    all_boards = SolvedBoards.concatenate(batches)
    all_boards = all_boards.take(np.argsort(all_boards.component, kind="stable"))
    return FilledQuotas(all_boards, _count_boards(all_boards, S), counters)


def _make_request(params: LakeParams, targets: np.ndarray, capacity: int) -> LakeParams:
    """Return parameters with which `generate` makes exactly these counts, up to the capacity."""
    # The counts are the data ratios, which float32 holds exactly. An extra infeasible component,
    # whose boards would consist of holes only, takes the remaining capacity, so that a single
    # program serves any counts.
    totals = targets.sum(axis=1)
    wait_ratios = targets[:, 1] / np.maximum(totals, 1)
    counts = np.clip(capacity - (np.cumsum(totals) - totals), 0, totals)

    def append_component(leaf: Any, value: float, dtype: Any) -> np.ndarray:
        return np.append(np.asarray(leaf, dtype), dtype(value))

    leaves: dict[str, Any] = {
        "size": append_component(params.size, 2, np.int32),
        "data_ratio": append_component(counts, capacity - counts.sum(), np.float32),
        "hole_ratio": append_component(params.hole_ratio, 1, np.float32),
        "wait_ratio": append_component(wait_ratios, 0, np.float32),
        "num_agents": append_component(params.num_agents, 2, np.int32),
    }
    return LakeParams(**leaves)


def _add_extra(num_missing: np.ndarray, num_doublings: int, capacity: int) -> np.ndarray:
    """Return the counts to request: the missing boards, doubled within the capacity."""
    if num_doublings == 0:
        return num_missing
    targets = np.minimum(num_missing << min(num_doublings, _MAX_DOUBLINGS), capacity)
    extra = np.where(num_missing > 0, np.maximum(targets, _MIN_EXTRA) - num_missing, 0).clip(min=0)
    max_extra = max(0, capacity - int(num_missing.sum()))
    if extra.sum() > max_extra:
        extra = extra * max_extra // int(extra.sum())
    return num_missing + extra


def _is_within_quota(
    boards: SolvedBoards, is_new: np.ndarray, num_missing: np.ndarray
) -> np.ndarray:
    """Return the new boards among the first `num_missing` of their quota, bool (B,)."""
    quota_indices = _index_quotas(boards)
    is_within = np.zeros(len(boards), bool)
    for index, count in enumerate(num_missing.reshape(-1)):
        is_within[np.flatnonzero(is_new & (quota_indices == index))[:count]] = True
    return is_within


def _count_boards(boards: SolvedBoards, num_components: int) -> np.ndarray:
    """Return the number of boards of each component and wait class, int64 (S, 2)."""
    counts = np.bincount(_index_quotas(boards), minlength=2 * num_components)
    return counts.reshape(num_components, 2)


def _index_quotas(boards: SolvedBoards) -> np.ndarray:
    """Return the flat index of each board's quota, 2 * component + wait class, int (B,)."""
    return boards.component * 2 + boards.solutions.needs_wait
