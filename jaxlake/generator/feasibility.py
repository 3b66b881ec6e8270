"""Feasibility of board sets: acceptance rates of candidates on a grid of parameters.

A set in which a share w of the boards needs a wait takes max(w / p, (1 - w) / q) candidates per
board. Here p and q are the shares of candidates that are solvable with and without a wait. The
acceptance rate is the inverse, boards per candidate.
"""

import functools
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board import limits
from jaxlake.generator.candidates import decode_boards, draw_codes
from jaxlake.runtime.random_keys import check_key
from jaxlake.solver import DEFAULT_HORIZON, Status, solve_batch
from jaxlake.solver.many_agents import candidate_max_expansions
from jaxlake.statistics.intervals import wilson_interval

_TABLE_FILE = "feasibility_table.json"
_BATCH_SIZE = 2048


@dataclass(frozen=True)
class KindSurvey:
    """Counts of candidates of one kind by outcome. No candidates exist of an infeasible kind."""

    num_agents: int
    size: int
    holes: int
    candidates: int
    wait: int  # solvable, and needs a wait
    no_wait: int  # solvable, and needs no wait
    unsolvable: int  # proved unsolvable
    unknown: int  # the solver gave up

    @property
    def boards(self) -> int:
        """Number of distinct boards of this kind, solvable or not."""
        num_cells = self.size**2
        num_free = num_cells - self.holes
        return math.comb(num_cells, self.holes) * math.perm(num_free, 2 * self.num_agents)

    def acceptance(self, wait_ratio: float) -> float:
        """Return boards per candidate of a large set, or 0 if no required board was drawn."""
        candidates = max(self.candidates, 1)
        return _acceptance_rate(wait_ratio, self.wait / candidates, self.no_wait / candidates)

    def acceptance_interval(self, wait_ratio: float) -> tuple[float, float]:
        """Return 95% bounds, from the Wilson bounds of the two shares that determine the rate."""
        if not self.candidates:
            return 0.0, 0.0
        bounds = wilson_interval([self.wait, self.no_wait], [self.candidates] * 2)
        low, high = (_acceptance_rate(wait_ratio, *shares.tolist()) for shares in bounds)
        return low, high


def _acceptance_rate(wait_ratio: float, wait: float, no_wait: float) -> float:
    pairs = ((wait, wait_ratio), (no_wait, 1 - wait_ratio))
    return min(1.0, *(share / ratio for share, ratio in pairs if ratio))


def survey(
    key: jax.Array,
    strata: Sequence[tuple[int, int, int]],
    *,
    candidates: int = 2048,
    horizon: int = DEFAULT_HORIZON,
) -> list[KindSurvey]:
    """Draw and solve candidates of each kind, and return the counts of their outcomes.

    Args:
        key: Typed PRNG key.
        strata: Kinds (num_agents, size, holes).
        candidates: Candidates per kind, 1 to 2**20.
        horizon: Longest plan in steps, see `solve`.

    Returns:
        One `KindSurvey` per kind, in the order of `strata`.

    Raises:
        TypeError: `key` is not a typed key.
        ValueError: An argument is out of range, or the key has kind `rbg` or `unsafe_rbg`.
    """
    if not 1 <= candidates <= 1 << 20:
        raise ValueError(f"candidates must be in [1, {1 << 20}], got {candidates}")
    check_key(key)
    surveys: dict[tuple[int, int, int], KindSurvey] = {}
    for num_agents in sorted({kind[0] for kind in strata}):
        kinds = list(dict.fromkeys(kind for kind in strata if kind[0] == num_agents))
        feasible = [
            kind for kind in kinds if kind[2] >= 0 and kind[2] + 2 * num_agents <= kind[1] ** 2
        ]
        surveys |= {kind: KindSurvey(*kind, 0, 0, 0, 0, 0) for kind in kinds}
        if feasible:
            sizes, holes = jnp.array(feasible, jnp.int32).T[1:]
            max_size, total = max(kind[1] for kind in feasible), len(feasible) * candidates
            options = (num_agents, max_size, candidates, horizon, min(_BATCH_SIZE, total))
            counts = _count_outcomes(key, sizes, holes, *options)
            for kind, row in zip(feasible, np.asarray(counts).tolist(), strict=True):
                surveys[kind] = KindSurvey(*kind, candidates, *row)
    return [surveys[kind] for kind in strata]


@functools.partial(jax.jit, static_argnums=range(3, 8))
def _count_outcomes(
    key: jax.Array,
    size: jax.Array,
    holes: jax.Array,
    num_agents: int,
    max_size: int,
    num_candidates: int,
    horizon: int,
    batch_size: int,
) -> jax.Array:
    """Return int32 (G, 4), the counts of candidates by outcome in the order of `KindSurvey`."""
    G = size.shape[0]
    padding = {"max_size": max_size, "max_agents": num_agents}
    fold_in = jax.vmap(jax.random.fold_in)
    keys = fold_in(fold_in(jnp.broadcast_to(key, G), size), holes)

    def count_batch(counts: jax.Array, batch: jax.Array) -> tuple[jax.Array, None]:
        lane = batch * batch_size + jnp.arange(batch_size, dtype=jnp.int32)
        kind = jnp.minimum(lane // num_candidates, G - 1)
        agents = jnp.full(batch_size, num_agents, jnp.int32)
        lane_sizes, index = size[kind], lane % num_candidates
        codes = draw_codes(keys[kind], index, lane_sizes, holes[kind], agents, **padding)
        boards = decode_boards(codes, lane_sizes, agents, **padding)
        # Count exactly the boards that `generate` keeps.
        max_expansions = candidate_max_expansions(boards)
        solutions = solve_batch(boards, horizon=horizon, max_expansions=max_expansions)
        is_optimal = solutions.status == Status.OPTIMAL
        outcomes = [is_optimal & solutions.needs_wait, is_optimal & ~solutions.needs_wait]
        outcomes += [solutions.status == status for status in (Status.UNSOLVABLE, Status.UNKNOWN)]
        flags = jnp.stack(outcomes, axis=1) & (lane < G * num_candidates)[:, None]
        return counts + jax.ops.segment_sum(flags.astype(jnp.int32), kind, G), None

    batches = jnp.arange(-(-G * num_candidates // batch_size), dtype=jnp.int32)
    return jax.lax.scan(count_batch, jnp.zeros((G, 4), jnp.int32), batches)[0]


@dataclass(frozen=True)
class FeasibilityRow:
    """Counts and acceptance rate for one combination of parameters."""

    num_agents: int
    size: int
    hole_ratio: float
    wait_ratio: float
    holes: int
    boards: int  # number of distinct boards, solvable or not
    candidates: int
    optimal: int
    unsolvable: int
    unknown: int
    wait_share: float  # of the solvable boards
    acceptance: float  # boards per candidate of a large set
    acceptance_low: float  # 95% bounds
    acceptance_high: float
    problem: str | None  # why the set is infeasible, or why no candidate fits


def feasibility_map(
    key: jax.Array,
    *,
    num_agents: Iterable[int] = (2,),
    sizes: Iterable[int] = range(2, 11),
    hole_ratios: Iterable[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    wait_ratios: Iterable[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
    candidates: int = 2048,
    horizon: int = DEFAULT_HORIZON,
) -> list[FeasibilityRow]:
    """Return which sets can be generated, and their acceptance rates, for a grid of parameters.

    Args:
        key: Typed PRNG key.
        num_agents: Numbers of agents, 1 to 5.
        sizes: Board sides, 2 to 32.
        hole_ratios: Shares of holes, 0 to 1.
        wait_ratios: Shares of boards that need a wait, 0 to 1.
        candidates: Candidates per kind, 1 to 2**20.
        horizon: Longest plan in steps, see `solve`.

    Returns:
        One row per combination; the number of agents varies slowest, the wait ratio fastest.

    Raises:
        ValueError: A ratio, size or number of agents is out of range, or the key has kind `rbg` or
            `unsafe_rbg`.
    """
    wait_ratios = [float(ratio) for ratio in wait_ratios]
    grid = list(itertools.product(num_agents, sizes, map(float, hole_ratios)))
    _check_grid(grid, wait_ratios)
    kinds = [(agents, size, limits.holes_on_board(size, ratio)) for agents, size, ratio in grid]
    surveys = survey(key, kinds, candidates=candidates, horizon=horizon)
    return [
        _make_row(kind_survey, hole_ratio, wait_ratio)
        for (_, _, hole_ratio), kind_survey in zip(grid, surveys, strict=True)
        for wait_ratio in wait_ratios
    ]


def _check_grid(grid: Sequence[tuple[int, int, float]], wait_ratios: Sequence[float]) -> None:
    num_agents, sizes, hole_ratios = zip(*grid, strict=True) if grid else ((), (), ())
    for name, values, low, high in (
        ("num_agents", num_agents, limits.MIN_AGENTS, limits.MAX_AGENTS),
        ("sizes", sizes, limits.MIN_SIZE, limits.MAX_SIZE),
        ("hole_ratios", hole_ratios, 0, 1),
        ("wait_ratios", wait_ratios, 0, 1),
    ):
        if not values:
            raise ValueError(f"{name} must have at least 1 value, got none")
        for value in values:
            if not low <= value <= high:
                raise ValueError(f"{name} must be in [{low}, {high}], got {value}")


def _make_row(kind_survey: KindSurvey, hole_ratio: float, wait_ratio: float) -> FeasibilityRow:
    num_optimal = kind_survey.wait + kind_survey.no_wait
    acceptance_low, acceptance_high = kind_survey.acceptance_interval(wait_ratio)
    copied_fields = ("num_agents", "size", "holes", "boards", "candidates", "unsolvable", "unknown")
    return FeasibilityRow(
        **{name: getattr(kind_survey, name) for name in copied_fields},
        hole_ratio=hole_ratio,
        wait_ratio=wait_ratio,
        optimal=num_optimal,
        wait_share=kind_survey.wait / num_optimal if num_optimal else 0.0,
        acceptance=kind_survey.acceptance(wait_ratio),
        acceptance_low=acceptance_low,
        acceptance_high=acceptance_high,
        problem=limits.infeasibility(kind_survey.size, hole_ratio, kind_survey.num_agents)
        or _describe_missing_kind(kind_survey, wait_ratio),
    )


def _describe_missing_kind(kind_survey: KindSurvey, wait_ratio: float) -> str | None:
    sample = f"of {kind_survey.candidates} candidates"
    if not kind_survey.wait + kind_survey.no_wait:
        return f"{sample} none was solvable"
    if wait_ratio > 0 and not kind_survey.wait:
        return f"{sample} none needed a wait"
    if wait_ratio < 1 and not kind_survey.no_wait:
        return f"{sample} all solvable ones needed a wait"
    return None


def acceptance(
    size: int, hole_ratio: float, wait_ratio: float, num_agents: int = 2
) -> float | None:
    """Return the share of candidates that a large set of such boards can use.

    The shares come from counts that the package ships, interpolated between numbers of holes.

    Args:
        size: Side of the board.
        hole_ratio: Share of all cells that are holes.
        wait_ratio: Share of the boards that need a wait, 0 to 1.
        num_agents: Number of agents.

    Returns:
        The acceptance rate. 0 means that the set is infeasible or that no candidate of a required
        kind was seen. None means that the table does not cover the arguments: it has two agents,
        sizes 2 to 10 and hole ratios 0 to 0.5.

    Raises:
        ValueError: `wait_ratio` is not in [0, 1].
    """
    if not 0.0 <= wait_ratio <= 1.0:
        raise ValueError(f"wait_ratio must be in [0, 1], got {wait_ratio}")
    if limits.infeasibility(size, hole_ratio, num_agents) is not None:
        return 0.0
    surveys = _load_shipped_surveys().get((num_agents, size), ())
    holes = limits.holes_on_board(size, hole_ratio)
    for kind_survey in surveys:
        if kind_survey.holes == holes:
            return kind_survey.acceptance(wait_ratio)
    for below, above in itertools.pairwise(surveys):
        if below.holes < holes < above.holes and above.candidates:
            weight = (holes - below.holes) / (above.holes - below.holes)
            wait, no_wait = (
                (1 - weight) * getattr(below, kind) / below.candidates
                + weight * getattr(above, kind) / above.candidates
                for kind in ("wait", "no_wait")
            )
            return _acceptance_rate(wait_ratio, wait, no_wait)
    return None


@functools.cache
def _load_shipped_surveys() -> dict[tuple[int, int], tuple[KindSurvey, ...]]:
    """Return the shipped counts by (num_agents, size), holes ascending."""
    text = resources.files(__package__).joinpath(_TABLE_FILE).read_text(encoding="utf-8")
    table: dict[tuple[int, int], list[KindSurvey]] = {}
    for fields in json.loads(text)["strata"]:
        kind_survey = KindSurvey(**fields)
        table.setdefault((kind_survey.num_agents, kind_survey.size), []).append(kind_survey)
    return {kind: tuple(sorted(rows, key=lambda row: row.holes)) for kind, rows in table.items()}
