import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import ValidationError

from engineer.evidence import FAILURE_KINDS, StageEvidence, Tally
from jaxlake import Failure, Instance, Outcome, Statistics, tabulate


def _tabulated(rng: np.random.Generator, batch: int) -> tuple[dict[str, np.ndarray], Statistics]:
    """Random outcomes on random boards, and their statistics from the device."""
    N = 6
    size = rng.integers(3, N + 1, batch)
    inside = np.arange(N) < size[:, None]
    board = inside[:, :, None] & inside[:, None, :]
    holes = (rng.random((batch, N, N)) < 0.3) | ~board
    failure = rng.integers(0, len(Failure), batch)
    optimal = (failure == 0) & (rng.random(batch) < 0.5)
    wait = rng.random(batch) < 0.4
    instances = Instance(
        holes=jnp.asarray(holes),
        size=jnp.asarray(size, jnp.int32),
        starts=jnp.zeros((batch, 2, 2), jnp.int8),
        goals=jnp.zeros((batch, 2, 2), jnp.int8),
        agent_mask=jnp.ones((batch, 2), bool),
    )
    nothing = jnp.full(batch, -1, jnp.int16)
    outcomes = Outcome(
        parsed=jnp.asarray(failure != Failure.PARSE_ERROR),
        valid=jnp.asarray(failure == 0),
        optimal_sum_of_costs=jnp.asarray(optimal),
        optimal_makespan=jnp.asarray(failure == 0),
        failure=jnp.asarray(failure, jnp.int8),
        agent=nothing.astype(jnp.int8),
        time=nothing,
        sum_of_costs=nothing,
        makespan=nothing,
        at_goal=jnp.zeros((batch, 2), bool),
    )
    share = 10 * (holes & board).sum((1, 2)) // size**2
    rows = {"size": size, "failure": failure, "optimal": optimal, "wait": wait, "tenth": share}
    return rows, tabulate(instances, jnp.asarray(wait), outcomes)


def test_evidence_counts_what_the_device_counted():
    rows, statistics = _tabulated(np.random.default_rng(7), 400)
    evidence = StageEvidence.from_statistics(2, statistics)
    assert sorted(evidence.validation) == sorted(set(rows["size"].tolist()))
    for size, tally in evidence.validation.items():
        of_size = rows["size"] == size
        _assert_counts(tally, rows, of_size)
        _assert_counts(tally.needs_wait, rows, of_size & rows["wait"])
        _assert_counts(tally.no_wait, rows, of_size & ~rows["wait"])
        assert sum(part.count for part in tally.by_hole_tenth.values()) == tally.count
        for tenth, part in tally.by_hole_tenth.items():
            _assert_counts(part, rows, of_size & (rows["tenth"] == tenth))


def _assert_counts(tally: Tally | None, rows: dict[str, np.ndarray], where: np.ndarray) -> None:
    assert tally is not None
    assert tally.count == where.sum()
    assert tally.valid == tally.optimal_makespan == (where & (rows["failure"] == 0)).sum()
    assert tally.optimal_sum_of_costs == (where & rows["optimal"]).sum()
    for code, kind in enumerate(FAILURE_KINDS, start=1):
        assert tally.failures.get(kind, 0) == (where & (rows["failure"] == code)).sum()


def test_failure_kinds_are_the_lakes_own_in_its_order():
    assert tuple(kind.label for kind in Failure if kind != Failure.NONE) == FAILURE_KINDS


def test_empty_statistics_are_refused():
    _, statistics = _tabulated(np.random.default_rng(0), 1)
    empty = jax.tree.map(jnp.zeros_like, statistics)
    with pytest.raises(ValueError, match="stage 4 hold no validation answers"):
        StageEvidence.from_statistics(4, empty)


def test_evidence_survives_json(evidence):
    assert StageEvidence.model_validate_json(evidence.model_dump_json()) == evidence


@pytest.mark.parametrize(
    "change",
    [
        {"valid": 9},
        {"optimal_sum_of_costs": 9},
        {"count": -1},
        {"failures": {"hole": 1, "meteor": 1}},
        {"valid": 7.5},
    ],
)
def test_a_tally_that_does_not_add_up_is_refused(change):
    tally = {"count": 10, "valid": 8, "optimal_sum_of_costs": 3, "optimal_makespan": 4}
    tally["failures"] = {"hole": 2}
    assert Tally(**tally).percent(8) == 80
    with pytest.raises(ValidationError):
        Tally(**tally | change)
