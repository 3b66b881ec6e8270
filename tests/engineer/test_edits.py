"""Relative edits: writing, reading, applying and reviewing."""

import itertools
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engineer import Domain, KnobSpace, review_answer
from engineer.edits import EditError, apply_edits, edits_pattern, edits_text, read_edits
from engineer.lake import Bounds
from engineer.space import answer_text
from tests.engineer import words
from tests.engineer.builders import CURRENT, bounds_strategy, column, from_rows, make_lake, on_grid

LAKE = make_lake()
ROWS = "n3 - = +\nn4 + + =\nn5 = - -"
EDITS = {
    "3": {"data_ratio": -1, "hole_ratio": 0, "wait_ratio": 1},
    "4": {"data_ratio": 1, "hole_ratio": 1, "wait_ratio": 0},
    "5": {"data_ratio": 0, "hole_ratio": -1, "wait_ratio": -1},
}
KEEP_ROWS = "n3 = = =\nn4 = = =\nn5 = = ="


def edits_strategy(space: KnobSpace) -> st.SearchStrategy[dict[str, dict[str, int]]]:
    return st.fixed_dictionaries(
        {
            group: st.fixed_dictionaries({knob: st.integers(-1, 1) for knob in space.knobs})
            for group in space.groups
        }
    )


def apply_rows(rows: str, current=CURRENT, domain: Domain = LAKE) -> dict[str, dict[str, float]]:
    edits = read_edits(rows, domain)
    assert edits is not None
    return apply_edits(edits, current, domain.space)


# Reading and writing


@pytest.mark.parametrize("domain", [LAKE, words.DOMAIN], ids=lambda domain: domain.name)
@given(data=st.data())
def test_edits_round_trip_and_match_the_pattern(domain, data):
    edits = data.draw(edits_strategy(domain.space))
    text = edits_text(edits, domain)
    assert read_edits(text, domain) == edits
    assert re.fullmatch(edits_pattern(domain), text)


INVALID_ROWS = [
    "",
    ROWS + "\n",
    " " + ROWS,
    ROWS.replace("n4", "n6"),
    ROWS.replace("n", ""),
    ROWS.replace(" - ", " -- "),
    ROWS.replace("\n", "\r\n"),
    ROWS.replace("n4 + + =\n", ""),
    "\n".join(ROWS.split("\n")[::-1]),
    ROWS[:-2],
    ROWS.replace("+", "?"),
]
# Regular-expression characters in group names are literal.
INVALID_WORD_ROWS = ["aXb = = =\nc+ = = =", "a.b = = =\ncc = = ="]


def test_xgrammar_accepts_written_edits_and_nothing_else():
    xgrammar = pytest.importorskip("xgrammar")
    accepts = pytest.importorskip("xgrammar.testing")._is_grammar_accept_string
    grammar = xgrammar.Grammar.from_regex(edits_pattern(LAKE))
    for row in itertools.product("-=+", repeat=3):
        assert accepts(grammar, ROWS.replace("+ + =", " ".join(row)))
    assert [text for text in INVALID_ROWS if accepts(grammar, text)] == []
    grammar = xgrammar.Grammar.from_regex(edits_pattern(words.DOMAIN))
    assert accepts(grammar, "a.b = - +\nc+ = + -")
    assert [text for text in INVALID_WORD_ROWS if accepts(grammar, text)] == []


@pytest.mark.parametrize(
    "text",
    [
        f"I would move data.\n{ROWS}\nThat is all.",
        f"{KEEP_ROWS}\nNo, rather\n{ROWS}",
        f"n6 + + + +\n- = =\nnonsense\n{ROWS}\n\n",
        ROWS.replace("\n", "\n\n \n"),
        ROWS.replace("\n", "\r\n"),
        ROWS.replace(" ", "\t  ").replace("\n", " \t\n\t"),
        ROWS.replace("n4", "4"),
        "n5 = - -\nn3 - = +\nn4 + + =",
        f"```\n{ROWS}\n```",
        f"{ROWS}\nn3 - = + or so",
    ],
)
def test_read_edits_uses_the_last_rows(text):
    assert read_edits(text, LAKE) == EDITS


@pytest.mark.parametrize("text", ["", "no", "n3", "n3 - = + up", "n3 -=+", "- n3 + = -\u00a0"])
def test_read_edits_returns_none_without_rows(text):
    assert read_edits(text, LAKE) is None
    assert review_answer(text, CURRENT, LAKE).reason == (
        "the answer holds no complete JSON object with map sizes as keys, and no edits"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n3 = = =\nn4 = = =", "map size 5 is missing"),
        (f"{KEEP_ROWS}\nand\nn3 + + +", "map size 4, 5 are missing"),
        (f"{KEEP_ROWS}\n3 + + +", "map size 3 is given more than once"),
        (f"{KEEP_ROWS}\nn6 + + +", 'map size "n6" is not one of 3, 4, 5'),
        (f"<|im_end|>{'y' * 9999} +", r'map size "\\u003c.{,60} is not one of 3, 4, 5'),
        ("n3 = =\nn4 = = =\nn5 = = =", "map size 3 has 2 signs, one is needed for each of data_r"),
        (f"n3 = = = =\n{KEEP_ROWS[9:]}", "map size 3 has 4 signs, one is needed for each of"),
    ],
)
def test_read_edits_rejects_unusable_rows(text, message):
    with pytest.raises(EditError, match=rf"^{message}"):
        read_edits(text, LAKE)
    decision = review_answer(text, CURRENT, LAKE)
    assert decision.kind == "rejected"
    assert re.match(message, decision.reason)


# Applying


MIN_SHARE_BOUNDS = {"edit_steps": 4, "min_share": 0.1}


@pytest.mark.parametrize(
    ("signs", "shares_before", "limits", "shares_after"),
    [
        ("-+=", (0.5, 0.3, 0.2), {}, [0.45, 0.35, 0.2]),
        ("-+-", (0.5, 0.3, 0.2), {}, [0.45, 0.4, 0.15]),  # two groups give, one takes both
        ("+-+", (0.5, 0.3, 0.2), {}, [0.55, 0.25, 0.2]),  # two share, the earlier one more
        ("+-+", (0.5, 0.3, 0.2), {"edit_steps": 4}, [0.6, 0.1, 0.3]),
        # No group gives more than it can spare.
        ("+--", (0.8, 0.15, 0.05), {"edit_steps": 4}, [1.0, 0.0, 0.0]),
        ("+--", (0.75, 0.15, 0.1), MIN_SHARE_BOUNDS, [0.8, 0.1, 0.1]),
        ("+=-", (0.75, 0.2, 0.05), MIN_SHARE_BOUNDS, [0.75, 0.2, 0.05]),
        # If no group gives or none takes, the shares don't sum to 1.
        ("+==", (0.5, 0.3, 0.2), {}, [0.55, 0.3, 0.2]),
        ("--=", (0.5, 0.3, 0.2), {}, [0.45, 0.25, 0.2]),
    ],
)
def test_apply_edits_moves_data_from_minus_to_plus(signs, shares_before, limits, shares_after):
    domain = make_lake(Bounds(sizes=(3, 4, 5), **limits))
    rows = "\n".join(f"n{size} {sign} = =" for size, sign in zip((3, 4, 5), signs, strict=True))
    values = apply_rows(rows, from_rows(*((share, 0, 0) for share in shares_before)), domain)
    assert [knobs["data_ratio"] for knobs in values.values()] == shares_after


@given(data=st.data(), bounds=bounds_strategy, steps=st.integers(1, 5))
def test_moved_data_adds_up_within_the_limits(data, bounds, steps):
    space = bounds.model_copy(update={"edit_steps": steps})
    current, edits = data.draw(on_grid(space)), data.draw(edits_strategy(space))
    values = apply_edits(edits, current, space)
    shares_before = column(current, "data_ratio")
    shares_after = [knobs["data_ratio"] for knobs in values.values()]
    signs = [edits[group]["data_ratio"] for group in space.groups]
    moves = [round((b - a) / space.step) for a, b in zip(shares_before, shares_after, strict=True)]
    for sign, steps_moved, share in zip(signs, moves, shares_after, strict=True):
        assert steps_moved * sign >= 0
        assert (steps_moved == 0) if sign == 0 else (abs(steps_moved) <= 2 * steps)
        if sign < 0:
            assert steps_moved == -steps or share == pytest.approx(space.min_share)
    if min(signs) < 0 < max(signs):
        assert sum(shares_after) == pytest.approx(1.0)
        gains = [steps_moved for sign, steps_moved in zip(signs, moves, strict=True) if sign > 0]
        assert max(gains) - min(gains) <= 1
    for group, knobs in values.items():
        for knob in space.difficulty_knobs:
            start, end, sign = current.values()[group][knob], knobs[knob], edits[group][knob]
            maximum = space.maximum(knob)
            assert end == pytest.approx(min(max(start + sign * steps * space.step, 0.0), maximum))


# Reviewing


@given(data=st.data(), bounds=bounds_strategy, steps=st.integers(1, 5))
def test_review_accepts_edits_that_balance(data, bounds, steps):
    domain = make_lake(bounds.model_copy(update={"edit_steps": steps}))
    current, edits = data.draw(on_grid(domain.space)), data.draw(edits_strategy(domain.space))
    values = apply_edits(edits, current, domain.space)
    total = sum(knobs["data_ratio"] for knobs in values.values())
    assume(total > 0)
    decision = review_answer(edits_text(edits, domain), current, domain)
    repair_names = {repair.name for repair in decision.repairs}
    if abs(total - 1.0) < 1e-9:
        assert repair_names <= {"feasibility"}  # boards of 3x3 hold no more than some holes
        expected_kind = "repaired" if repair_names else "accepted"
        assert decision.kind == (expected_kind if decision.diff else "unchanged")
    else:
        assert decision.kind == ("repaired" if decision.diff else "unchanged")
        assert "normalise" in repair_names or "clamp" in repair_names
    if decision.kind == "accepted":
        assert decision.configuration == domain.space.make(values)


FROM_JSON = from_rows((0.2, 0.1, 0.1), (0.2, 0.1, 0.1), (0.6, 0.1, 0.1))
FROM_EDITS = LAKE.space.make(apply_rows(ROWS))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (KEEP_ROWS, CURRENT),
        # JSON takes precedence over edits, and only text after the last thought is read.
        (f"{answer_text(FROM_JSON)}\n{ROWS}", FROM_JSON),
        (f"{ROWS}\n</think>{answer_text(FROM_JSON)}\n{KEEP_ROWS}", FROM_JSON),
        (f"<think>{answer_text(FROM_JSON)}\n{KEEP_ROWS}\n</think>\n{ROWS}", FROM_EDITS),
        (f"{ROWS}\n<think>\n{KEEP_ROWS}", FROM_EDITS),
        (f"{ROWS}\n</think>done", None),
        # Edits are read next to invalid JSON.
        (f'{{"3":{{"data_ratio"\n{ROWS}', FROM_EDITS),
        (f'{{"answer": "edits"}}\n{ROWS}', FROM_EDITS),
    ],
)
def test_last_complete_answer_is_used(text, expected):
    assert review_answer(text, CURRENT, LAKE).configuration == expected
