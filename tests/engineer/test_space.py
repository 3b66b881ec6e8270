"""Knob spaces: bounds, grids, apportionment and answer schemas."""

import json
import math
from functools import partial

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engineer.lake import Bounds
from engineer.space import answer_schema, answer_text, apportion, number_text, percent
from tests.engineer import words
from tests.engineer.builders import from_rows, on_grid

KNOBS = Bounds.knobs


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"step": 0.03}, "step must be a whole percentage that divides 100%, got 0.03"),
        ({"step": 0.055}, "step must be a whole percentage that divides 100%, got 0.055"),
        ({"step": 0.0}, "a whole percentage that divides 100%, got 0"),
        ({"step": 1.5}, "step\n.*less than or equal to 1"),
        ({"max_noise": 0.33}, "max_noise must be a multiple of 0.05, got 0.33"),
        ({"min_share": 0.12}, "min_share must be a multiple of 0.05, got 0.12"),
        ({"min_share": 0.55}, "min_share must be at most 0.5 for 2 topics, got 0.55"),
        ({"max_size": 0.1}, "max_size\n.*Extra inputs"),
    ],
)
def test_inconsistent_space_is_rejected_by_field(values, message):
    with pytest.raises(ValidationError, match=message):
        words.WordSpace(**values)


@pytest.mark.parametrize("step", [0.01, 0.02, 0.05, 0.1, 0.25])
def test_grid_points_are_shortest_decimals(step):
    bounds = Bounds(sizes=(3,), step=step)
    for steps in range(bounds.units + 1):
        value = bounds.from_units(steps)
        assert value == float(f"{steps * step:.2f}")
        assert bounds.to_units(value) == steps


def test_to_units_rounds_to_nearest_grid_point(bounds):
    assert [bounds.to_units(x) for x in (0.024, 0.025, 0.07, 0.075, 0.99)] == [0, 1, 1, 2, 20]


def test_violation_names_the_field_and_its_range(bounds, current):
    assert bounds.violation(current) is None
    tight_bounds = Bounds(sizes=(3, 4, 5), max_hole_ratio=0.1)
    assert tight_bounds.violation(current) == "3.hole_ratio must lie in 0..0.1, got 0.2"
    min_share_bounds = Bounds(sizes=(3, 4, 5), min_share=0.3)
    assert min_share_bounds.violation(current) == "3.data_ratio must lie in 0.3..0.4, got 0.5"
    two_size_bounds = Bounds(sizes=(3, 4))
    assert two_size_bounds.violation(current) == "map sizes must be 3, 4, got 3, 4, 5"
    # Values off the grid are allowed.
    assert Bounds(sizes=(3,)).violation(from_rows((1, 0.123, 0))) is None


@given(
    weights=st.lists(st.floats(0, 1), min_size=1, max_size=9).filter(lambda w: sum(w) > 0),
    units=st.sampled_from([10, 20, 50, 100]),
    minimum=st.integers(0, 1),
)
def test_apportion_sums_to_the_total_within_one_unit(weights, units, minimum):
    parts = apportion(weights, units, minimum)
    assert sum(parts) == units
    assert min(parts) >= minimum
    total = math.fsum(weights)
    for weight, part in zip(weights, parts, strict=True):
        for other_weight, other_part in zip(weights, parts, strict=True):
            # Weights that differ only by rounding errors are ties, which go to the earlier part.
            assert not (weight - other_weight > 1e-9 * total and part < other_part)
    if minimum == 0:
        for weight, part in zip(weights, parts, strict=True):
            assert abs(part - units * weight / total) < 1 + 1e-6


@given(
    weights=st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(lambda w: sum(w) > 0),
    data=st.data(),
)
def test_apportion_respects_each_minimum(weights, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, 20), min_size=len(weights), max_size=6)))
    minimums = [b - a for a, b in zip([0, *cuts], cuts, strict=False)]
    minimums = minimums[: len(weights)]
    parts = apportion(weights, 20, minimums)
    assert sum(parts) == 20
    for part, minimum in zip(parts, minimums, strict=True):
        assert part >= minimum
    # Up to rounding, only a part at its minimum exceeds its proportion.
    total = math.fsum(weights)
    for weight, part, minimum in zip(weights, parts, minimums, strict=True):
        assert part == minimum or part < 20 * weight / total + 1 + 1e-6


@pytest.mark.parametrize(
    ("weights", "minimum", "message"),
    [
        ([0.0, 0.0], 0, "weights must have a positive sum, got 0"),
        ([1.0, 1.0, 1.0], 4, "3 parts of at least 4 don't fit into 10"),
        ([1.0, 1.0], [5, 6], r"2 parts of at least \[5, 6\] don't fit into 10"),
    ],
)
def test_apportion_rejects_invalid_shares(weights, minimum, message):
    with pytest.raises(ValueError, match=message):
        apportion(weights, 10, minimum)


def test_percent_rounds_half_up_and_number_text_is_short():
    assert [percent(x) for x in (0.0, 0.004, 0.005, 0.125, 0.995, 1.0)] == [0, 0, 1, 13, 100, 100]
    expected_texts = ["0", "0.05", "0.5", "1", "10"]
    assert [number_text(x) for x in (0.0, 0.05, 0.5, 1.0, 10.0)] == expected_texts


def make_answer_text(bounds: Bounds, **knobs: str) -> str:
    return "{" + ",".join(f'"{s}":' + make_knobs_text(**knobs) for s in bounds.sizes) + "}"


def make_knobs_text(**knobs: str) -> str:
    values = {"data_ratio": "0.35", "hole_ratio": "0.05", "wait_ratio": "1.00"} | knobs
    return "{" + ",".join(f'"{name}":{value}' for name, value in values.items()) + "}"


@pytest.mark.parametrize("step", [0.01, 0.05])
@given(data=st.data())
def test_answers_of_equal_sizes_have_equal_length(step, data):
    bounds = Bounds(sizes=(3, 10), step=step)
    configuration = data.draw(on_grid(bounds))
    text = answer_text(configuration)
    jsonschema.validate(json.loads(text), answer_schema(bounds))
    assert len(text) == len('{"3":,"10":}') + 2 * len(make_knobs_text())
    assert bounds.make(json.loads(text)) == configuration


def make_schema_acceptor(bounds: Bounds):
    """Return a function that tells whether xgrammar accepts a text; skip without xgrammar."""
    xgrammar = pytest.importorskip("xgrammar")
    accepts = pytest.importorskip("xgrammar.testing")._is_grammar_accept_string
    grammar = xgrammar.Grammar.from_json_schema(
        json.dumps(answer_schema(bounds)), any_whitespace=False, separators=(",", ":")
    )
    return partial(accepts, grammar)


@pytest.mark.parametrize("min_share", [0.0, 0.1])
def test_xgrammar_admits_every_point_of_the_grid(min_share):
    bounds = Bounds(sizes=(3, 4), step=0.05, max_hole_ratio=0.3, min_share=min_share)
    accepts = make_schema_acceptor(bounds)
    for knob in KNOBS:
        low, high = bounds.limits(knob)
        for steps in range(bounds.units + 1):
            value = bounds.from_units(steps)
            for number in (f"{value:g}", f"{value:.2f}"):
                assert accepts(make_answer_text(bounds, **{knob: number})) == (low <= value <= high)
