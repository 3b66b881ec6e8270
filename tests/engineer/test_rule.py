"""What the rule engineer does by the words of a context, one fact after the other."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from engineer import (
    BLOCKS,
    GroupEvidence,
    StageEvidence,
    StageView,
    build_context,
)
from engineer.context.symbols import GroupReadout, Readout, read_out, symbols_text
from engineer.edits import apply_edits, edits_text
from engineer.engineers.rule import (
    next_configuration,
    teacher_edits,
)
from engineer.lake import Bounds
from engineer.synthetic import FACTS, synthetic_readouts, with_fact_of
from tests.engineer import words
from tests.engineer.builders import BOUNDS, CURRENT, lake, roomy, tally
from tests.engineer.random_views import ADDITION

LAKE = roomy()
NUMBER = re.compile(r"[a-z]+(\d+)")
SIGN = {"-": -1, "=": 0, "+": 1, "?": 0}


def number_in(word: str) -> int | None:
    found = NUMBER.fullmatch(word)
    return int(found[1]) if found else None


def answer_from_text(context: str, pointers: Mapping[str, int]) -> str:
    """The rule, read off the words alone; `pointers` maps a kind of failure to the knob's place."""
    first, *rows = context.removesuffix("\nedits\n").split("\n")
    rolled = first.split()[1] == "rolled"
    names, answers, worths, shares = [], [], [], []
    for row in rows:
        name, valid, kind, other_kind, trend, learnability, *knobs = row.split()
        levels = [number_in(word) or 0 for word in knobs[::2]]
        edits = [SIGN[word] for word in knobs[1::2]]
        rate, worth = number_in(valid), number_in(learnability)
        if worth is None and rate is not None:
            worth = 2 * min(rate, 10 - rate)
        names.append(name)
        worths.append(worth)
        shares.append(levels[0])
        kinds = [pointers[word] for word in (kind, other_kind) if word in pointers]
        dull = number_in(learnability) is not None and number_in(learnability) < 4
        answers.append([0, *knob_signs(rate, trend, kinds, levels, edits, rolled, dull)])
    givers = [
        (worth, -place) for place, worth in enumerate(worths) if worth is not None and shares[place]
    ]
    takers = [(worth, -place) for place, worth in enumerate(worths) if worth is not None]
    if givers and max(takers)[0] > min(givers)[0]:
        answers[-max(takers)[1]][0] = 1
        answers[-min(givers)[1]][0] = -1
    return "\n".join(
        " ".join([name, *("-=+"[sign + 1] for sign in signs)])
        for name, signs in zip(names, answers, strict=True)
    )


def knob_signs(
    rate: int | None,
    trend: str,
    pointed_at: Sequence[int],
    levels: Sequence[int],
    edits: Sequence[int],
    rolled: bool,
    dull: bool,
) -> list[int]:
    """The signs of one group's knobs after its share; places count from the share, which is 0."""
    if trend == "-" and not rolled and any(edits[1:]):
        return [-edit for edit in edits[1:]]
    signs = [0] * len(levels)
    way = SIGN[trend]
    too_easy = rate is not None and rate > 1 and dull
    if rate is None:
        way = 0
    elif too_easy or rate > 5:
        way = 1
    elif rate < 2:
        way = -1
    if way:
        end = 10 if way > 0 else 0
        open_places = [
            place
            for place in range(1, len(levels))
            if levels[place] != end and not (rolled and edits[place] == way)
        ]
        ranked = sorted(open_places, key=lambda place: (way * levels[place], place))
        named = [place for place in pointed_at if place in open_places]
        for place in ranked if too_easy else (named or ranked)[:1]:
            signs[place] = way
    return signs[1:]


LAKE_POINTERS = {"board": 1, "hole": 1, "vertex": 2, "swap": 2}
READ_DOMAINS = [
    (LAKE, LAKE_POINTERS),
    (roomy(Bounds(sizes=(2, 4, 6, 9, 10), min_share=0.1, max_hole_ratio=0.3)), LAKE_POINTERS),
    (roomy(Bounds(sizes=(4,), edit_steps=3)), LAKE_POINTERS),
    (words.DOMAIN, {}),
    (ADDITION, {"carry": 1}),
]


@pytest.mark.parametrize("place", range(len(READ_DOMAINS)))
def test_the_answer_is_a_function_of_the_context_s_words(place):
    domain, pointers = READ_DOMAINS[place]
    rng = np.random.default_rng(place)
    readouts = synthetic_readouts(rng, domain, runs=60)
    for _ in range(600):
        one, other = (readouts[n] for n in rng.integers(len(readouts), size=2))
        readouts.append(with_fact_of(one, other, FACTS[int(rng.integers(len(FACTS)))]))
    assert len(readouts) > 700
    answers = Counter()
    for readout in readouts:
        answer = edits_text(teacher_edits(readout, domain), domain)
        assert answer == answer_from_text(symbols_text(readout, domain), pointers)
        answers[answer] += 1
    assert len(answers) > 5 * len(domain.space.groups) ** 2 or len(domain.space.groups) == 1
    assert len(answers) > 2


def readout_of(first: str, *rows: str) -> Readout:
    """The readout of a context of the lake that is written by hand."""
    state, refused = re.fullmatch(r"(first|next|rolled|\?)( refused)?", first).groups()
    groups = {}
    for row in rows:
        name, valid, kind, other, trend, learnability, *knobs = row.split()
        names = ("data_ratio", "hole_ratio", "wait_ratio")
        signs = [None if word == "?" else SIGN[word] for word in knobs[1::2]]
        groups[name.removeprefix("n")] = GroupReadout(
            valid=number_in(valid),
            failures=None
            if kind == "?"
            else tuple(word for word in (kind, other) if word != "none"),
            trend=None if trend == "?" else SIGN[trend],
            learnability=number_in(learnability),
            levels=dict(zip(names, map(number_in, knobs[::2]), strict=True)),
            last_edit=None if None in signs else dict(zip(names, signs, strict=True)),
        )
    return Readout(None if state == "?" else state, bool(refused), groups)


def rule(first: str, *rows: str) -> list[str]:
    """The rule's rows for rows written by hand."""
    readout = readout_of(first, *rows)
    assert symbols_text(readout, LAKE) == "\n".join([f"stage {first}", *rows, "edits\n"])
    domain = roomy(Bounds(sizes=[int(group) for group in readout.groups]))
    return edits_text(teacher_edits(readout, domain), domain).split("\n")


def row(
    facts: str = "valid5 none none",
    trend: str = "=",
    learnability: str = "?",
    knobs: str = "data5 = hole5 = wait5 =",
    group: int = 3,
) -> str:
    return f"n{group} {facts} {trend} {learnability} {knobs}"


def data(*groups: str, least: Sequence[int] = ()) -> str:
    """The signs of the data, by the learnability of each group; those of `least` spare none."""
    rows = [
        row(learnability=one, knobs=f"data{0 if n in least else 3} = hole5 = wait5 =", group=n + 3)
        for n, one in enumerate(groups)
    ]
    return "".join(line.split()[1] for line in rule("next", *rows))


def test_data_goes_from_the_least_to_the_most_learnability():
    assert data("learn4", "learn9", "learn1") == "=+-"
    assert data("learn10", "learn9", "learn0") == "+=-"
    assert data("learn3", "learn7") == "-+"


def test_among_equal_ones_the_first_takes_and_the_last_gives():
    assert data("learn4", "learn4", "learn1", "learn1") == "+==-"
    assert data("learn4", "learn4", "learn4") == "==="
    assert data("learn1", "learn4", "learn1", "learn4") == "=+-="


def test_a_group_at_its_least_share_gives_nothing():
    assert data("learn4", "learn9", "learn1", least=[2]) == "-+="
    assert data("learn4", "learn9", "learn1", least=[0, 2]) == "==="
    assert data("learn4", "learn9", "learn1", least=[0, 1, 2]) == "==="
    assert data("learn4", "learn9", "learn1", least=[1]) == "=+-"


def test_where_the_training_says_nothing_valid_rates_near_one_half_stand_for_it():
    def of(*rates: str) -> str:
        rows = [row(f"{rate} none none", group=n + 3) for n, rate in enumerate(rates)]
        return "".join(line.split()[1] for line in rule("next", *rows))

    assert of("valid5", "valid9", "valid0") == "+=-"
    assert of("valid4", "valid6", "valid8") == "+=-"
    assert of("valid10", "valid3", "valid1") == "-+="
    # 5 tenths are as good as the greatest learnability, 3 as 6 tenths of it.
    mixed = [row("valid3 none none"), row(learnability="learn7", group=4)]
    assert [line.split()[1] for line in rule("next", *mixed)] == ["-", "+"]
    mixed = [row("valid3 none none"), row(learnability="learn6", group=4)]
    assert [line.split()[1] for line in rule("next", *mixed)] == ["=", "="]


def test_a_group_of_which_nothing_is_known_neither_takes_nor_gives_data():
    unknown = row("? ? ?", trend="?", group=4)
    rows = [row(learnability="learn2"), unknown, row(learnability="learn3", group=5)]
    assert [line.split()[1] for line in rule("next", *rows)] == ["-", "=", "+"]
    assert rule("?", unknown) == ["n4 = = ="]


def knobs_of(facts: str, trend: str = "=", knobs: str = "hole5 = wait5 =", first="next") -> str:
    """The signs of holes and waits of one group."""
    (line,) = rule(first, row(facts, trend, knobs=f"data10 = {knobs}"))
    name, data_sign, *signs = line.split()
    assert (name, data_sign) == ("n3", "=")
    return "".join(signs)


@pytest.mark.parametrize("trend", "-=+?")
def test_a_group_gets_harder_from_55_and_easier_below_15_per_cent(trend):
    for valid in range(11):
        between = trend if trend in "-+" else "="
        way = "+" if valid >= 6 else "-" if valid <= 1 else between
        for kind, expected in (("hole", f"{way}="), ("swap", f"={way}")):
            assert knobs_of(f"valid{valid} {kind} none", trend) == expected


def test_the_limits_are_those_of_the_valid_rate():
    def signs(valid: int) -> dict[str, int]:
        evidence = StageEvidence(stage=1, validation={"3": tally(valid, 1000)})
        view = StageView(roomy(Bounds(sizes=(3,))), evidence, lake((1, 0.25, 0.5)))
        return teacher_edits(read_out(view, BLOCKS), view.domain)["3"]

    assert signs(550)["hole_ratio"] == 1
    assert signs(549)["hole_ratio"] == signs(150)["hole_ratio"] == 0
    assert signs(149)["hole_ratio"] == -1


def test_without_a_valid_rate_no_knob_moves():
    assert knobs_of("? ? ?", "?") == "=="


def test_the_most_frequent_failure_that_points_to_a_knob_chooses_it():
    for kinds, expected in {
        "hole none": "+=",
        "board goal": "+=",
        "vertex hole": "=+",
        "swap board": "=+",
        "goal swap": "=+",
        "parse board": "+=",
    }.items():
        assert knobs_of(f"valid7 {kinds}", knobs="hole5 = wait5 =") == expected
        assert knobs_of(f"valid1 {kinds}") == expected.replace("+", "-")


def test_where_no_failure_points_to_a_knob_the_lowest_goes_up_and_the_highest_down():
    for kinds in ("goal parse", "none none", "? ?"):
        assert knobs_of(f"valid9 {kinds}", knobs="hole4 = wait3 =") == "=+"
        assert knobs_of(f"valid9 {kinds}", knobs="hole3 = wait4 =") == "+="
        assert knobs_of(f"valid0 {kinds}", knobs="hole4 = wait3 =") == "-="
        assert knobs_of(f"valid0 {kinds}", knobs="hole3 = wait4 =") == "=-"
        assert knobs_of(f"valid9 {kinds}", knobs="hole4 = wait4 =") == "+="
        assert knobs_of(f"valid0 {kinds}", knobs="hole4 = wait4 =") == "-="


def test_a_knob_at_its_end_leaves_the_step_to_another():
    assert knobs_of("valid8 hole none", knobs="hole10 = wait9 =") == "=+"
    assert knobs_of("valid8 hole none", knobs="hole9 = wait0 =") == "+="
    assert knobs_of("valid8 hole swap", knobs="hole10 = wait9 =") == "=+"
    assert knobs_of("valid8 hole none", knobs="hole10 = wait10 =") == "=="
    assert knobs_of("valid0 swap none", knobs="hole1 = wait0 =") == "-="
    assert knobs_of("valid0 swap none", knobs="hole9 = wait1 =") == "=-"
    assert knobs_of("valid0 swap none", knobs="hole0 = wait0 =") == "=="
    # The end of the other direction is none.
    assert knobs_of("valid8 hole none", knobs="hole0 = wait5 =") == "+="
    assert knobs_of("valid0 hole none", knobs="hole10 = wait5 =") == "-="


def test_a_knob_that_can_take_one_value_alone_is_never_chosen():
    domain = roomy(Bounds(sizes=(3,), max_wait_ratio=0.0))
    for valid, way in ((90, 1), (0, -1)):
        evidence = StageEvidence(stage=1, validation={"3": tally(valid)})
        view = StageView(domain, evidence, lake((1, 0.25, 0.0)))
        edits = teacher_edits(read_out(view, BLOCKS), domain)
        assert edits == {"3": {"data_ratio": 0, "hole_ratio": way, "wait_ratio": 0}}
        swaps = GroupEvidence(count=100, valid=valid, failures={"swapping_conflict": 100 - valid})
        view = replace(view, evidence=StageEvidence(stage=1, validation={"3": swaps}))
        assert teacher_edits(read_out(view, BLOCKS), domain) == edits


def test_edits_after_which_the_valid_rate_fell_are_taken_back_and_nothing_else_moves():
    for valid in range(11):
        for kind in ("hole", "swap", "goal"):
            facts = f"valid{valid} {kind} none"
            assert knobs_of(facts, "-", "hole5 + wait5 =") == "-="
            assert knobs_of(facts, "-", "hole5 - wait5 +") == "+-"
            assert knobs_of(facts, "-", "hole5 = wait5 -") == "=+"
    # An edit to the data alone is none to the knobs.
    (line,) = rule("next", row("valid8 hole none", "-", knobs="data10 + hole5 = wait5 ="))
    assert line == "n3 = + ="
    # Nothing is taken back where the valid rate did not fall.
    for trend in "=+?":
        assert knobs_of("valid8 hole none", trend, "hole5 + wait5 =") == "+="
    # Data moves all the same.
    rows = [
        row("valid8 hole none", "-", "learn3", "data5 + hole5 = wait5 +"),
        row("valid8 hole none", "+", "learn5", "data5 - hole5 + wait5 +", group=4),
    ]
    assert rule("next", *rows) == ["n3 - = -", "n4 + + ="]
    # Nor is anything kept because the group's own instances are too easy.
    (line,) = rule("next", row("valid8 hole none", "-", "learn0", "data10 = hole5 = wait5 +"))
    assert line == "n3 = = -"


@pytest.mark.parametrize("facts", ["valid2 hole none", "valid5 ? ?", "valid10 none none"])
@pytest.mark.parametrize("trend", "-=+?")
def test_every_knob_goes_up_where_a_group_s_own_instances_are_too_easy(facts, trend):
    for learnability, expected in {"learn0": "+ +", "learn3": "+ +", "learn4": None}.items():
        (line,) = rule("next", row(facts, trend, learnability, "data10 = hole5 = wait5 ="))
        assert (line == "n3 = + +") == bool(expected)
    (line,) = rule("next", row(facts, trend, "learn1", "data10 = hole10 = wait9 ="))
    assert line == "n3 = = +"
    (line,) = rule("next", row(facts, trend, "learn1", "data10 = hole10 = wait10 ="))
    assert line == "n3 = = ="
    (line,) = rule("rolled", row(facts, trend, "learn1", "data10 = hole5 + wait5 ="))
    assert line == "n3 = = +"


def test_little_to_learn_from_what_is_hardly_ever_solved_is_not_too_easy():
    for valid in ("valid0", "valid1"):
        (line,) = rule("next", row(f"{valid} hole none", "=", "learn0", "data10 = hole5 = wait5 ="))
        assert line == "n3 = - ="
    (line,) = rule("next", row("? ? ?", "=", "learn0", "data10 = hole5 = wait5 ="))
    assert line == "n3 = = ="


def test_the_rule_leaves_a_corner_where_all_is_too_easy():
    """Validation falls there, because boards like its own are never trained on."""
    rows = [
        row("valid6 vertex hole", "-", "learn2", "data10 ? hole0 ? wait0 ?", group=3),
        row("valid3 hole vertex", "-", "learn3", "data0 ? hole0 ? wait0 ?", group=6),
    ]
    assert rule("rolled", *rows) == ["n3 - + +", "n6 + + +"]


def test_after_a_rollback_no_edit_is_tried_again():
    assert knobs_of("valid8 hole none", "=", "hole5 + wait5 =", "rolled") == "=+"
    assert knobs_of("valid8 hole none", "-", "hole5 + wait5 =", "rolled") == "=+"
    assert knobs_of("valid8 hole swap", "-", "hole5 + wait5 +", "rolled") == "=="
    assert knobs_of("valid0 swap none", "-", "hole5 = wait5 -", "rolled") == "-="
    # The opposite of an edit is another one.
    assert knobs_of("valid8 hole none", "=", "hole5 - wait5 +", "rolled") == "+="
    assert knobs_of("valid0 hole none", "-", "hole5 + wait5 +", "rolled") == "-="


def test_a_refusal_changes_nothing():
    rows = [row("valid8 hole swap", "-", "learn3", "data5 + hole5 = wait5 +"), row(group=4)]
    for first in ("first", "next", "rolled", "?"):
        assert rule(first, *rows) == rule(f"{first} refused", *rows)


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("place", [0, 1, 3])
def test_every_fact_of_a_row_decides_something(fact, place):
    domain, _ = READ_DOMAINS[place]
    if fact == "failures" and not domain.causes:
        return
    rng = np.random.default_rng(3)
    readouts = synthetic_readouts(rng, domain, runs=100)
    changed = 0
    for _ in range(500):
        one, other = (readouts[n] for n in rng.integers(len(readouts), size=2))
        swapped = with_fact_of(one, other, fact)
        changed += teacher_edits(swapped, domain) != teacher_edits(one, domain)
    assert changed > 25


def test_the_states_decide_something_too():
    rng = np.random.default_rng(3)
    readouts = synthetic_readouts(rng, LAKE, runs=100)
    changed = 0
    for readout in readouts:
        following, rolled = (replace(readout, state=state) for state in ("next", "rolled"))
        changed += teacher_edits(following, LAKE) != teacher_edits(rolled, LAKE)
    assert changed > 25


def test_the_teacher_balances_data_and_moves_several_knobs_only_with_a_reason():
    rng = np.random.default_rng(4)
    for readout in synthetic_readouts(rng, LAKE, runs=150):
        edits = teacher_edits(readout, LAKE)
        assert sorted(signs["data_ratio"] for signs in edits.values()) in ([-1, 0, 1], [0, 0, 0])
        for group, signs in edits.items():
            one = readout.groups[group]
            moved = [signs["hole_ratio"], signs["wait_ratio"]]
            if moved.count(0) == 0:
                taken_back = one.trend == -1 and moved == [
                    -(one.last_edit or {}).get(knob, 0) for knob in ("hole_ratio", "wait_ratio")
                ]
                too_easy = one.learnability is not None and one.learnability <= 3
                assert taken_back or (too_easy and moved == [1, 1])


def test_the_rule_reads_all_blocks_whatever_the_context_shows(view):
    hidden = build_context(view, blocks=(), style="compact")
    assert "?" in hidden.text
    assert next_configuration(view) == LAKE.space.make(
        apply_edits(teacher_edits(read_out(view, BLOCKS), LAKE), CURRENT, BOUNDS)
    )


def test_a_stage_is_answered_as_the_sentences_say(view):
    before = lake((0.45, 0.2, 0.25), (0.35, 0.15, 0.5), (0.2, 0.0, 0.9))
    rates = {"3": 0.6, "4": 0.5, "5": 0.3}
    told = replace(view, domain=LAKE, designed_from=before, valid_before=rates)
    # 4x4 teaches most and 5x5 least; 3x3 is solved and falls into holes; 5x5 fell with more waits.
    rows = (0.5, 0.25, 0.25), (0.35, 0.1, 0.5), (0.15, 0.0, 0.95)
    assert next_configuration(told) == lake(*rows)
