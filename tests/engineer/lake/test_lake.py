import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from engineer.domain import InfeasibleError
from engineer.lake import Bounds, LakeConfiguration, NearestFeasible, SizeKnobs, lake_domain
from engineer.space import configuration_yaml
from jaxlake import Failure, infeasibility
from jaxlake.generator import acceptance

KNOBS = {"data_ratio": 1.0, "hole_ratio": 0.2, "wait_ratio": 0.3}


@pytest.mark.parametrize("knob", list(KNOBS))
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.01, 1.01, True, "0.5", None])
def test_a_knob_that_is_no_ratio_is_refused_by_name(knob, value):
    with pytest.raises(ValidationError, match=knob):
        SizeKnobs(**KNOBS | {knob: value})


def test_more_than_half_the_cells_cannot_be_holes():
    with pytest.raises(ValidationError, match=r"hole_ratio\n.*less than or equal to 0.5"):
        SizeKnobs(**KNOBS | {"hole_ratio": 0.51})


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({3: KNOBS, 4: KNOBS}, "the shares of all groups must sum to 1, they sum to 2"),
        ({3: KNOBS | {"data_ratio": 0.999}}, "sum to 1, they sum to 0.999"),
        ({}, "at least 1"),
        ({1: KNOBS}, "greater than or equal to 2"),
        ({3: KNOBS | {"holes": 1}}, "Extra inputs"),
        ({"3": KNOBS | {"data_ratio": 0.5}, 3: KNOBS | {"data_ratio": 0.5}}, "size 3 .*more than"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(sizes, message):
    with pytest.raises(ValidationError, match=message):
        LakeConfiguration(sizes=sizes)


def test_a_configuration_survives_json_and_yaml_and_is_frozen(current):
    assert LakeConfiguration.model_validate_json(current.model_dump_json()) == current
    assert LakeConfiguration.model_validate(yaml.safe_load(configuration_yaml(current))) == current
    with pytest.raises(ValidationError, match="frozen"):
        current.sizes = {}
    with pytest.raises(ValidationError, match="frozen"):
        current.sizes[3].hole_ratio = 0.5


def test_sizes_are_in_order_and_values_make_the_same_configuration_again(bounds, current):
    turned = LakeConfiguration(sizes=dict(reversed(current.sizes.items())))
    assert list(turned.values()) == ["3", "4", "5"]
    assert turned.values()["4"] == {"data_ratio": 0.3, "hole_ratio": 0.1, "wait_ratio": 0.5}
    assert bounds.make(turned.values()) == current
    assert Bounds(sizes=(10, 3, 4)).groups == ("3", "4", "10")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_hole_ratio": 0.33}, "max_hole_ratio must be a multiple of 0.05, got 0.33"),
        ({"max_hole_ratio": 0.55}, "max_hole_ratio\n.*less than or equal to 0.5"),
        ({"min_share": 0.35}, "min_share 0.35 for 3 map sizes needs more .* at most 0.3333 is"),
        ({"sizes": (3, 3)}, r"each map size may stand once, got 3, 3"),
        ({"sizes": ()}, "at least 1"),
        ({"sizes": (1, 2)}, "greater than or equal to 2"),
        ({"max_holes": 0.1}, "max_holes\n.*Extra inputs"),
    ],
)
def test_bounds_that_contradict_themselves_are_refused(values, message):
    with pytest.raises(ValidationError, match=message):
        Bounds(**{"sizes": (3, 4, 5)} | values)


def test_the_lakes_words_are_those_of_its_verifier_and_its_statistics(domain):
    kinds = [term.key for term in domain.failures]
    assert kinds == [kind.label for kind in Failure if kind != Failure.NONE]
    assert domain.called("3") == "3x3"
    assert domain.failure("hole").word == "hole"
    assert domain.failure("meteor").name == "meteor"
    words = [term.word for term in (*domain.failures, *domain.scores, *domain.statistics)]
    assert len(set(words)) == len(words)
    assert all(word.isalpha() and word.islower() for word in words)


def nearest_with(
    rates: dict[tuple[float, float], float], most_holes: float = 0.5, max_wait_ratio: float = 1.0
) -> NearestFeasible:
    """Boards fit up to `most_holes`; `rates` is a table by (hole_ratio, wait_ratio), else 1."""
    return NearestFeasible(
        Bounds(sizes=(3, 4, 5), max_wait_ratio=max_wait_ratio),
        feasibility=lambda size, holes, agents: "too full" if holes > most_holes else None,
        acceptance=lambda size, holes, waits, agents: rates.get((holes, waits), 1.0),
        min_acceptance=0.01,
    )


def moved(nearest: NearestFeasible, hole_ratio: float, wait_ratio: float) -> tuple[float, float]:
    asked = {"data_ratio": 0.4, "hole_ratio": hole_ratio, "wait_ratio": wait_ratio}
    found = nearest("3", asked)
    assert found["data_ratio"] == 0.4
    return found["hole_ratio"], found["wait_ratio"]


def test_what_can_be_made_stays_as_it_is_also_off_the_grid():
    assert moved(nearest_with({}), 0.2, 0.25) == (0.2, 0.25)
    assert moved(nearest_with({}), 0.123, 0.456) == (0.123, 0.456)
    assert moved(nearest_with({(0.2, 0.25): 0.01}), 0.2, 0.25) == (0.2, 0.25)


def test_where_nothing_can_be_made_the_reason_is_said():
    with pytest.raises(InfeasibleError, match="too full"):
        moved(nearest_with({}, most_holes=-1.0), 0.2, 0.25)
    nothing = NearestFeasible(Bounds(sizes=(3,)), acceptance=lambda *kind: 0.0)
    with pytest.raises(InfeasibleError, match="map size 3: next to no board can be made"):
        moved(nothing, 0.2, 0.25)


def test_what_is_not_known_will_do_and_without_counts_only_room_is_asked_for():
    unknown = NearestFeasible(Bounds(sizes=(3,)), acceptance=lambda *kind: None)
    assert moved(unknown, 0.2, 0.25) == (0.2, 0.25)
    assert moved(NearestFeasible(Bounds(sizes=(3,)), acceptance=None), 0.2, 1.0) == (0.2, 1.0)


@settings(max_examples=60)
@given(
    size=st.integers(2, 10),
    holes=st.integers(0, 10),
    waits=st.integers(0, 20),
    num_agents=st.integers(2, 5),
)
def test_the_lakes_own_domain_makes_every_kind_into_one_that_can_be_made(
    size, holes, waits, num_agents
):
    domain = lake_domain(Bounds(sizes=(size,)), num_agents)
    asked = {"data_ratio": 1.0, "hole_ratio": holes / 20, "wait_ratio": waits / 20}

    def enough(hole_ratio: float, wait_ratio: float) -> bool:
        if infeasibility(size, hole_ratio, num_agents) is not None:
            return False
        rate = acceptance(size, hole_ratio, wait_ratio, num_agents)
        return rate is None or rate >= 1e-3

    # Every point of the grid with no more holes, the best one first.
    grid = [(h / 20, w / 20) for h in range(holes, -1, -1) for w in range(21)]
    good = [point for point in grid if enough(*point)]
    best = min(good, key=lambda p: (-p[0], round(abs(p[1] - waits / 20), 9), p[1]), default=None)
    if best is None:
        with pytest.raises(InfeasibleError):
            domain.nearest(str(size), asked)
    else:
        found = domain.nearest(str(size), asked)
        assert (found["hole_ratio"], found["wait_ratio"]) == best
