"""Sets of solved boards for training, imitation and validation."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from engineer.lake import LakeConfiguration
from jaxlake import Instance, Solution, format_grid, lake_params
from jaxlake.board.distance_fields import distances
from jaxlake.generator.board_digests import DigestSet
from jaxlake.generator.quotas import BATCH_SIZE, CAPACITY, HORIZON, DrawOptions, fill_quotas
from training.environments.protocol import Instances
from training.errors import UserError
from training.processes import call_in_first, is_single_process
from training.run.records import DrawReport, six_digits


@dataclass(frozen=True)
class BoardRequest:
    """A request for `count` boards of one size."""

    size: int  # side, cells
    hole_ratio: float  # share of all cells that are holes
    wait_ratio: float  # share of the boards that need a wait
    count: int
    num_agents: int


@dataclass(frozen=True)
class InstanceSet(Instances):
    """B boards and their optimal solutions."""

    instances: Instance  # NumPy leaves (B, ...)
    solutions: Solution  # NumPy leaves (B, ...)

    def __len__(self) -> int:
        return len(self.instances.size)

    def __iter__(self) -> Iterator[Instance]:
        """Yield the boards one by one, unbatched."""
        return (_take_rows(self.instances, row) for row in range(len(self)))

    def take(self, rows: Sequence[int] | np.ndarray) -> "InstanceSet":
        """Return the boards at `rows`, in that order; rows may repeat."""
        return InstanceSet(
            *_take_rows((self.instances, self.solutions), np.asarray(rows, np.int64))
        )

    def concatenate(self, other: "InstanceSet") -> "InstanceSet":
        """Return these boards followed by `other`'s; both must be padded to the same side."""
        return concatenate_boards([self, other])

    def grid(self, row: int) -> list[str]:
        """Return the lines of one board in the published symbols."""
        return format_grid(_take_rows(self.instances, row))


def concatenate_boards(sets: Sequence[InstanceSet]) -> InstanceSet:
    """Return the boards of all sets in one set; all must be padded to the same side."""
    trees = [(boards.instances, boards.solutions) for boards in sets]
    return InstanceSet(*jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees))


def draw_boards(
    key: jax.Array,
    requests: Iterable[BoardRequest],
    *,
    max_size: int,
    max_candidates: int,
    seen_boards: DigestSet | None = None,
    substitute: bool = False,
) -> tuple[InstanceSet, list[DrawReport]]:
    """Draw distinct boards for every request; equal arguments give equal boards.

    Args:
        key: Typed JAX key.
        requests: Requests, processed in order.
        max_size: Side to which the boards are padded, in cells.
        max_candidates: Maximum number of boards to draw for one request.
        seen_boards: Digests of boards that must not be drawn again; the drawn boards are added.
        substitute: Whether to replace missing boards that need a wait by boards that don't, and
            vice versa. The report still counts them as missing.

    Returns:
        The boards in the order of the requests, and one report per request.

    Raises:
        UserError: No board could be generated.
    """
    digests = DigestSet() if seen_boards is None else seen_boards
    draw = partial(_draw_boards, key, requests, max_size, max_candidates, digests, substitute)
    if is_single_process():
        return draw()
    values = call_in_first("boards", lambda: _to_plain_values(*draw()))
    boards = InstanceSet(Instance(**values["instances"]), Solution(**values["solutions"]))
    return boards, [DrawReport(**report) for report in values["reports"]]


def _to_plain_values(boards: InstanceSet, reports: Sequence[DrawReport]) -> dict[str, Any]:
    """Return boards and reports as plain values that `call_in_first` can send."""
    return {
        "instances": {name: np.asarray(leaf) for name, leaf in vars(boards.instances).items()},
        "solutions": {name: np.asarray(leaf) for name, leaf in vars(boards.solutions).items()},
        "reports": [report.model_dump(mode="json") for report in reports],
    }


def _draw_boards(
    key: jax.Array,
    requests: Iterable[BoardRequest],
    max_size: int,
    max_candidates: int,
    seen_boards: DigestSet,
    substitute: bool,
) -> tuple[InstanceSet, list[DrawReport]]:
    board_sets: list[InstanceSet] = []
    reports = []

    def fill(
        key: jax.Array, request: BoardRequest, quota: dict[bool, int]
    ) -> tuple[dict[bool, int], int]:
        """Draw boards with and without waits; return the missing counts and the candidates."""
        num_agents, counts = request.num_agents, np.array([[quota[False], quota[True]]])
        result = fill_quotas(
            key,
            lake_params(request.size, request.hole_ratio, num_agents=num_agents),
            counts,
            seen_boards,
            DrawOptions(CAPACITY, max_size, num_agents, HORIZON, max_candidates, BATCH_SIZE),
        )
        board_sets.append(InstanceSet(result.boards.instances, result.boards.solutions))
        shortfall = {waits: quota[waits] - int(result.counts[0, int(waits)]) for waits in quota}
        return shortfall, int(result.counters["candidates"][0])

    for index, request in enumerate(requests):
        request_key = jax.random.fold_in(key, index)
        waits = round(request.wait_ratio * request.count)
        shortfall, candidates = fill(
            request_key, request, {True: waits, False: request.count - waits}
        )
        reports.append(
            DrawReport(
                **asdict(request),
                missing_wait=shortfall[True],
                missing_no_wait=shortfall[False],
                candidates=candidates,
            )
        )
        if substitute and reports[-1].missing:
            substitute_quota = {waits: shortfall[not waits] for waits in shortfall}
            fill(jax.random.fold_in(request_key, 1 << 20), request, substitute_quota)
    if not any(map(len, board_sets)):
        raise UserError("no board could be generated: " + "; ".join(map(str, reports)))
    return concatenate_boards(board_sets), reports


def make_requests(
    configuration: LakeConfiguration, num_instances: int, *, num_agents: int
) -> list[BoardRequest]:
    """Split a stage's budget of boards over the map sizes by their data ratios.

    Returns:
        One request per map size with a positive count. Counts are rounded by the largest
        remainder, so they sum to `num_instances`.
    """
    sizes = sorted(configuration.sizes)
    quotas = np.array([configuration.sizes[size].data_ratio for size in sizes]) * num_instances
    counts = np.floor(quotas + 1e-9).astype(int)
    for index in np.argsort(counts - quotas, kind="stable")[: num_instances - counts.sum()]:
        counts[index] += 1
    requests = []
    for size, count in zip(sizes, counts.tolist(), strict=True):
        knobs = configuration.sizes[size]
        requests.append(BoardRequest(size, knobs.hole_ratio, knobs.wait_ratio, count, num_agents))
    return [request for request in requests if request.count]


@dataclass(frozen=True)
class StageBoards:
    """A stage's training boards; boards repeat if the generator found too few."""

    instances: InstanceSet  # the stage's full budget, in training order
    distinct: InstanceSet  # the same boards without repetitions, in generator order
    draw_reports: tuple[DrawReport, ...]  # one per map size

    @property
    def shortfalls(self) -> list[DrawReport]:
        """The requests that could not be filled."""
        return [report for report in self.draw_reports if report.missing]

    @cached_property
    def statistics(self) -> dict[str, dict[str, float]]:
        """Statistics of the distinct boards by map size, rounded to six significant digits.

        - `acceptance`: fraction of drawn boards that were accepted
        - `missing`: number of missing boards
        - `mean_sum_of_costs`: mean optimal sum of costs, in steps
        - `conflict_density`: fraction of boards whose optimum exceeds the sum of the agents'
          shortest paths, because these paths conflict
        """
        sizes = self.distinct.instances.size
        costs = self.distinct.solutions.sum_of_costs
        lower_bounds = np.asarray(_sum_of_distances(self.distinct.instances))
        statistics = {}
        for report in self.draw_reports:
            values = {
                "acceptance": (report.count - report.missing) / max(report.candidates, 1),
                "missing": report.missing,
            }
            mask = sizes == report.size
            if mask.any():
                values["mean_sum_of_costs"] = float(costs[mask].mean())
                values["conflict_density"] = float((costs > lower_bounds)[mask].mean())
            statistics[str(report.size)] = {
                name: six_digits(value) for name, value in values.items()
            }
        return statistics


def fill_budget(
    boards: InstanceSet, reports: Sequence[DrawReport], rng: np.random.Generator
) -> np.ndarray:
    """Return rows that fill the requested number of boards by repeating some of them.

    If a map size has too few boards, boards of the same size repeat. If it has none, boards of all
    sizes repeat. Repetitions are spread as evenly as the counts allow.

    Args:
        boards: The distinct boards.
        reports: One report per map size, with the requested count.
        rng: Selects the boards that repeat.

    Returns:
        int (count,): every row at least once, where `count` is the total requested number.
    """
    all_rows = np.arange(len(boards))
    rows, num_unfilled = [all_rows], 0
    for report in reports:
        size_rows = np.flatnonzero(boards.instances.size == report.size)
        num_missing = report.count - len(size_rows)
        if not len(size_rows):
            num_unfilled += num_missing
        elif num_missing:
            rows.append(np.resize(rng.permutation(size_rows), num_missing))
    if num_unfilled:
        rows.append(np.resize(rng.permutation(all_rows), num_unfilled))
    return np.concatenate(rows)


@jax.jit
def _sum_of_distances(boards: Instance) -> jax.Array:
    """Return the sum of the agents' shortest path lengths per board, int32 (B,)."""

    def sum_distances(board: Instance) -> jax.Array:
        fields = jax.vmap(distances, (None, 0))(board.holes, board.goals)
        steps = fields[jnp.arange(len(board.starts)), board.starts[:, 0], board.starts[:, 1]]
        return jnp.sum(jnp.where(board.agent_mask, steps, 0), dtype=jnp.int32)

    return jax.vmap(sum_distances)(boards)


def _take_rows(tree: Any, rows: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[rows], tree)
