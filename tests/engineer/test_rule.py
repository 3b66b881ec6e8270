"""The rule engineer: its answers to contexts, and its configurations."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engineer import BLOCKS, StageEvidence, StageView, answer_text, review_answer
from engineer.context.symbols import compact_text, make_compact_context
from engineer.edits import edits_text
from engineer.engineers.rule import compute_rule_edits, rule_configuration
from engineer.lake import Bounds
from engineer.synthetic import FACTS, make_synthetic_contexts, replace_fact
from tests.engineer import words
from tests.engineer.builders import ADDITION, column, from_rows, hole_tally, make_lake, random_view

LAKE = make_lake()
NUMBER = re.compile(r"[a-z]+(\d+)")
SIGNS = {"-": -1, "=": 0, "+": 1, "?": 0}


def parse_level(word: str) -> int | None:
    match = NUMBER.fullmatch(word)
    return int(match[1]) if match else None


def answer_from_text(context: str, causes: Mapping[str, int]) -> str:
    """Apply the rule to the context's words; `causes` maps failures to knob positions."""
    state_line, *rows = context.removesuffix("\nedits\n").split("\n")
    rollback = state_line.split()[1] == "rolled"
    group_names, sign_rows, gains, shares = [], [], [], []
    for row in rows:
        name, valid, first_failure, second_failure, trend, learnability, *knobs = row.split()
        levels = [parse_level(word) or 0 for word in knobs[::2]]
        edits = [SIGNS[word] for word in knobs[1::2]]
        rate, gain = parse_level(valid), parse_level(learnability)
        if gain is None and rate is not None:
            gain = 2 * min(rate, 10 - rate)
        group_names.append(name)
        gains.append(gain)
        shares.append(levels[0])
        hints = [causes[word] for word in (first_failure, second_failure) if word in causes]
        low_signal = parse_level(learnability) is not None and parse_level(learnability) < 4
        sign_rows.append([0, *knob_signs(rate, trend, hints, levels, edits, rollback, low_signal)])
    donors = [
        (gain, -position)
        for position, gain in enumerate(gains)
        if gain is not None and shares[position]
    ]
    receivers = [(gain, -position) for position, gain in enumerate(gains) if gain is not None]
    if donors and max(receivers)[0] > min(donors)[0]:
        sign_rows[-max(receivers)[1]][0] = 1
        sign_rows[-min(donors)[1]][0] = -1
    return "\n".join(
        " ".join([name, *("-=+"[sign + 1] for sign in signs)])
        for name, signs in zip(group_names, sign_rows, strict=True)
    )


def knob_signs(
    rate: int | None,
    trend: str,
    hints: Sequence[int],
    levels: Sequence[int],
    edits: Sequence[int],
    rollback: bool,
    low_signal: bool,
) -> list[int]:
    """Return the signs of a group's knobs; positions count from the share, which is 0."""
    if trend == "-" and not rollback and any(edits[1:]):
        return [-edit for edit in edits[1:]]
    signs = [0] * len(levels)
    direction = SIGNS[trend]
    too_easy = rate is not None and rate > 1 and low_signal
    if rate is None:
        direction = 0
    elif too_easy or rate > 5:
        direction = 1
    elif rate < 2:
        direction = -1
    if direction:
        bound = 10 if direction > 0 else 0
        candidates = [
            position
            for position in range(1, len(levels))
            if levels[position] != bound and not (rollback and edits[position] == direction)
        ]
        ranking = sorted(candidates, key=lambda position: (direction * levels[position], position))
        matches = [position for position in hints if position in candidates]
        for position in ranking if too_easy else (matches or ranking)[:1]:
            signs[position] = direction
    return signs[1:]


LAKE_CAUSES = {"board": 1, "hole": 1, "vertex": 2, "swap": 2}
CASES = [
    (LAKE, LAKE_CAUSES),
    (make_lake(Bounds(sizes=(2, 4, 6, 9, 10), min_share=0.1, max_hole_ratio=0.3)), LAKE_CAUSES),
    (make_lake(Bounds(sizes=(4,), edit_steps=3)), LAKE_CAUSES),
    (words.DOMAIN, {}),
    (ADDITION, {"carry": 1}),
]


@pytest.mark.parametrize("case_index", range(len(CASES)))
def test_rule_answer_follows_from_the_context(case_index):
    domain, causes = CASES[case_index]
    rng = np.random.default_rng(case_index)
    contexts = make_synthetic_contexts(rng, domain, runs=60)
    for _ in range(600):
        context_1, context_2 = (contexts[n] for n in rng.integers(len(contexts), size=2))
        contexts.append(replace_fact(context_1, context_2, FACTS[int(rng.integers(len(FACTS)))]))
    assert len(contexts) > 700
    answer_counts = Counter()
    for context in contexts:
        answer = edits_text(compute_rule_edits(context, domain), domain)
        assert answer == answer_from_text(compact_text(context, domain), causes)
        answer_counts[answer] += 1
    assert len(answer_counts) > 5 * len(domain.space.groups) ** 2 or len(domain.space.groups) == 1
    assert len(answer_counts) > 2


def test_rule_thresholds_apply_to_the_valid_rate():
    def compute_hole_sign(valid: int) -> int:
        evidence = StageEvidence(stage=1, validation={"3": hole_tally(valid, 1000)})
        view = StageView(make_lake(Bounds(sizes=(3,))), evidence, from_rows((1, 0.25, 0.5)))
        return compute_rule_edits(make_compact_context(view, BLOCKS), view.domain)["3"][
            "hole_ratio"
        ]

    assert [compute_hole_sign(valid) for valid in (550, 549, 150, 149)] == [1, 0, 0, -1]


# Configurations


def make_evidence(valid: Mapping[int, int]) -> StageEvidence:
    groups = {str(size): hole_tally(n) for size, n in valid.items()}
    return StageEvidence(stage=1, validation=groups)


def test_rule_moves_by_the_steps_of_the_space():
    domain = make_lake(Bounds(sizes=(3, 4, 5), edit_steps=3))
    current = from_rows((0.5, 0.2, 0.4), (0.4, 0.2, 0.4), (0.1, 0.2, 0.4))
    design = rule_configuration(StageView(domain, make_evidence({3: 50, 4: 60, 5: 0}), current))
    assert column(design, "data_ratio") == [0.6, 0.4, 0.0]
    assert column(design, "hole_ratio") == [0.2, 0.35, 0.05]
    assert column(design, "wait_ratio") == [0.4, 0.4, 0.4]


def test_new_group_starts_from_zero():
    domain = make_lake(Bounds(sizes=(4, 5, 6)))
    current = from_rows((0.4, 0.2, 0.4), (0.3, 0.2, 0.4), (0.3, 0.2, 0.4))
    design = rule_configuration(StageView(domain, make_evidence({4: 30, 5: 10, 6: 60}), current))
    assert list(design.values()["6"].values())[1:] == [0.05, 0.0]
    assert design.values()["6"]["data_ratio"] > 0


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32 - 1))
def test_rule_edits_are_accepted_in_any_environment(seed):
    view = random_view(np.random.default_rng(seed))
    design = rule_configuration(view)
    decision = review_answer(answer_text(design), view.current, view.domain)
    expected_kind = "accepted" if decision.diff else "unchanged"
    assert (decision.kind, decision.repairs) == (expected_kind, ())
    edits = compute_rule_edits(make_compact_context(view, BLOCKS), view.domain)
    decision = review_answer(edits_text(edits, view.domain), view.current, view.domain)
    assert {repair.name for repair in decision.repairs} <= {"feasibility"}
    assert decision.configuration is not None
    for group, knobs in design.values().items():
        # The review ignores knobs of groups without data.
        if knobs[view.domain.space.share]:
            assert decision.configuration.values()[group] == knobs
