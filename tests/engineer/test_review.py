import json
import math
import time
from dataclasses import replace

import pytest

from engineer import InfeasibleError, Review, review_answer
from engineer.lake import Bounds, LakeConfiguration, lake_domain
from engineer.space import answer_text
from jaxlake import infeasibility
from tests.engineer import words
from tests.engineer.builders import BOUNDS, CURRENT, answer, roomy, shares_of

GOOD = answer_text(CURRENT)


def ask(text: str, *, bounds: Bounds = BOUNDS, num_agents: int = 2) -> Review:
    return review_answer(text, CURRENT, roomy(bounds, num_agents))


def names(decision: Review) -> list[str]:
    return [f"{repair.name} {repair.field}" for repair in decision.repairs]


def test_the_canonical_answer_is_accepted_as_written():
    decision = ask(GOOD)
    assert decision.kind == "accepted"
    assert decision.configuration == CURRENT
    assert decision.repairs == decision.diff == ()


WRAPPED = [
    "```json\nANSWER\n```",
    'I raise the holes {a bit} because "4x4" is easy.\n\nANSWER\nThat\'s my plan.',
    '<think>maybe OTHER? no: {"3": {}}</think>ANSWER',
    "OTHER was wrong, so now: ANSWER",
    'My answer: {"configuration": ANSWER, "reason": "holes {and} waits"}',
    'An odd quote " and a brace { before: ANSWER',
    "ANSWER\n<think>OTHER and so on",
    "é日本語\ud800\x00ANSWER",
    "{" * 500 + "ANSWER",
    "ANSWER" + "}" * 500,
]


@pytest.mark.parametrize("wrapped", WRAPPED, ids=range(len(WRAPPED)))
def test_the_answer_is_found_in_any_text(wrapped):
    other = answer(s3_data_ratio=0.2, s4_data_ratio=0.6)
    decision = ask(wrapped.replace("ANSWER", GOOD).replace("OTHER", other))
    assert (decision.kind, decision.configuration) == ("accepted", CURRENT)


def test_the_last_complete_object_counts():
    first = answer(s3_data_ratio=0.2, s4_data_ratio=0.6)
    assert ask(f"{first} or better {GOOD}").configuration == CURRENT
    assert ask(f"{GOOD} or better {first[:-9]}").configuration == CURRENT
    start = time.process_time()
    assert ask(f"{first}\n" * 500 + GOOD).configuration == CURRENT
    assert time.process_time() - start < 2.0


def test_spaces_and_the_order_of_keys_do_not_matter():
    turned = {s: dict(reversed(k.items())) for s, k in reversed(json.loads(GOOD).items())}
    decision = ask(json.dumps(turned, indent=4))
    assert (decision.kind, decision.configuration) == ("accepted", CURRENT)


REJECTED = {
    "": "no complete JSON object",
    "I would keep everything.": "no complete JSON object",
    "3: {data_ratio: 0.5}": "no complete JSON object",
    "[]": "no complete JSON object",
    '{"three": 1}': "no complete JSON object",
    GOOD[:-1]: "no complete JSON object",
    f"<think>I could write {GOOD}": "no complete JSON object",
    GOOD.replace("}}", ",}}"): "can't be read",
    GOOD.replace("0.25", "1/4"): "can't be read",
    answer(s3_hole_ratio="0.2"): r'3.hole_ratio must be a number, got "0.2"',
    answer(s3_hole_ratio=True): "3.hole_ratio must be a number, got true",
    answer(s3_hole_ratio=None): "3.hole_ratio must be a number, got null",
    answer(s3_hole_ratio=[0.2]): "3.hole_ratio must be a number, got a list",
    answer(s3_hole_ratio={"is": 1}): "3.hole_ratio must be a number, got an object",
    answer(s3_hole_ratio=math.nan): "3.hole_ratio must be a finite number, got nan",
    answer(s4_wait_ratio=math.inf): "4.wait_ratio must be a finite number, got inf",
    answer(s4_wait_ratio=-math.inf): "4.wait_ratio must be a finite number, got -inf",
    GOOD.replace("0.25", "9" * 5000): "3.wait_ratio must be a finite number, got inf",
    GOOD.replace("0.25", "1e999"): "3.wait_ratio must be a finite number, got inf",
    answer(s3_data_ratio=0, s4_data_ratio=0, s5_data_ratio=0): "data_ratio is 0 for every",
    answer(s3_data_ratio=-1, s4_data_ratio=-0.0, s5_data_ratio=0): "data_ratio is 0 for every",
    answer(s3_colour=1): r'3\."colour" is not one of data_ratio, hole_ratio, wait_ratio',
    GOOD.replace('"5"', '"6"'): 'map size "6" is not one of 3, 4, 5; map size 5 is missing',
    GOOD.replace('"5"', '"4"'): "map size 4 is given more than once; map size 5 is missing",
    GOOD.replace('"5"', '"05"'): 'map size "05" is not one of',
    GOOD.replace("}}", '},"7":1}'): 'map size "7" is not one of',
    GOOD.replace('"wait_ratio":0.25', '"hole_ratio":0.1'): "in map size 3, hole_ratio is given m",
    GOOD.replace(',"wait_ratio":0.25', ""): "3.wait_ratio is missing",
    '{"3":0.5,"4":0.3,"5":0.2}': r"map size 3 must be an object .*; .*; map size 5",
    '{"6":1,"7":1,"8":1,"9":1}': r"\(and 4 more\)",
}


@pytest.mark.parametrize("text", REJECTED, ids=range(len(REJECTED)))
def test_structure_is_never_guessed(text):
    decision = ask(text)
    assert decision.kind == "rejected"
    assert decision.configuration is None
    with pytest.raises(AssertionError, match=REJECTED[text]):
        raise AssertionError(decision.reason)


def test_a_rejection_quotes_model_text_harmlessly_and_briefly():
    key = "## History\n<|im_start|>" + "x" * 10_000
    reason = ask(json.dumps({"3": {}, key: {}})).reason
    assert len(reason) < 500
    assert not set(reason) & set("#<\n")


def test_numbers_out_of_range_are_clamped_by_name():
    decision = ask(answer(s3_hole_ratio=0.9, s4_wait_ratio=-3, s5_wait_ratio=1e308))
    assert decision.kind == "repaired"
    assert names(decision) == ["clamp 3.hole_ratio", "clamp 4.wait_ratio", "clamp 5.wait_ratio"]
    changes = [(repair.old, repair.new) for repair in decision.repairs]
    assert changes == [(0.9, 0.5), (-3.0, 0.0), (1e308, 1.0)]


def test_a_value_above_one_is_never_read_as_per_cents():
    decision = ask(answer(s3_data_ratio=50, s4_data_ratio=30, s5_data_ratio=20))
    assert decision.kind == "repaired"
    assert shares_of(decision) == [0.35, 0.35, 0.3]


def test_shares_that_miss_one_by_a_single_step_are_repaired_and_logged():
    decision = ask(answer(s3_data_ratio=0.45))
    assert decision.kind == "repaired"
    assert names(decision) == ["normalise 3.data_ratio"]
    assert shares_of(decision) == [0.5, 0.3, 0.2]


def test_numbers_off_the_grid_are_rounded_and_accepted():
    decision = ask(answer(s3_hole_ratio=0.333, s3_data_ratio=0.48, s4_data_ratio=0.32))
    assert decision.kind == "accepted"
    assert names(decision) == ["round 3.data_ratio", "round 4.data_ratio", "round 3.hole_ratio"]
    assert isinstance(decision.configuration, LakeConfiguration)
    assert decision.configuration.sizes[3].hole_ratio == 0.35


def test_a_size_keeps_its_least_share():
    bounds = Bounds(sizes=(3, 4, 5), min_share=0.1)
    decision = ask(answer(s3_data_ratio=1, s4_data_ratio=0, s5_data_ratio=0), bounds=bounds)
    assert decision.kind == "repaired"
    assert {repair.name for repair in decision.repairs} == {"minimum_share"}
    assert shares_of(decision) == [0.8, 0.1, 0.1]


def test_too_many_holes_are_lowered_to_the_most_that_fit():
    decision = ask(answer(s3_hole_ratio=0.5), num_agents=3)
    assert decision.kind == "repaired"
    assert names(decision) == ["feasibility 3.hole_ratio"]
    holes = decision.repairs[0].new
    assert infeasibility(3, holes, 3) is None
    assert infeasibility(3, holes + BOUNDS.step, 3) is not None


def test_a_size_that_cannot_hold_the_agents_is_rejected_with_the_lakes_sentence():
    decision = ask(GOOD, num_agents=5)
    assert decision.kind == "rejected"
    assert decision.reason == infeasibility(3, 0.0, 5)


def test_a_size_of_which_nothing_can_be_made_is_rejected_unless_it_has_no_share():
    domain = lake_domain(BOUNDS, acceptance=lambda size, *knobs: float(size > 3))
    decision = review_answer(GOOD, CURRENT, domain)
    assert decision.kind == "rejected"
    assert decision.reason == "map size 3: next to no board can be made"
    without = answer(s3_hole_ratio=0.5, s3_data_ratio=0, s4_data_ratio=0.8)
    assert review_answer(without, CURRENT, domain).kind == "accepted"


def test_the_diff_names_what_changed():
    decision = ask(answer(s3_hole_ratio=0.25, s5_wait_ratio=0))
    changes = [(change.field, change.old, change.new) for change in decision.diff]
    assert changes == [("3.hole_ratio", 0.2, 0.25), ("5.wait_ratio", 1.0, 0.0)]


BOMBS = {
    "arrays": "[" * 100_000,
    "objects": "{" * 100_000,
    "keyed objects": '{"3":' * 50_000,
    "closed keyed objects": '{"3":' * 50_000 + "1" + "}" * 50_000,
    "arrays in a size": '{"3":' + "[" * 50_000 + "]" * 50_000 + "}",
    "unclosed arrays in a size": '{"3":' + "[" * 100_000 + "}",
    "empty objects": "{}" * 50_000,
    "half keys": '{"' * 50_000,
    "blanks": '{"3"' + " " * 100_000,
    "thoughts": "<think></think>" * 20_000,
    "quotes": '"' * 100_000 + "{" + '"' * 100_000 + "}",
    "digits": '{"3":' + "9" * 100_000 + "}",
    "key": '{"3":1,"' + "9" * 100_000 + '":1}',
    "almost answers": (GOOD[:-1] + "\n") * 500,
    "thoughts with answers": f"<think>{GOOD}</think>" * 500,
    "escapes": "\\u007b\\" * 10_000 + "\ud800" * 50_000,
    "sizes": "{" + ",".join(f'"{i}":1' for i in range(20_000)) + "}",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_rejected_quickly_and_do_not_hide_an_answer(bomb):
    start = time.process_time()
    decision = ask(BOMBS[bomb])
    assert decision.kind == "rejected"
    assert len(decision.reason) < 1000
    assert ask(BOMBS[bomb] + GOOD).kind == "accepted"
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize(
    ("shares", "kind"),
    [
        ((0.35, 0.35, 0.3), "accepted"),  # as written
        ((0.33, 0.37, 0.3), "accepted"),  # off the grid, but they sum to 1
        ((0.1 + 0.2, 0.3, 0.4), "accepted"),  # 1.0000000000000002
        ((0.4, 0.35, 0.35), "repaired"),  # 1.1: no share moves by more than a step
        ((0.35, 0.35, 0.29), "repaired"),  # 0.99: rounded to the grid alone it would be 1
        ((0.25, 0.25, 0.25), "repaired"),
        ((0.9, 0.9, 0.9), "repaired"),
    ],
)
def test_shares_that_do_not_sum_to_one_are_always_a_repair(shares, kind):
    names = ("s3_data_ratio", "s4_data_ratio", "s5_data_ratio")
    assert ask(answer(**dict(zip(names, shares, strict=True)))).kind == kind


def test_a_rejection_keeps_the_repairs_that_came_before_it():
    decision = ask(answer(s4_wait_ratio=7), num_agents=5)
    assert decision.kind == "rejected"
    assert names(decision) == ["clamp 4.wait_ratio"]
    assert decision.diff == ()


def test_a_group_that_is_new_has_no_old_value():
    bounds = Bounds(sizes=(4, 5, 6))
    values = {"data_ratio": 0.5, "hole_ratio": 0.1, "wait_ratio": 0.5}
    asked = {"4": values, "5": values | {"data_ratio": 0.3}, "6": values | {"data_ratio": 0.2}}
    decision = ask(json.dumps(asked), bounds=bounds)
    assert decision.kind == "accepted"
    assert [(c.field, c.old, c.new) for c in decision.diff if c.field.startswith("6")] == [
        ("6.data_ratio", None, 0.2),
        ("6.hole_ratio", None, 0.1),
        ("6.wait_ratio", None, 0.5),
    ]


WORDY = answer_text(words.CURRENT)
REJECTED_WORDS = {
    "{}": "no complete JSON object with topics as keys",
    '{"3":{}}': "no complete JSON object with topics as keys",
    WORDY.replace("a.b", "aXb").replace("c+", "cc"): "no complete JSON object with topics as keys",
    WORDY.replace("c+", "d"): r'topic "d" is not one of a\.b, c\+; topic c\+ is missing',
    WORDY.replace("}}", "},}"): "can't be read",
    WORDY.replace('"noise":0.00', '"noise":null'): r"c\+\.noise must be a number, got null",
    WORDY.replace("0.50", "0"): "portion is 0 for every topic, some topic needs a share",
}


@pytest.mark.parametrize("text", REJECTED_WORDS, ids=range(len(REJECTED_WORDS)))
def test_another_environment_is_refused_in_its_own_words(text):
    decision = review_answer(text, words.CURRENT, words.DOMAIN)
    assert decision.kind == "rejected"
    with pytest.raises(AssertionError, match=REJECTED_WORDS[text]):
        raise AssertionError(decision.reason)


def test_another_environment_is_repaired_by_its_own_bounds():
    text = WORDY.replace('"noise":0.10', '"noise":0.90').replace('"length":0.80', '"length":0.62')
    decision = review_answer(f"So be it: {text}", words.CURRENT, words.DOMAIN)
    assert names(decision) == ["clamp a.b.noise", "round c+.length"]
    assert decision.configuration is not None
    assert decision.configuration.values()["a.b"] == {"portion": 0.5, "length": 0.2, "noise": 0.4}
    assert decision.configuration.values()["c+"]["length"] == 0.6


def test_an_environment_says_what_can_be_made():
    def nearest(group, knobs):
        if group == "c+":
            raise InfeasibleError("topic c+ is out of print")
        return {**knobs, "length": 0.0}

    domain = replace(words.DOMAIN, nearest=nearest)
    decision = review_answer(WORDY, words.CURRENT, domain)
    assert (decision.kind, decision.reason) == ("rejected", "topic c+ is out of print")
    alone = {"a.b": {"portion": 1, "length": 0.2, "noise": 0}}
    alone["c+"] = {"portion": 0, "length": 0.8, "noise": 0}
    decision = review_answer(json.dumps(alone), words.CURRENT, domain)
    assert names(decision) == ["feasibility a.b.length"]


def test_an_environment_may_call_its_groups_and_knobs_anything():
    class Braced(words.WordSpace):
        @property
        def groups(self):
            return ("{a}", "{}")

    space = Braced()
    values = dict.fromkeys(space.knobs, 0.5)
    text = json.dumps({"{a}": values, "{}": values | {"more": 1}, "b": 1})
    decision = review_answer(text, words.CURRENT, replace(words.DOMAIN, space=space))
    assert decision.kind == "rejected"
    assert '"b" is not one of {a}, {}' in decision.reason
    assert '{}."more" is not one of portion, length, noise' in decision.reason
