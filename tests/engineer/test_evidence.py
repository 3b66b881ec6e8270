from collections import Counter, defaultdict
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import ValidationError

from engineer import Tally
from engineer.evidence import GroupEvidence
from engineer.lake import lake_evidence
from jaxlake import Failure, Instance, Outcome, Statistics, tabulate


def draw_outcomes(
    rng: np.random.Generator, counted: int = 400
) -> tuple[list[dict[str, Any]], Statistics]:
    """Random outcomes on random boards: as plain rows, and their statistics from the device.

    The first `counted` of 400 count, so that the device has one shape to compile.
    """
    N, batch = 6, 400
    size = rng.integers(3, N + 1, batch)
    inside = np.arange(N) < size[:, None]
    board = inside[:, :, None] & inside[:, None, :]
    holes = (rng.random((batch, N, N)) < 0.3) | ~board
    failure = rng.integers(0, len(Failure), batch)
    valid = failure == Failure.NONE
    costs_optimal = valid & (rng.random(batch) < 0.5)
    span_optimal = valid & (rng.random(batch) < 0.8)
    wait = rng.random(batch) < 0.4
    timeless = valid | (failure == Failure.PARSE_ERROR)
    time = np.where(timeless, -1, rng.integers(0, 60, batch))
    nothing = jnp.full(batch, -1, jnp.int16)
    outcomes = Outcome(
        parsed=jnp.asarray(failure != Failure.PARSE_ERROR),
        valid=jnp.asarray(valid),
        optimal_sum_of_costs=jnp.asarray(costs_optimal),
        optimal_makespan=jnp.asarray(span_optimal),
        failure=jnp.asarray(failure, jnp.int8),
        agent=nothing.astype(jnp.int8),
        time=jnp.asarray(time, jnp.int16),
        sum_of_costs=nothing,
        makespan=nothing,
        at_goal=jnp.zeros((batch, 2), bool),
    )
    instances = Instance(
        holes=jnp.asarray(holes),
        size=jnp.asarray(size, jnp.int32),
        starts=jnp.zeros((batch, 2, 2), jnp.int8),
        goals=jnp.zeros((batch, 2, 2), jnp.int8),
        agent_mask=jnp.ones((batch, 2), bool),
    )
    plain = [
        {
            "size": str(size[i]),
            "failure": Failure(failure[i]).label,
            "optimal_sum_of_costs": bool(costs_optimal[i]),
            "optimal_makespan": bool(span_optimal[i]),
            "time": int(time[i]),
            "holes": _percents(int((holes[i] & board[i]).sum()), int(size[i]) ** 2),
            "waits": "wait needed" if wait[i] else "no wait needed",
        }
        for i in range(counted)
    ]
    mask = jnp.arange(batch) < counted
    return plain, tabulate(instances, jnp.asarray(wait), outcomes, mask)


def _percents(holes: int, cells: int) -> str:
    for low in range(0, 100, 10):
        if low * cells <= 100 * holes < (low + 10) * cells:
            return f"{low}-{low + 9}%"
    raise AssertionError(f"{holes} of {cells}")


def tally_of(rows: list[dict[str, Any]]) -> Tally:
    """The tally of some outcomes, one by one."""
    kinds = Counter(row["failure"] for row in rows)
    valid = kinds.pop("none", 0)
    return Tally(
        count=len(rows),
        valid=valid,
        scores={
            name: sum(row[name] for row in rows)
            for name in ("optimal_sum_of_costs", "optimal_makespan")
        },
        failures=dict(kinds),
    )


def by(key: str, rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row[key]].append(row)
    return dict(groups)


def test_evidence_counts_what_a_plain_count_of_the_same_outcomes_counts():
    rows, statistics = draw_outcomes(np.random.default_rng(7))
    evidence = lake_evidence(2, statistics)
    assert evidence.stage == 2
    assert list(evidence.validation) == ["3", "4", "5", "6"]
    for size, of_size in by("size", rows).items():
        tally = evidence.validation[size]
        assert Tally(**tally.model_dump(exclude={"slices"})) == tally_of(of_size)
        assert list(tally.slices) == ["holes", "waits"]
        for factor, levels in tally.slices.items():
            expected = {level: tally_of(part) for level, part in by(factor, of_size).items()}
            assert levels == expected
        assert list(tally.slices["waits"]) == ["no wait needed", "wait needed"]
        lows = [int(level.split("-")[0]) for level in tally.slices["holes"]]
        assert lows == sorted(lows)


@pytest.mark.parametrize(("seed", "counted"), [(7, 400), (8, 31), (9, 6)])
def test_times_of_failures_are_those_of_the_sorted_list(seed, counted):
    rows, statistics = draw_outcomes(np.random.default_rng(seed), counted)
    expected = {}
    for kind, failed in by("failure", rows).items():
        times = sorted(row["time"] for row in failed)
        if times[0] >= 0:
            last = len(times) - 1
            expected[kind] = (times[last // 2], times[9 * last // 10])
    found = lake_evidence(1, statistics).failure_times
    assert {kind: (time.median, time.latest) for kind, time in found.items()} == expected
    assert "none" not in found
    assert "parse_error" not in found


TALLY = {
    "count": 10,
    "valid": 8,
    "scores": {"optimal_sum_of_costs": 3, "optimal_makespan": 4},
    "failures": {"hole": 2},
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"valid": 9}, r"valid 9 \+ failures 2 must be count 10"),
        ({"failures": {"hole": 1}}, r"valid 8 \+ failures 1 must be count 10"),
        ({"scores": {"optimal_makespan": 9}}, "optimal_makespan 9 exceeds valid 8"),
        ({"count": -1}, "count\n.*greater than or equal to 0"),
        ({"failures": {"hole": 3, "swap": -1}}, "failures.swap\n.*greater than or equal to 0"),
        ({"valid": 7.5}, "valid\n.*integer"),
        ({"bonus": 1}, "bonus\n.*Extra inputs"),
    ],
)
@pytest.mark.parametrize("kind", [Tally, GroupEvidence])
def test_a_tally_that_does_not_add_up_is_refused(kind, change, message):
    assert kind(**TALLY).percent(8) == 80
    with pytest.raises(ValidationError, match=message):
        kind(**TALLY | change)
