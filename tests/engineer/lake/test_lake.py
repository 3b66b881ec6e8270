"""The lake's configurations, bounds and domain."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from engineer.domain import InfeasibleError
from engineer.lake import Bounds, LakeConfiguration, SizeKnobs, lake_domain
from jaxlake import Failure, infeasibility
from jaxlake.generator import acceptance

KNOBS = {"data_ratio": 1.0, "hole_ratio": 0.2, "wait_ratio": 0.3}


@pytest.mark.parametrize("knob", list(KNOBS))
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.01, 1.01, True, "0.5", None])
def test_non_ratio_knob_is_rejected_by_name(knob, value):
    with pytest.raises(ValidationError, match=knob):
        SizeKnobs(**KNOBS | {knob: value})


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({3: KNOBS, 4: KNOBS}, "the shares of all groups must sum to 1, got a sum of 2"),
        ({3: KNOBS | {"data_ratio": 0.999}}, "sum to 1, got a sum of 0.999"),
        ({}, "at least 1"),
        ({1: KNOBS}, "greater than or equal to 2"),
        ({3: KNOBS | {"holes": 1}}, "Extra inputs"),
        ({"3": KNOBS | {"data_ratio": 0.5}, 3: KNOBS | {"data_ratio": 0.5}}, "size 3 .*more than"),
    ],
)
def test_lake_configuration_rejects_inconsistent_sizes(sizes, message):
    with pytest.raises(ValidationError, match=message):
        LakeConfiguration(sizes=sizes)


def test_configuration_is_frozen_and_round_trips(current):
    assert LakeConfiguration.model_validate_json(current.model_dump_json()) == current
    assert (
        LakeConfiguration.model_validate(yaml.safe_load(yaml.safe_dump(current.model_dump())))
        == current
    )
    with pytest.raises(ValidationError, match="frozen"):
        current.sizes = {}
    with pytest.raises(ValidationError, match="frozen"):
        current.sizes[3].hole_ratio = 0.5


def test_configuration_values_are_in_size_order(bounds, current):
    reversed_lake = LakeConfiguration(sizes=dict(reversed(current.sizes.items())))
    assert list(reversed_lake.values()) == ["3", "4", "5"]
    assert reversed_lake.values()["4"] == {"data_ratio": 0.3, "hole_ratio": 0.1, "wait_ratio": 0.5}
    assert bounds.make(reversed_lake.values()) == current
    assert Bounds(sizes=(10, 3, 4)).groups == ("3", "4", "10")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_hole_ratio": 0.33}, "max_hole_ratio must be a multiple of 0.05, got 0.33"),
        ({"max_hole_ratio": 0.55}, "max_hole_ratio\n.*less than or equal to 0.5"),
        ({"min_share": 0.35}, "min_share must be at most 0.3333 for 3 map sizes, got 0.35"),
        ({"sizes": (3, 3)}, r"map sizes must be distinct, got 3, 3"),
        ({"sizes": ()}, "at least 1"),
        ({"sizes": (1, 2)}, "greater than or equal to 2"),
        ({"max_holes": 0.1}, "max_holes\n.*Extra inputs"),
    ],
)
def test_inconsistent_bounds_are_rejected(values, message):
    with pytest.raises(ValidationError, match=message):
        Bounds(**{"sizes": (3, 4, 5)} | values)


def test_lake_terms_match_verifier_and_statistics(domain):
    failure_keys = [label.key for label in domain.failures]
    assert failure_keys == [kind.label for kind in Failure if kind != Failure.NONE]
    assert domain.group_name("3") == "3x3"
    assert domain.failure_label("hole").word == "hole"
    assert domain.failure_label("meteor").name == "meteor"
    words = [label.word for label in (*domain.failures, *domain.scores, *domain.statistics)]
    assert len(set(words)) == len(words)
    assert all(word.isalpha() and word.islower() for word in words)


@settings(max_examples=60)
@given(
    size=st.integers(2, 10),
    hole_units=st.integers(0, 10),
    wait_units=st.integers(0, 20),
    num_agents=st.integers(2, 5),
)
def test_lake_domain_repairs_infeasible_kinds(size, hole_units, wait_units, num_agents):
    domain = lake_domain(Bounds(sizes=(size,)), num_agents)
    request = {"data_ratio": 1.0, "hole_ratio": hole_units / 20, "wait_ratio": wait_units / 20}

    def is_feasible(hole_ratio: float, wait_ratio: float) -> bool:
        if infeasibility(size, hole_ratio, num_agents) is not None:
            return False
        rate = acceptance(size, hole_ratio, wait_ratio, num_agents)
        return rate is None or rate >= 1e-3

    # All grid points with at most the requested holes.
    grid = [(h / 20, w / 20) for h in range(hole_units, -1, -1) for w in range(21)]
    choices = [point for point in grid if is_feasible(*point)]
    optimum = min(
        choices, key=lambda p: (-p[0], round(abs(p[1] - wait_units / 20), 9), p[1]), default=None
    )
    if optimum is None:
        with pytest.raises(InfeasibleError):
            domain.nearest(str(size), request)
    else:
        nearest_knobs = domain.nearest(str(size), request)
        assert (nearest_knobs["hole_ratio"], nearest_knobs["wait_ratio"]) == optimum
