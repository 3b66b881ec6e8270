import itertools
import re
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engineer import Domain, Guard, KnobSpace, review_answer
from engineer.edits import (
    SIGNS,
    EditError,
    apply_edits,
    edits_between,
    edits_pattern,
    edits_text,
    read_edits,
)
from engineer.lake import Bounds
from engineer.space import answer_text
from tests.engineer import words
from tests.engineer.builders import BOUNDS, CURRENT, boundses, column, lake, on_grid, roomy

LAKE = roomy()
ROWS = "n3 - = +\nn4 + + =\nn5 = - -"
READ = {
    "3": {"data_ratio": -1, "hole_ratio": 0, "wait_ratio": 1},
    "4": {"data_ratio": 1, "hole_ratio": 1, "wait_ratio": 0},
    "5": {"data_ratio": 0, "hole_ratio": -1, "wait_ratio": -1},
}
KEEP = "n3 = = =\nn4 = = =\nn5 = = ="


def edits_of(space: KnobSpace) -> st.SearchStrategy[dict[str, dict[str, int]]]:
    return st.fixed_dictionaries(
        {
            group: st.fixed_dictionaries({knob: st.integers(-1, 1) for knob in space.knobs})
            for group in space.groups
        }
    )


def asked_for(rows: str, current=CURRENT, domain: Domain = LAKE) -> dict[str, dict[str, float]]:
    edits = read_edits(rows, domain)
    assert edits is not None
    return apply_edits(edits, current, domain.space)


def shares(rows: str, *before: float, **bounds) -> list[float]:
    domain = roomy(Bounds(sizes=(3, 4, 5), **bounds))
    values = asked_for(rows, lake(*((share, 0, 0) for share in before)), domain)
    return [knobs["data_ratio"] for knobs in values.values()]


def test_edits_are_written_as_a_row_per_group_and_a_sign_per_knob():
    assert edits_text(READ, LAKE) == ROWS
    assert read_edits(ROWS, LAKE) == READ
    other = {
        "c+": {"portion": 0, "length": 1, "noise": -1},
        "a.b": {"noise": 1, "length": 0, "portion": -1},
    }
    assert edits_text(other, words.DOMAIN) == "a.b - = +\nc+ = + -"
    assert read_edits("a.b - = +\nc+ = + -", words.DOMAIN) == other


@pytest.mark.parametrize("domain", [LAKE, words.DOMAIN], ids=lambda domain: domain.name)
@given(data=st.data())
def test_written_edits_are_read_back_and_match_the_pattern(domain, data):
    edits = data.draw(edits_of(domain.space))
    text = edits_text(edits, domain)
    assert read_edits(text, domain) == edits
    assert re.fullmatch(edits_pattern(domain), text)


@given(
    text=st.lists(
        st.sampled_from([*"n345 \n-+=", "n3", " +", " = =", "\nn4", ROWS, KEEP, "\r", "a", "\t"]),
        max_size=20,
    ).map("".join)
    | st.tuples(st.sampled_from([ROWS, KEEP]), st.integers(0, 25), st.sampled_from("-+= \nn3")).map(
        lambda drawn: drawn[0][: drawn[1]] + drawn[2] + drawn[0][drawn[1] + 1 :]
    )
)
def test_the_pattern_matches_nothing_but_written_edits(text):
    try:
        edits = read_edits(text, LAKE)
    except EditError:
        edits = None
    canonical = edits is not None and edits_text(edits, LAKE) == text
    assert bool(re.fullmatch(edits_pattern(LAKE), text)) == canonical


WRONG = [
    "",
    ROWS + "\n",
    " " + ROWS,
    ROWS.replace("n4", "n6"),
    ROWS.replace("n", ""),
    ROWS.replace(" - ", " -- "),
    ROWS.replace("\n", "\r\n"),
    ROWS.replace("n4 + + =\n", ""),
    "\n".join(ROWS.split("\n")[::-1]),
    ROWS + " =",
    ROWS[:-2],
    ROWS.replace("+", "?"),
]


def test_the_pattern_holds_small_changes_off():
    pattern = edits_pattern(LAKE)
    assert re.fullmatch(pattern, ROWS)
    for text in WRONG:
        assert not re.fullmatch(pattern, text)
    # What means something in regular expressions stands for itself.
    assert not re.fullmatch(edits_pattern(words.DOMAIN), "aXb = = =\nc+ = = =")
    assert not re.fullmatch(edits_pattern(words.DOMAIN), "a.b = = =\ncc = = =")


def test_xgrammar_accepts_written_edits_and_nothing_else():
    xgrammar = pytest.importorskip("xgrammar")
    accepts = pytest.importorskip("xgrammar.testing")._is_grammar_accept_string
    grammar = xgrammar.Grammar.from_regex(edits_pattern(LAKE))
    for row in itertools.product("-=+", repeat=3):
        assert accepts(grammar, ROWS.replace("+ + =", " ".join(row)))
    for text in WRONG:
        assert not accepts(grammar, text)
    grammar = xgrammar.Grammar.from_regex(edits_pattern(words.DOMAIN))
    assert accepts(grammar, "a.b = - +\nc+ = + -")
    assert not accepts(grammar, "aXb = - +\nc+ = + -")
    assert not accepts(grammar, "a.b = - +\ncc + = + -")


@pytest.mark.parametrize(
    "text",
    [
        f"I would move data.\n{ROWS}\nThat is all.",
        f"{KEEP}\nNo, rather\n{ROWS}",
        f"n6 + + + +\n- = =\nnonsense\n{ROWS}\n\n",
        ROWS.replace("\n", "\n\n \n"),
        ROWS.replace("\n", "\r\n"),
        ROWS.replace(" ", "\t  ").replace("\n", " \t\n\t"),
        ROWS.replace("n", ""),
        ROWS.replace("n4", "4"),
        "n5 = - -\nn3 - = +\nn4 + + =",
        f"```\n{ROWS}\n```",
        f"edits\n{ROWS}",
        f"{ROWS}\nn3 - = + or so",
    ],
)
def test_the_last_rows_are_read_wherever_they_stand(text):
    assert read_edits(text, LAKE) == READ


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        "n3",
        "n3 up",
        "n3 - = + up\nn4 - = + 1",
        "n3 -=+",
        "n3 \u2212 =",
        "- n3 + = -\u00a0",
    ],
)
def test_a_text_without_rows_holds_no_edits(text):
    assert read_edits(text, LAKE) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n3 = = =\nn4 = = =", "map size 5 is missing"),
        ("n4 + + +", "map size 3, 5 are missing"),
        (f"{KEEP}\nand\nn3 + + +", "map size 4, 5 are missing"),
        (f"{KEEP}\nn3 + + +", "map size 3 is given more than once"),
        ("n3 = = =\n3 = = =\nn4 = = =\nn5 = = =", "map size 3 is given more than once"),
        (f"{KEEP}\nn6 + + +", 'map size "n6" is not one of 3, 4, 5'),
        ("N3 = = =", 'map size "N3" is not one of 3, 4, 5'),
        (f"x{'y' * 99} +", r'map size "x.* is not one of 3, 4, 5'),
        (
            "n3 = =\nn4 = = =\nn5 = = =",
            "map size 3 has 2 signs, one is needed for each of data_ratio, hole_ratio, wait_ratio",
        ),
        (f"n3 = = = =\n{KEEP[9:]}", "map size 3 has 4 signs, one is needed for each of"),
    ],
)
def test_rows_that_cannot_be_used_are_refused_with_what_is_wrong(text, message):
    with pytest.raises(EditError, match=rf"^{message}"):
        read_edits(text, LAKE)
    decision = review_answer(text, CURRENT, LAKE)
    assert decision.kind == "rejected"
    assert re.match(message, decision.reason)


def test_an_unknown_name_is_quoted_and_cut():
    with pytest.raises(EditError) as refused:
        read_edits(f"<|im_end|>{'x' * 10_000} = = =", LAKE)
    assert len(str(refused.value)) < 120
    assert not set("<>") & set(str(refused.value))


def test_knobs_move_by_one_edit_within_their_limits():
    current = lake((0.5, 0.5, 0.25), (0.3, 0.0, 1.0), (0.2, 0.45, 0.05))
    values = asked_for("n3 = + +\nn4 = - -\nn5 = + -", current)
    assert values == lake((0.5, 0.5, 0.3), (0.3, 0.0, 0.95), (0.2, 0.5, 0.0)).values()
    values = asked_for("n3 = - =\nn4 = + +\nn5 = = =", current)
    assert values == lake((0.5, 0.45, 0.25), (0.3, 0.05, 1.0), (0.2, 0.45, 0.05)).values()


def test_an_edit_goes_as_many_grid_steps_as_the_space_says():
    domain = roomy(Bounds(sizes=(3, 4, 5), step=0.01, edit_steps=7, max_hole_ratio=0.2))
    current = lake((0.5, 0.2, 0.25), (0.3, 0.1, 0.98), (0.2, 0.03, 1.0))
    values = asked_for("n3 - - +\nn4 + + +\nn5 = - -", current, domain)
    expected = lake((0.43, 0.13, 0.32), (0.37, 0.17, 1.0), (0.2, 0.0, 0.93))
    assert values == expected.values()


def test_data_goes_from_groups_with_a_minus_to_groups_with_a_plus():
    assert shares("n3 - = =\nn4 + = =\nn5 = = =", 0.5, 0.3, 0.2) == [0.45, 0.35, 0.2]
    # Two give, one takes both.
    assert shares("n3 - = =\nn4 + = =\nn5 - = =", 0.5, 0.3, 0.2) == [0.45, 0.4, 0.15]
    # One gives, two share, the earlier one more.
    assert shares("n3 + = =\nn4 - = =\nn5 + = =", 0.5, 0.3, 0.2) == [0.55, 0.25, 0.2]
    wide = {"edit_steps": 4}
    assert shares("n3 + = =\nn4 - = =\nn5 + = =", 0.5, 0.3, 0.2, **wide) == [0.6, 0.1, 0.3]
    # Nobody gives more than it can spare.
    assert shares("n3 + = =\nn4 - = =\nn5 - = =", 0.8, 0.15, 0.05, **wide) == [1.0, 0.0, 0.0]
    least = wide | {"min_share": 0.1}
    assert shares("n3 + = =\nn4 - = =\nn5 - = =", 0.75, 0.15, 0.1, **least) == [0.8, 0.1, 0.1]
    assert shares("n3 + = =\nn4 = = =\nn5 - = =", 0.75, 0.15, 0.1, **least) == [0.75, 0.15, 0.1]
    # Nor does it take instead, where it has less than the least share.
    assert shares("n3 + = =\nn4 = = =\nn5 - = =", 0.75, 0.2, 0.05, **least) == [0.75, 0.2, 0.05]
    assert shares("n3 + = =\nn4 - = =\nn5 - = =", 0.75, 0.2, 0.05, **least) == [0.85, 0.1, 0.05]


def test_data_that_nobody_gives_or_takes_does_not_add_up():
    assert shares("n3 + = =\nn4 = = =\nn5 = = =", 0.5, 0.3, 0.2) == [0.55, 0.3, 0.2]
    assert shares("n3 - = =\nn4 - = =\nn5 = = =", 0.5, 0.3, 0.2) == [0.45, 0.25, 0.2]
    assert shares("n3 + = =\nn4 + = =\nn5 + = =", 0.8, 0.1, 0.1) == [0.85, 0.15, 0.15]
    # Who is at the least share gives nothing, so nothing changes.
    assert shares("n3 = = =\nn4 = = =\nn5 - = =", 0.5, 0.5, 0.0) == [0.5, 0.5, 0.0]


@given(data=st.data(), bounds=boundses, steps=st.integers(1, 5))
def test_moved_data_adds_up_and_stays_within_the_limits(data, bounds, steps):
    space = bounds.model_copy(update={"edit_steps": steps})
    current, edits = data.draw(on_grid(space)), data.draw(edits_of(space))
    values = apply_edits(edits, current, space)
    before = column(current, "data_ratio")
    after = [knobs["data_ratio"] for knobs in values.values()]
    signs = [edits[group]["data_ratio"] for group in space.groups]
    moved = [round((b - a) / space.step) for a, b in zip(before, after, strict=True)]
    for sign, steps_moved, share in zip(signs, moved, after, strict=True):
        assert steps_moved * sign >= 0
        assert (steps_moved == 0) if sign == 0 else (abs(steps_moved) <= 2 * steps)
        assert share >= space.min_share - 1e-9 or sign > 0
        if sign < 0:
            assert steps_moved == -steps or share == pytest.approx(space.min_share)
    if min(signs) < 0 < max(signs):
        assert sum(after) == pytest.approx(1.0)
        takers = [steps_moved for sign, steps_moved in zip(signs, moved, strict=True) if sign > 0]
        assert max(takers) - min(takers) <= 1
    for group, knobs in values.items():
        for knob in space.difficulty_knobs:
            old, new, sign = current.values()[group][knob], knobs[knob], edits[group][knob]
            most = space.maximum(knob)
            assert new == pytest.approx(min(max(old + sign * steps * space.step, 0.0), most))


@given(data=st.data(), bounds=boundses, steps=st.integers(1, 5))
def test_balanced_edits_are_accepted_as_written_and_others_normalised(data, bounds, steps):
    domain = roomy(bounds.model_copy(update={"edit_steps": steps}))
    current, edits = data.draw(on_grid(domain.space)), data.draw(edits_of(domain.space))
    values = apply_edits(edits, current, domain.space)
    total = sum(knobs["data_ratio"] for knobs in values.values())
    assume(total > 0)
    decision = review_answer(edits_text(edits, domain), current, domain)
    names = {repair.name for repair in decision.repairs}
    # Boards of 3x3 hold no more than some holes.
    if abs(total - 1.0) < 1e-9:
        assert names <= {"feasibility"}
        assert decision.kind == ("repaired" if names else "accepted")
    else:
        assert decision.kind == "repaired"
        assert "normalise" in names or "clamp" in names
    if decision.kind == "accepted":
        assert decision.configuration == domain.space.make(values)
        assert edits_between(current, decision.configuration, domain.space) == {
            group: {knob: _sign(values[group][knob] - old) for knob, old in knobs.items()}
            for group, knobs in current.values().items()
        }


def _sign(difference: float) -> int:
    return 0 if abs(difference) < 1e-9 else 1 if difference > 0 else -1


def test_the_sum_of_unbalanced_edits_is_mended_and_said():
    decision = review_answer("n3 + = =\nn4 = = =\nn5 = = =", CURRENT, LAKE)
    assert decision.kind == "repaired"
    assert {repair.name for repair in decision.repairs} == {"normalise"}
    assert decision.reason == "used after normalise"
    assert column(decision.configuration, "data_ratio") == [0.5, 0.3, 0.2]
    two = review_answer("n3 + = =\nn4 = = =\nn5 = = =", lake((1, 0, 0), (0, 0, 0), (0, 0, 0)), LAKE)
    assert two.kind == "repaired"
    assert column(two.configuration, "data_ratio") == [1.0, 0.0, 0.0]


def test_the_guard_holds_edits_too():
    domain = roomy(BOUNDS.model_copy(update={"edit_steps": 4}))
    decision = review_answer("n3 - + =\nn4 + = =\nn5 = = =", CURRENT, domain, Guard(max_step=0.05))
    assert decision.kind == "repaired"
    assert {repair.name for repair in decision.repairs} == {"bounded_step"}
    assert column(decision.configuration, "data_ratio") == [0.45, 0.35, 0.2]
    assert column(decision.configuration, "hole_ratio") == [0.25, 0.1, 0.0]


def test_what_leaves_all_as_it_is_is_accepted():
    decision = review_answer(KEEP, CURRENT, LAKE)
    assert (decision.kind, decision.configuration) == ("accepted", CURRENT)
    assert (decision.repairs, decision.diff) == ((), ())


OTHER = lake((0.2, 0.1, 0.1), (0.2, 0.1, 0.1), (0.6, 0.1, 0.1))


@pytest.mark.parametrize(
    "text",
    [
        f"{answer_text(OTHER)}\n{ROWS}",
        f"{ROWS}\n{answer_text(OTHER)}",
        f"{ROWS}\n</think>{answer_text(OTHER)}\n{KEEP}",
    ],
)
def test_json_wins_over_edits(text):
    assert review_answer(text, CURRENT, LAKE).configuration == OTHER


def test_only_what_follows_the_last_thought_is_read():
    after_edits = LAKE.space.make(asked_for(ROWS))
    for text in (
        f"<think>{answer_text(OTHER)}\n{KEEP}\n</think>\n{ROWS}",
        f"{answer_text(OTHER)}</think>{ROWS}",
        f"{ROWS}\n<think>\n{KEEP}",
    ):
        assert review_answer(text, CURRENT, LAKE).configuration == after_edits
    assert review_answer(f"{ROWS}\n</think>done", CURRENT, LAKE).kind == "rejected"


def test_edits_are_read_beside_json_that_cannot_be():
    after_edits = LAKE.space.make(asked_for(ROWS))
    for json_text in ('{"3":{"data_ratio"', '{"3": oh no}', "{}", '{"answer": "edits"}'):
        decision = review_answer(f"{json_text}\n{ROWS}", CURRENT, LAKE)
        assert decision.configuration == after_edits


def test_neither_form_is_said_to_be_missing():
    decision = review_answer("n3 up", CURRENT, LAKE)
    assert decision.reason == (
        "the answer holds no complete JSON object with map sizes as keys, and no edits"
    )


def test_the_signs_of_a_change_are_those_of_its_knobs():
    after = lake((0.5, 0.25, 0.25), (0.25, 0.1, 0.45), (0.25, 0.0, 1.0))
    assert edits_between(CURRENT, after, BOUNDS) == {
        "3": {"data_ratio": 0, "hole_ratio": 1, "wait_ratio": 0},
        "4": {"data_ratio": -1, "hole_ratio": 0, "wait_ratio": -1},
        "5": {"data_ratio": 1, "hole_ratio": 0, "wait_ratio": 0},
    }
    assert set(SIGNS) == set("-=+")


MEGABYTE = 1_000_000
BOMBS = {
    "word": "x" * MEGABYTE,
    "blanks": " " * MEGABYTE,
    "a name and blanks": "n3" + " " * MEGABYTE,
    "a name and blanks to a name": "n3" + " " * MEGABYTE + "n3",
    "signs": "n3" + " +" * (MEGABYTE // 2),
    "signs and a word": "n3" + " +" * (MEGABYTE // 2) + "x",
    "wide signs and a word": "n3" + "   +" * (MEGABYTE // 4) + "x",
    "signs alone": "- " * (MEGABYTE // 2),
    "rows": "n3 + + +\n" * (MEGABYTE // 9),
    "whole answers": f"{ROWS}\nor\n" * (MEGABYTE // 30),
    "rows of unknown groups": "".join(f"n{n} + + +\n" for n in range(MEGABYTE // 12)),
    "line ends": "\n" * MEGABYTE,
    "returns": "\r" * MEGABYTE,
    "returns and line ends": "n3 +\r\r\n" * (MEGABYTE // 7),
    "surrogates": "\ud800 + + +\n" * (MEGABYTE // 8),
    "strange blanks": "n3\u2003+\u00a0+\x0b+\x85" * (MEGABYTE // 8),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_megabyte_of_anything_is_read_in_linear_time_and_hides_no_answer(bomb):
    start = time.process_time()
    decision = review_answer(BOMBS[bomb], CURRENT, LAKE)
    assert decision.kind == ("accepted" if bomb == "whole answers" else "rejected")
    assert len(decision.reason) < 1000
    assert review_answer(f"{BOMBS[bomb]}\nthen\n{KEEP}", CURRENT, LAKE).kind == "accepted"
    assert time.process_time() - start < 20.0
