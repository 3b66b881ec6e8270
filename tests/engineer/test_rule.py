"""The rule engineer: its answers to contexts, and its configurations."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engineer import BLOCKS, StageEvidence, StageView, answer_text, review_answer
from engineer.context.symbols import read_out, symbols_text
from engineer.edits import edits_text
from engineer.engineers.rule import compute_rule_edits, rule_configuration
from engineer.lake import Bounds
from engineer.synthetic import FACTS, make_synthetic_readouts, replace_fact
from tests.engineer import words
from tests.engineer.builders import ADDITION, column, lake, random_view, roomy, tally

LAKE = roomy()
NUMBER = re.compile(r"[a-z]+(\d+)")
SIGN = {"-": -1, "=": 0, "+": 1, "?": 0}


def number_in(word: str) -> int | None:
    match = NUMBER.fullmatch(word)
    return int(match[1]) if match else None


def answer_from_text(context: str, pointers: Mapping[str, int]) -> str:
    """Apply the rule to the context's words; `pointers` maps failures to knob positions."""
    first, *rows = context.removesuffix("\nedits\n").split("\n")
    rolled = first.split()[1] == "rolled"
    group_names, answers, worths, shares = [], [], [], []
    for row in rows:
        name, valid, first_failure, second_failure, trend, learnability, *knobs = row.split()
        levels = [number_in(word) or 0 for word in knobs[::2]]
        edits = [SIGN[word] for word in knobs[1::2]]
        rate, worth = number_in(valid), number_in(learnability)
        if worth is None and rate is not None:
            worth = 2 * min(rate, 10 - rate)
        group_names.append(name)
        worths.append(worth)
        shares.append(levels[0])
        kinds = [pointers[word] for word in (first_failure, second_failure) if word in pointers]
        dull = number_in(learnability) is not None and number_in(learnability) < 4
        answers.append([0, *knob_signs(rate, trend, kinds, levels, edits, rolled, dull)])
    givers = [
        (worth, -position)
        for position, worth in enumerate(worths)
        if worth is not None and shares[position]
    ]
    takers = [(worth, -position) for position, worth in enumerate(worths) if worth is not None]
    if givers and max(takers)[0] > min(givers)[0]:
        answers[-max(takers)[1]][0] = 1
        answers[-min(givers)[1]][0] = -1
    return "\n".join(
        " ".join([name, *("-=+"[sign + 1] for sign in signs)])
        for name, signs in zip(group_names, answers, strict=True)
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
    """Return the signs of a group's knobs; positions count from the share, which is 0."""
    if trend == "-" and not rolled and any(edits[1:]):
        return [-edit for edit in edits[1:]]
    signs = [0] * len(levels)
    direction = SIGN[trend]
    too_easy = rate is not None and rate > 1 and dull
    if rate is None:
        direction = 0
    elif too_easy or rate > 5:
        direction = 1
    elif rate < 2:
        direction = -1
    if direction:
        limit = 10 if direction > 0 else 0
        movable = [
            position
            for position in range(1, len(levels))
            if levels[position] != limit and not (rolled and edits[position] == direction)
        ]
        ranked = sorted(movable, key=lambda position: (direction * levels[position], position))
        indicated = [position for position in pointed_at if position in movable]
        for position in ranked if too_easy else (indicated or ranked)[:1]:
            signs[position] = direction
    return signs[1:]


LAKE_POINTERS = {"board": 1, "hole": 1, "vertex": 2, "swap": 2}
READ_DOMAINS = [
    (LAKE, LAKE_POINTERS),
    (roomy(Bounds(sizes=(2, 4, 6, 9, 10), min_share=0.1, max_hole_ratio=0.3)), LAKE_POINTERS),
    (roomy(Bounds(sizes=(4,), edit_steps=3)), LAKE_POINTERS),
    (words.DOMAIN, {}),
    (ADDITION, {"carry": 1}),
]


@pytest.mark.parametrize("case", range(len(READ_DOMAINS)))
def test_rule_answer_follows_from_the_context(case):
    domain, pointers = READ_DOMAINS[case]
    rng = np.random.default_rng(case)
    readouts = make_synthetic_readouts(rng, domain, runs=60)
    for _ in range(600):
        readout_1, readout_2 = (readouts[n] for n in rng.integers(len(readouts), size=2))
        readouts.append(replace_fact(readout_1, readout_2, FACTS[int(rng.integers(len(FACTS)))]))
    assert len(readouts) > 700
    answers = Counter()
    for readout in readouts:
        answer = edits_text(compute_rule_edits(readout, domain), domain)
        assert answer == answer_from_text(symbols_text(readout, domain), pointers)
        answers[answer] += 1
    assert len(answers) > 5 * len(domain.space.groups) ** 2 or len(domain.space.groups) == 1
    assert len(answers) > 2


def test_rule_thresholds_apply_to_the_valid_rate():
    def sign(valid: int) -> int:
        evidence = StageEvidence(stage=1, validation={"3": tally(valid, 1000)})
        view = StageView(roomy(Bounds(sizes=(3,))), evidence, lake((1, 0.25, 0.5)))
        return compute_rule_edits(read_out(view, BLOCKS), view.domain)["3"]["hole_ratio"]

    assert [sign(valid) for valid in (550, 549, 150, 149)] == [1, 0, 0, -1]


# Configurations


def with_rates(valid: Mapping[int, int]) -> StageEvidence:
    groups = {str(size): tally(n) for size, n in valid.items()}
    return StageEvidence(stage=1, validation=groups)


def test_rule_moves_by_the_steps_of_the_space():
    domain = roomy(Bounds(sizes=(3, 4, 5), edit_steps=3))
    current = lake((0.5, 0.2, 0.4), (0.4, 0.2, 0.4), (0.1, 0.2, 0.4))
    new = rule_configuration(StageView(domain, with_rates({3: 50, 4: 60, 5: 0}), current))
    assert column(new, "data_ratio") == [0.6, 0.4, 0.0]
    assert column(new, "hole_ratio") == [0.2, 0.35, 0.05]
    assert column(new, "wait_ratio") == [0.4, 0.4, 0.4]


def test_new_group_starts_from_zero():
    bounds = Bounds(sizes=(4, 5, 6))
    current = lake((0.4, 0.2, 0.4), (0.3, 0.2, 0.4), (0.3, 0.2, 0.4))
    new = rule_configuration(StageView(roomy(bounds), with_rates({4: 30, 5: 10, 6: 60}), current))
    assert list(new.values()["6"].values())[1:] == [0.05, 0.0]
    assert new.values()["6"]["data_ratio"] > 0


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32 - 1))
def test_rule_edits_are_accepted_in_any_environment(seed):
    view = random_view(np.random.default_rng(seed))
    new = rule_configuration(view)
    decision = review_answer(answer_text(new), view.current, view.domain)
    kind = "accepted" if decision.diff else "unchanged"
    assert (decision.kind, decision.repairs) == (kind, ())
    edits = compute_rule_edits(read_out(view, BLOCKS), view.domain)
    decision = review_answer(edits_text(edits, view.domain), view.current, view.domain)
    assert {repair.name for repair in decision.repairs} <= {"feasibility"}
    assert decision.configuration is not None
    for group, knobs in new.values().items():
        # The review ignores knobs of groups without data.
        if knobs[view.domain.space.share]:
            assert decision.configuration.values()[group] == knobs
