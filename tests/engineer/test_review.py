"""Reviews read, repair, bound and reject answers."""

import itertools
import json
import math
import time
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engineer import Configuration, Review, StepLimit, review_answer
from engineer.lake import Bounds, lake_domain
from engineer.space import answer_text
from tests.engineer.builders import (
    BOUNDS,
    CURRENT,
    SIZES,
    bounds_strategy,
    column,
    data_shares,
    make_answer,
    make_lake,
    on_grid,
)

VALID_ANSWER = answer_text(CURRENT)


def review(
    text: str,
    *,
    bounds: Bounds = BOUNDS,
    num_agents: int = 2,
    current: Configuration = CURRENT,
    max_step: float | None = None,
) -> Review:
    return review_answer(text, current, make_lake(bounds, num_agents), StepLimit(max_step=max_step))


def answer_from_rows(*rows: Sequence[float], groups: Sequence[int] = SIZES) -> str:
    """Return an answer from rows of data, hole and wait ratio."""
    knobs = (dict(zip(Bounds.knobs, row, strict=True)) for row in rows)
    return json.dumps(dict(zip(map(str, groups), knobs, strict=True)))


def repair_names(decision: Review) -> list[str]:
    return [f"{repair.name} {repair.field}" for repair in decision.repairs]


# Reading


ANSWER_TEMPLATES = [
    "ANSWER",
    "```json\nANSWER\n```",
    'I raise the holes {a bit} because "4x4" is easy.\n\nANSWER\nThat\'s my plan.',
    '<think>maybe OTHER? no: {"3": {}}</think>ANSWER',
    "OTHER was wrong, so now: ANSWER",
    'My answer: {"configuration": ANSWER, "reason": "holes {and} waits"}',
    'An odd quote " and a brace { before: ANSWER',
    "ANSWER\n<think>OTHER and so on",
    "ANSWER or better OTHE",
    "é日本語\ud800\x00ANSWER",
    "{" * 500 + "ANSWER" + "}" * 500,
]


@pytest.mark.parametrize("template", ANSWER_TEMPLATES, ids=range(len(ANSWER_TEMPLATES)))
def test_review_finds_last_complete_answer(template):
    decoy = make_answer(s3_data_ratio=0.2, s4_data_ratio=0.6)
    text = (
        template.replace("ANSWER", VALID_ANSWER).replace("OTHER", decoy).replace("OTHE", decoy[:-9])
    )
    decision = review(text)
    assert (decision.kind, decision.configuration) == ("unchanged", CURRENT)
    assert decision.repairs == decision.diff == ()


REJECTED_ANSWERS = {
    "": "no complete JSON object",
    "3: {data_ratio: 0.5}": "no complete JSON object",
    '{"three": 1}': "no complete JSON object",
    VALID_ANSWER[:-1]: "no complete JSON object",
    f"<think>I could write {VALID_ANSWER}": "the thinking block is never closed",
    f"[THINK]\nI could write {VALID_ANSWER}": "the thinking block is never closed",
    VALID_ANSWER.replace("}}", ",}}"): "can't be read",
    make_answer(s3_hole_ratio="0.2"): r'3.hole_ratio must be a number, "\+1", "=", "-1", got "0.2"',
    make_answer(s3_hole_ratio=True): r'3.hole_ratio must be a number, "\+1", "=", "-1", got true',
    make_answer(s3_hole_ratio=[0.2]): "3.hole_ratio must be a number, .*, got a list",
    make_answer(s3_hole_ratio={"is": 1}): "3.hole_ratio must be a number, .*, got an object",
    make_answer(s3_hole_ratio=math.nan): "3.hole_ratio must be a finite number, got nan",
    VALID_ANSWER.replace("0.25", "9" * 5000): "3.wait_ratio must be a finite number, got inf",
    make_answer(s3_data_ratio=-1, s4_data_ratio=-0.0, s5_data_ratio=0): "data_ratio is 0 for every",
    make_answer(s3_colour=1): r'3\."colour" is not one of data_ratio, hole_ratio, wait_ratio',
    VALID_ANSWER.replace('"5"', '"6"'): 'map size "6" is not one of 3, 4, 5; map size 5 is missing',
    VALID_ANSWER.replace('"5"', '"4"'): "map size 4 is given more than once; map size 5 is missing",
    VALID_ANSWER.replace('"5"', '"05"'): 'map size "05" is not one of',
    VALID_ANSWER.replace(
        '"wait_ratio":0.25', '"hole_ratio":0.1'
    ): "in map size 3, hole_ratio is given m",
    VALID_ANSWER.replace(',"wait_ratio":0.25', ""): "3.wait_ratio is missing",
    '{"3":0.5,"4":0.3,"5":0.2}': r"map size 3 must be an object .*; .*; map size 5",
    '{"6":1,"7":1,"8":1,"9":1}': r"\(and 4 more\)",
}


@pytest.mark.parametrize("text", REJECTED_ANSWERS, ids=range(len(REJECTED_ANSWERS)))
def test_review_rejects_incomplete_structure(text):
    decision = review(text)
    assert (decision.kind, decision.configuration) == ("rejected", None)
    with pytest.raises(AssertionError, match=REJECTED_ANSWERS[text]):
        raise AssertionError(decision.reason)


@pytest.mark.parametrize(
    ("changes", "ratios"),
    [
        ({"s3_hole_ratio": "+1", "s4_hole_ratio": "-1", "s5_hole_ratio": "="}, [0.25, 0.05, 0.0]),
        ({"s3_hole_ratio": "+", "s5_hole_ratio": "-1"}, [0.25, 0.1, 0.0]),
        ({"s3_hole_ratio": 0.3, "s4_hole_ratio": "+1"}, [0.3, 0.15, 0.0]),
    ],
)
def test_json_accepts_edits_and_numbers(changes, ratios):
    decision = review(make_answer(**changes))
    assert (decision.kind, column(decision.configuration, "hole_ratio")) == ("accepted", ratios)


def test_json_share_edits_equal_edit_rows():
    json_decision = review(make_answer(s3_data_ratio="-1", s4_data_ratio="=", s5_data_ratio="+1"))
    assert json_decision.configuration == review("n3 - = =\nn4 = = =\nn5 + = =").configuration
    assert data_shares(json_decision) == [0.45, 0.3, 0.25]


# Repairing


@pytest.mark.parametrize(
    ("shares", "kind", "expected_shares"),
    [
        ((0.35, 0.35, 0.3), "accepted", [0.35, 0.35, 0.3]),
        ((0.33, 0.37, 0.3), "accepted", [0.35, 0.35, 0.3]),  # off the grid, but they sum to 1
        ((0.1 + 0.2, 0.3, 0.4), "accepted", [0.3, 0.3, 0.4]),  # 1.0000000000000002
        ((0.4, 0.35, 0.35), "repaired", [0.35, 0.35, 0.3]),  # 1.1
        ((0.35, 0.35, 0.29), "repaired", [0.35, 0.35, 0.3]),  # 0.99
        ((50, 30, 20), "repaired", [0.35, 0.35, 0.3]),  # never read as per cents
    ],
)
def test_unnormalised_shares_are_repaired(shares, kind, expected_shares):
    changes = dict(zip(("s3_data_ratio", "s4_data_ratio", "s5_data_ratio"), shares, strict=True))
    decision = review(make_answer(**changes))
    assert (decision.kind, data_shares(decision)) == (kind, expected_shares)


def test_infeasible_size_is_rejected_unless_its_share_is_zero():
    domain = lake_domain(BOUNDS, acceptance=lambda size, *knobs: float(size > 3))
    decision = review_answer(VALID_ANSWER, CURRENT, domain)
    assert decision.reason == "map size 3: next to no board can be made"
    answer_without_size_3 = make_answer(s3_hole_ratio=0.5, s3_data_ratio=0, s4_data_ratio=0.8)
    assert review_answer(answer_without_size_3, CURRENT, domain).kind == "accepted"


# Bounding the step


def to_steps(configuration: Configuration | None, knob: str, bounds: Bounds = BOUNDS) -> list[int]:
    return [round(value / bounds.step) for value in column(configuration, knob)]


def list_compositions(total: int, num_parts: int) -> list[tuple[int, ...]]:
    """Return all ways to split units into parts."""
    cuts = itertools.combinations(range(total + num_parts - 1), num_parts - 1)
    return [
        tuple(b - a - 1 for a, b in itertools.pairwise((-1, *cut, total + num_parts - 1)))
        for cut in cuts
    ]


def squared_error(parts: Sequence[int], target: Sequence[int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(parts, target, strict=True))


@settings(max_examples=100)
@given(
    data=st.data(),
    bounds=bounds_strategy,
    max_step=st.sampled_from([0.01, 0.05, 0.1, 0.15, 0.3, 0.5]),
)
def test_guard_keeps_knobs_near_the_request(data, bounds, max_step):
    current, request = data.draw(on_grid(bounds)), data.draw(on_grid(bounds))
    decision = review(answer_text(request), current=current, bounds=bounds, max_step=max_step)
    configurations = (current, request, decision.configuration)
    max_units = max(1, int(Fraction(str(max_step)) / Fraction(str(bounds.step))))
    min_units = round(bounds.min_share / bounds.step)
    for knob in ("hole_ratio", "wait_ratio"):
        columns = (to_steps(configuration, knob, bounds) for configuration in configurations)
        for start, goal, end in zip(*columns, strict=True):
            reachable = [n for n in range(bounds.units + 1) if abs(n - start) <= max_units]
            assert end == min(reachable, key=lambda n: abs(n - goal))
    old_shares, target, new_shares = (
        to_steps(configuration, "data_ratio", bounds) for configuration in configurations
    )
    choices = [
        shares
        for shares in list_compositions(bounds.units, len(SIZES))
        if min(shares) >= min_units
        and all(abs(a - b) <= max_units for a, b in zip(shares, old_shares, strict=True))
    ]
    assert tuple(new_shares) in choices
    error = squared_error(new_shares, target)
    assert error == min(squared_error(shares, target) for shares in choices)


def test_new_group_may_start_with_a_small_share():
    text = answer_from_rows((0.0, 0.5, 0.0), (0.0, 0.5, 0.0), (1.0, 0.5, 0.0), groups=(4, 5, 6))
    decision = review(text, max_step=0.1, bounds=Bounds(sizes=(4, 5, 6)))
    # Sizes 4 and 5 had shares 0.3 and 0.2, 0.6 and 0.4 of their sum.
    assert data_shares(decision) == [0.5, 0.4, 0.1]
    assert column(decision.configuration, "hole_ratio") == [0.2, 0.1, 0.5]
    assert column(decision.configuration, "wait_ratio") == [0.4, 0.9, 0.0]
    # Without a common group, steps are unbounded.
    text = answer_from_rows((0.5, 0.5, 0.0), (0.5, 0.5, 0.0), groups=(6, 7))
    assert review(text, max_step=0.05, bounds=Bounds(sizes=(6, 7))).kind == "accepted"


# Time


BOMBS = {
    "arrays": "[" * 100_000,
    "objects": "{" * 100_000,
    "closed keyed objects": '{"3":' * 50_000 + "1" + "}" * 50_000,
    "arrays in a size": '{"3":' + "[" * 50_000 + "]" * 50_000 + "}",
    "empty objects": "{}" * 50_000,
    "blanks": '{"3"' + " " * 100_000,
    "thoughts": "<think></think>" * 20_000,
    "quotes": '"' * 100_000 + "{" + '"' * 100_000 + "}",
    "key": '{"3":1,"' + "9" * 100_000 + '":1}',
    "almost answers": (VALID_ANSWER[:-1] + "\n") * 500,
    "sizes": "{" + ",".join(f'"{i}":1' for i in range(20_000)) + "}",
    "a name and blanks": "n3" + " " * 500_000 + "n3",
    "signs and a word": "n3" + "   +" * 100_000 + "x",
    "rows": "n3 + + +\n" * 50_000,
    "rows of unknown groups": "".join(f"n{n} + + +\n" for n in range(40_000)),
    "returns and line ends": "n3 +\r\r\n" * 70_000,
    "strange blanks": "n3\u2003+\u00a0+\x0b+\x85" * 60_000,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_rejected_in_linear_time(bomb):
    start = time.process_time()
    decision = review(BOMBS[bomb])
    assert decision.kind == "rejected"
    assert len(decision.reason) < 1000
    assert review(BOMBS[bomb] + VALID_ANSWER).kind == "unchanged"
    assert time.process_time() - start < 5.0
