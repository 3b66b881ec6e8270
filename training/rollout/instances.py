"""Sets of solved boards, drawn to order: to train on, to imitate, or to validate with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import jax
import numpy as np

from engineer.lake import LakeConfiguration
from jaxlake import Instance, Solution, format_grid, lake_params
from jaxlake.generator.board_digests import DigestSet
from jaxlake.generator.quotas import DrawOptions, fill_quotas
from training.errors import UserError
from training.run.records import RequestOutcome
from training.schema import RunConfig

# One capacity, and so one compilation of the generator, whatever a request asks for.
CAPACITY = 512
HORIZON = 64
BATCH_SIZE = 256


@dataclass(frozen=True)
class BoardRequest:
    """A request for `count` boards of one size."""

    size: int  # side, cells
    hole_ratio: float  # share of all cells that are holes
    wait_ratio: float  # share of the boards that need a wait
    count: int
    num_agents: int


@dataclass(frozen=True)
class InstanceSet:
    """B boards and their optimal solutions."""

    instances: Instance  # NumPy leaves (B, ...)
    solutions: Solution  # NumPy leaves (B, ...)

    def __len__(self) -> int:
        return len(self.instances.size)

    def __iter__(self) -> Iterator[Instance]:
        """Yield the boards one by one, unbatched."""
        return (_rows(self.instances, row) for row in range(len(self)))

    def take(self, rows: Sequence[int] | np.ndarray) -> InstanceSet:
        """Return the boards at `rows`, in that order; a row may come several times."""
        return InstanceSet(*_rows((self.instances, self.solutions), np.asarray(rows, np.int64)))

    def part(self, number: int, count: int) -> InstanceSet:
        """Return the boards of one update, counted from 0, of `count` boards each."""
        return self.take(range(number * count, (number + 1) * count))

    def grid(self, row: int) -> list[str]:
        """Write one board in the published symbols, for a file or a message."""
        return format_grid(_rows(self.instances, row))


def draw_boards(
    key: jax.Array,
    requests: Iterable[BoardRequest],
    *,
    max_size: int,
    max_candidates: int,
    seen: DigestSet | None = None,
    substitute: bool = False,
) -> tuple[InstanceSet, list[RequestOutcome]]:
    """Fill every request with boards, of which no two are equal; equal keys give equal sets.

    Args:
        key: A typed JAX key.
        requests: What is wanted.
        max_size: N, the side to which all boards are padded.
        max_candidates: Boards drawn for one request before it is left incomplete.
        seen: Boards that must not be drawn, such as the validation set's; those drawn are added.
        substitute: Replace missing boards that need a wait by boards that need none, and the other
            way round, so that a budget is kept. The outcome reports them as missing all the same.

    Returns:
        The boards, request by request in the order of the generator, and one outcome per request.

    Raises:
        UserError: Not one board could be made.
    """
    seen = DigestSet() if seen is None else seen
    parts: list[InstanceSet] = []
    outcomes = []
    for number, request in enumerate(requests):
        own_key = jax.random.fold_in(key, number)
        waits = round(request.wait_ratio * request.count)
        wanted = {True: waits, False: request.count - waits}
        made, missing, candidates = _fill(own_key, request, wanted, seen, max_size, max_candidates)
        parts.append(made)
        outcomes.append(
            RequestOutcome(
                **asdict(request),
                missing_wait=missing[True],
                missing_no_wait=missing[False],
                candidates=candidates,
            )
        )
        if substitute and outcomes[-1].missing:
            other = {waits: missing[not waits] for waits in missing}
            own_key = jax.random.fold_in(own_key, 1 << 20)
            parts.append(_fill(own_key, request, other, seen, max_size, max_candidates)[0])
    if not any(map(len, parts)):
        raise UserError("no board could be made: " + "; ".join(map(str, outcomes)))
    columns = [(part.instances, part.solutions) for part in parts]
    return InstanceSet(*jax.tree.map(lambda *leaves: np.concatenate(leaves), *columns)), outcomes


def draw_validation_cells(
    key: jax.Array,
    config: RunConfig,
    per_cell: int,
    *,
    seen: DigestSet | None = None,
    substitute: bool = False,
) -> tuple[InstanceSet, list[RequestOutcome]]:
    """Draw `per_cell` boards for each size, hole ratio and wait ratio of the validation set.

    See `draw_boards` for the other arguments and what is returned and raised.
    """
    cells = config.validation
    lake = config.environment
    return draw_boards(
        key,
        [
            BoardRequest(*cell, per_cell, lake.num_agents)
            for cell in product(cells.sizes, cells.hole_ratios, cells.wait_ratios)
        ],
        max_size=max((*cells.sizes, *lake.bounds.sizes)),
        max_candidates=lake.max_candidates,
        seen=seen,
        substitute=substitute,
    )


def draw_training_boards(
    key: jax.Array,
    config: RunConfig,
    configuration: LakeConfiguration,
    count: int,
    *,
    seen: DigestSet,
) -> tuple[InstanceSet, list[RequestOutcome]]:
    """Draw `count` boards of a configuration, with substitutes; see `draw_boards`."""
    lake = config.environment
    return draw_boards(
        key,
        requests_for(configuration, count, num_agents=lake.num_agents),
        max_size=max(lake.bounds.sizes),
        max_candidates=lake.max_candidates,
        seen=seen,
        substitute=True,
    )


def requests_for(
    configuration: LakeConfiguration, instances: int, *, num_agents: int
) -> list[BoardRequest]:
    """Split a stage's budget of `instances` boards over the map sizes by their data ratios.

    Counts are rounded by largest remainder, so that they sum to `instances`.
    """
    sizes = sorted(configuration.sizes)
    exact = np.array([configuration.sizes[size].data_ratio for size in sizes]) * instances
    counts = np.floor(exact + 1e-9).astype(int)
    for index in np.argsort(counts - exact, kind="stable")[: instances - counts.sum()]:
        counts[index] += 1
    return [
        BoardRequest(size, ratios.hole_ratio, ratios.wait_ratio, int(count), num_agents)
        for size, count in zip(sizes, counts, strict=True)
        for ratios in [configuration.sizes[size]]
        if count
    ]


def _fill(
    key: jax.Array,
    request: BoardRequest,
    wanted: dict[bool, int],
    seen: DigestSet,
    max_size: int,
    max_candidates: int,
) -> tuple[InstanceSet, dict[bool, int], int]:
    """Draw boards that need a wait (`wanted[True]`) and that need none; add them to `seen`.

    With the boards come how many of each kind are missing, and how many candidates were drawn.
    """
    filled = fill_quotas(
        key,
        lake_params(request.size, request.hole_ratio, num_agents=request.num_agents),
        np.array([[wanted[False], wanted[True]]]),
        seen,
        DrawOptions(CAPACITY, max_size, request.num_agents, HORIZON, max_candidates, BATCH_SIZE),
    )
    missing = {waits: wanted[waits] - int(filled.made[0, int(waits)]) for waits in wanted}
    boards = InstanceSet(filled.boards.instances, filled.boards.solutions)
    return boards, missing, int(filled.counters["candidates"][0])


def _rows(tree: Any, rows: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[rows], tree)
