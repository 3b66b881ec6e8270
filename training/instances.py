"""Sets of solved boards: a round's, the warm start's, the fixed validation set."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxlake
from engineer import LakeConfiguration
from jaxlake import Generated, Instance, LakeParams, Solution, format_grid
from jaxlake.distances import distances
from training.errors import UserError

# One capacity, and so one compilation of the generator, whatever a request asks for.
CAPACITY = 512
HORIZON = 64
BATCH_SIZE = 256


@dataclass(frozen=True)
class Cell:
    """A request: `count` boards of one size, hole ratio and share of boards that need a wait."""

    size: int
    hole_ratio: float
    wait_ratio: float
    count: int
    num_agents: int


@dataclass(frozen=True)
class Fill:
    """How far a `Cell` was filled, and how hard it was tried."""

    cell: Cell
    missing_wait: int
    missing_no_wait: int
    candidates: int

    @property
    def complete(self) -> bool:
        """Nothing is missing."""
        return not (self.missing_wait or self.missing_no_wait)

    def __str__(self) -> str:
        cell = self.cell
        return (
            f"{cell.size}x{cell.size}, hole_ratio {cell.hole_ratio:g}, wait_ratio "
            f"{cell.wait_ratio:g}: {self.missing_wait} boards that need a wait and "
            f"{self.missing_no_wait} that do not are missing of {cell.count} after "
            f"{self.candidates} candidates"
        )


@dataclass(frozen=True)
class InstanceSet:
    """Solved boards with a leading axis (B, ...), held as NumPy arrays, and their symbols."""

    instances: Instance
    solutions: Solution
    grids: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.grids)

    def take(self, rows: Sequence[int] | np.ndarray) -> InstanceSet:
        """The boards at `rows`, in that order."""
        pick = np.asarray(rows, np.int64)
        instances, solutions = _row((self.instances, self.solutions), pick)
        return InstanceSet(instances, solutions, tuple(self.grids[row] for row in pick))


def draw(
    key: jax.Array,
    cells: Iterable[Cell],
    *,
    max_size: int,
    max_candidates: int,
    exclude: Iterable[tuple[str, ...]] = (),
    substitute: bool = False,
) -> tuple[InstanceSet, list[Fill]]:
    """Fill every cell with distinct boards, none of them in `exclude`.

    Args:
      key: a typed key; equal arguments give equal sets.
      max_size: the padding N of the boards.
      max_candidates: boards drawn for one cell before it is left as it is.
      exclude: boards in the published symbols, such as the validation set's.
      substitute: make up for boards of one kind (needing a wait, or not) by boards of the other, so
        that a budget is kept; what was missing is reported all the same.
    Returns: the boards, cell by cell in the order of the generator, and a `Fill` for each cell.
    Raises:
      UserError: no board at all could be made.
    """
    seen = set(exclude)
    parts: list[InstanceSet] = []
    fills = []
    for number, cell in enumerate(cells):
        place = jax.random.fold_in(key, number)
        waits = round(cell.wait_ratio * cell.count)
        wanted = {True: waits, False: cell.count - waits}
        made, missing, tried = _fill(place, cell, wanted, seen, max_size, max_candidates)
        parts += made
        fills.append(Fill(cell, missing[True], missing[False], tried))
        if substitute and not fills[-1].complete:
            other = {kind: missing[not kind] for kind in missing}
            place = jax.random.fold_in(place, 1 << 20)
            parts += _fill(place, cell, other, seen, max_size, max_candidates)[0]
    if not parts:
        raise UserError("no board could be made: " + "; ".join(map(str, fills)))
    return _concatenate(parts), fills


def environment_of(boards: InstanceSet, fills: Iterable[Fill]) -> dict[str, dict[str, float]]:
    """By map size, what the engineer's Environment Statistics block says of a round's boards."""
    solutions = jax.tree.map(np.asarray, boards.solutions)
    straight = np.asarray(_sum_of_distances(jax.tree.map(jnp.asarray, boards.instances)))
    statistics = {}
    for fill in fills:
        cell = fill.cell
        rows = np.flatnonzero(boards.instances.size == cell.size)
        used = cell.count - fill.missing_wait - fill.missing_no_wait
        values = {
            "acceptance": used / max(fill.candidates, 1),
            "missing": fill.missing_wait + fill.missing_no_wait,
        }
        if len(rows):
            costs = solutions.sum_of_costs[rows]
            values["mean_sum_of_costs"] = float(costs.mean())
            values["conflict_density"] = float((costs > straight[rows]).mean())
        statistics[str(cell.size)] = {name: float(f"{value:.6g}") for name, value in values.items()}
    return statistics


@jax.jit
def _sum_of_distances(boards: Instance) -> jax.Array:
    """int32 (B,): the steps that the agents of each board would need were they alone."""

    def one(board: Instance) -> jax.Array:
        fields = jax.vmap(distances, (None, 0))(board.holes, board.goals)
        steps = fields[jnp.arange(len(board.starts)), board.starts[:, 0], board.starts[:, 1]]
        return jnp.sum(jnp.where(board.agent_mask, steps, 0), dtype=jnp.int32)

    return jax.vmap(one)(boards)


def cells_of(configuration: LakeConfiguration, instances: int, *, num_agents: int) -> list[Cell]:
    """Split a round's budget over the map sizes by their data ratios.

    Whole numbers by largest remainder, so that the counts sum to `instances`.
    """
    sizes = sorted(configuration.sizes)
    exact = np.array([configuration.sizes[size].data_ratio for size in sizes]) * instances
    counts = np.floor(exact + 1e-9).astype(int)
    for index in np.argsort(counts - exact, kind="stable")[: instances - counts.sum()]:
        counts[index] += 1
    return [
        Cell(size, knobs.hole_ratio, knobs.wait_ratio, int(count), num_agents)
        for size, count in zip(sizes, counts, strict=True)
        for knobs in [configuration.sizes[size]]
        if count
    ]


def grid_cells(
    sizes: Sequence[int],
    hole_ratios: Sequence[float],
    wait_ratios: Sequence[float],
    per_cell: int,
    *,
    num_agents: int,
) -> list[Cell]:
    """Every size with every hole ratio and every wait ratio, `per_cell` boards each."""
    return [
        Cell(size, holes, waits, per_cell, num_agents)
        for size in sizes
        for holes in hole_ratios
        for waits in wait_ratios
    ]


def _fill(
    key: jax.Array,
    cell: Cell,
    wanted: dict[bool, int],
    seen: set[tuple[str, ...]],
    max_size: int,
    limit: int,
) -> tuple[list[InstanceSet], dict[bool, int], int]:
    """Draw boards that need a wait (`wanted[True]`) and that do not; add them to `seen`.

    Returns: the boards, how many of each kind are missing, and how many candidates were drawn.
    """
    missing = dict(wanted)
    parts = []
    candidates = attempt = 0
    while any(missing.values()) and candidates < limit:
        ask = min(sum(missing.values()), CAPACITY)
        params = _asking(ask, cell, missing[True] / sum(missing.values()))
        made = jax.device_get(
            _generate(jax.random.fold_in(key, attempt), params, max_size, cell.num_agents, limit)
        )
        attempt += 1
        candidates += int(made.candidates[0])
        rows, grids = [], []
        for row in np.flatnonzero(made.filled):
            grid = tuple(format_grid(_row(made.instances, row)))
            waits = bool(made.solutions.needs_wait[row])
            if grid not in seen and missing[waits]:
                seen.add(grid)
                missing[waits] -= 1
                rows.append(row)
                grids.append(grid)
        if rows:
            instances, solutions = _row((made.instances, made.solutions), np.asarray(rows))
            parts.append(InstanceSet(instances, solutions, tuple(grids)))
    return parts, missing, candidates


def _asking(count: int, cell: Cell, wait_ratio: float) -> LakeParams:
    """`count` boards of a cell; the other places go to boards that can't be made and cost nothing.

    So one compilation serves any count.
    """
    return LakeParams(
        size=jnp.array([cell.size, 0], jnp.int32),
        data_ratio=jnp.array([count, CAPACITY - count], jnp.float32),
        hole_ratio=jnp.array([cell.hole_ratio, 0], jnp.float32),
        wait_ratio=jnp.array([wait_ratio, 0], jnp.float32),
        num_agents=jnp.array([cell.num_agents, 0], jnp.int32),
    )


@functools.partial(jax.jit, static_argnames=("max_size", "max_agents", "limit"))
def _generate(
    key: jax.Array, params: LakeParams, max_size: int, max_agents: int, limit: int
) -> Generated:
    return jaxlake.generate(
        key,
        params,
        CAPACITY,
        max_size=max_size,
        max_agents=max_agents,
        horizon=HORIZON,
        batch_size=BATCH_SIZE,
        max_candidates=limit,
    )


def _row(tree: Any, rows: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[rows], tree)


def _concatenate(parts: Sequence[InstanceSet]) -> InstanceSet:
    instances, solutions = jax.tree.map(
        lambda *leaves: np.concatenate(leaves),
        *[(part.instances, part.solutions) for part in parts],
    )
    return InstanceSet(instances, solutions, sum((part.grids for part in parts), ()))
