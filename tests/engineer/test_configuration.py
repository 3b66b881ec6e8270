import json
import math
import re

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engineer.configuration import (
    Bounds,
    LakeConfiguration,
    SizeKnobs,
    answer_pattern,
    answer_schema,
    answer_text,
    apportion,
    configuration_yaml,
    percent,
)

KNOBS = {"data_ratio": 1.0, "hole_ratio": 0.2, "wait_ratio": 0.3}


@pytest.mark.parametrize("knob", list(KNOBS))
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.01, 1.01, True, "0.5", None])
def test_a_knob_that_is_no_ratio_is_refused_by_name(knob, value):
    with pytest.raises(ValidationError, match=knob):
        SizeKnobs(**KNOBS | {knob: value})


def test_more_than_half_the_cells_cannot_be_holes():
    with pytest.raises(ValidationError, match="hole_ratio"):
        SizeKnobs(**KNOBS | {"hole_ratio": 0.51})


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({3: KNOBS, 4: KNOBS}, "sum to 1, they sum to 2"),
        ({3: KNOBS | {"data_ratio": 0.999}}, "sum to 1"),
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


@pytest.mark.parametrize(
    "values",
    [
        {"step": 0.03},
        {"step": 0.055},
        {"step": 0.0},
        {"max_hole_ratio": 0.33},
        {"min_share": 0.35},
        {"sizes": (3, 3)},
        {"sizes": ()},
        {"sizes": (1, 2)},
        {"max_holes": 0.1},
    ],
)
def test_bounds_that_contradict_themselves_are_refused(values):
    with pytest.raises(ValidationError):
        Bounds(**{"sizes": (3, 4, 5)} | values)


@pytest.mark.parametrize("step", [0.01, 0.02, 0.05, 0.1, 0.25])
def test_grid_points_are_the_shortest_decimals(step):
    bounds = Bounds(sizes=(3,), step=step)
    for steps in range(bounds.units + 1):
        value = bounds.from_units(steps)
        assert value == float(f"{steps * step:.2f}")
        assert bounds.to_units(value) == steps


def test_violation_names_the_field_and_what_is_allowed(bounds, current):
    assert bounds.violation(current) is None
    tight = Bounds(sizes=(3, 4, 5), max_hole_ratio=0.1)
    assert tight.violation(current) == "3.hole_ratio must lie in 0..0.1, got 0.2"
    assert "[3, 4]" in (Bounds(sizes=(3, 4)).violation(current) or "")


@given(
    weights=st.lists(st.floats(0, 1), min_size=1, max_size=9).filter(lambda w: sum(w) > 0),
    units=st.sampled_from([10, 20, 50, 100]),
    minimum=st.integers(0, 1),
)
def test_apportioned_units_sum_up_keep_order_and_miss_by_less_than_one(weights, units, minimum):
    parts = apportion(weights, units, minimum)
    assert sum(parts) == units
    assert min(parts) >= minimum
    total = math.fsum(weights)
    for a, b in zip(weights, parts, strict=True):
        for c, d in zip(weights, parts, strict=True):
            # Weights that differ by float error alone are ties, which go to the earlier part.
            assert not (a - c > 1e-9 * total and b < d)
    if minimum == 0:
        for weight, part in zip(weights, parts, strict=True):
            assert abs(part - units * weight / total) < 1 + 1e-6


def test_whole_parts_are_apportioned_exactly():
    assert apportion([0.5, 0.3, 0.2], 20) == [10, 6, 4]
    assert apportion([1, 1, 1], 20) == [7, 7, 6]
    assert apportion([1, 0, 0], 20, 2) == [16, 2, 2]


@pytest.mark.parametrize(("weights", "minimum"), [([0.0, 0.0], 0), ([1.0, 1.0, 1.0], 4)])
def test_what_cannot_be_apportioned_is_refused(weights, minimum):
    with pytest.raises(ValueError, match=r"positive sum|don't fit"):
        apportion(weights, 10, minimum)


def test_halves_of_per_cents_round_up():
    assert [percent(x) for x in (0.0, 0.004, 0.005, 0.125, 0.995, 1.0)] == [0, 0, 1, 13, 100, 100]


def _answer(bounds: Bounds, **knobs: str) -> str:
    return "{" + ",".join(f'"{s}":' + _knobs(**knobs) for s in bounds.sizes) + "}"


def _knobs(**knobs: str) -> str:
    values = {"data_ratio": "0.35", "hole_ratio": "0.05", "wait_ratio": "1.00"} | knobs
    return "{" + ",".join(f'"{name}":{value}' for name, value in values.items()) + "}"


GOOD = [{}, {"hole_ratio": "0.50"}, {"wait_ratio": "0.00"}, {"data_ratio": "0.00"}]
BAD = [{"hole_ratio": "0.55"}, {"wait_ratio": "1.50"}, {"data_ratio": "-0.10"}, {"holes": "0.00"}]
BAD += [{"wait_ratio": '"0.50"'}, {"wait_ratio": "true"}, {"wait_ratio": "NaN"}]
SHORT = [{"hole_ratio": "0.5"}, {"wait_ratio": "0"}, {"wait_ratio": "1"}, {"wait_ratio": "1.0"}]


def test_the_canonical_answer_satisfies_schema_and_pattern(bounds, current):
    text = answer_text(current)
    jsonschema.validate(json.loads(text), answer_schema(bounds))
    assert re.fullmatch(answer_pattern(bounds), text)
    assert text.startswith('{"3":{"data_ratio":0.50,"hole_ratio":0.20,"wait_ratio":0.25},"4":')


@pytest.mark.parametrize("step", [0.01, 0.05])
@given(data=st.data())
def test_all_answers_about_the_same_sizes_are_equally_long_and_keep_their_values(step, data):
    bounds = Bounds(sizes=(3, 10), step=step)
    first = data.draw(st.integers(0, bounds.units))
    sizes = {
        size: SizeKnobs(
            data_ratio=bounds.from_units(share),
            hole_ratio=bounds.from_units(data.draw(st.integers(0, bounds.units // 2))),
            wait_ratio=bounds.from_units(data.draw(st.integers(0, bounds.units))),
        )
        for size, share in ((3, first), (10, bounds.units - first))
    }
    text = answer_text(LakeConfiguration(sizes=sizes))
    assert len(text) == len('{"3":,"10":}') + 2 * len(_knobs())
    assert re.fullmatch(answer_pattern(bounds), text)
    read = {int(size): SizeKnobs(**knobs) for size, knobs in json.loads(text).items()}
    assert read == sizes


def test_xgrammar_accepts_answers_and_nothing_else(bounds, current):
    xgrammar = pytest.importorskip("xgrammar")
    accepts = pytest.importorskip("xgrammar.testing")._is_grammar_accept_string
    by_schema = xgrammar.Grammar.from_json_schema(
        json.dumps(answer_schema(bounds)), any_whitespace=False, separators=(",", ":")
    )
    by_pattern = xgrammar.Grammar.from_regex(answer_pattern(bounds))
    for grammar in (by_schema, by_pattern):
        assert accepts(grammar, answer_text(current))
        for knobs in GOOD:
            assert accepts(grammar, _answer(bounds, **knobs))
        for knobs in BAD:
            assert not accepts(grammar, _answer(bounds, **knobs))
        assert not accepts(grammar, _answer(Bounds(sizes=(3, 4))))
        assert not accepts(grammar, _answer(Bounds(sizes=(4, 3, 5, 6))))
        assert not accepts(grammar, answer_text(current)[:-1])
    assert not accepts(by_pattern, _answer(bounds, wait_ratio="0.36"))
    for knobs in SHORT:
        assert accepts(by_schema, _answer(bounds, **knobs))
        assert not accepts(by_pattern, _answer(bounds, **knobs))


@pytest.mark.parametrize("min_share", [0.0, 0.1])
@pytest.mark.parametrize("step", [0.01, 0.05])
def test_xgrammar_admits_every_point_of_the_grid(step, min_share):
    xgrammar = pytest.importorskip("xgrammar")
    accepts = pytest.importorskip("xgrammar.testing")._is_grammar_accept_string
    bounds = Bounds(sizes=(3, 4), step=step, max_hole_ratio=0.3, min_share=min_share)
    by_schema = xgrammar.Grammar.from_json_schema(
        json.dumps(answer_schema(bounds)), any_whitespace=False, separators=(",", ":")
    )
    by_pattern = xgrammar.Grammar.from_regex(answer_pattern(bounds))
    for knob in KNOBS:
        low, high = bounds.limits(knob)
        for steps in range(bounds.units + 1):
            value = bounds.from_units(steps)
            allowed = low <= value <= high
            short, canonical = (
                _answer(bounds, **{knob: number}) for number in (f"{value:g}", f"{value:.2f}")
            )
            assert accepts(by_schema, short) == allowed, (knob, value)
            assert accepts(by_schema, canonical) == allowed, (knob, value)
            assert accepts(by_pattern, canonical) == allowed, (knob, value)
