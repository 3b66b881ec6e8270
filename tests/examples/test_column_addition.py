"""Column addition, the second environment, against plain counting and schoolbook addition."""

import math
import re
import subprocess
import sys
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from engineer import (
    SCRIPTED,
    InfeasibleError,
    RuleEngineer,
    RunSettings,
    StageEvidence,
    StageView,
    answer_text,
    build_context,
    review_answer,
    scripted_engineer,
)
from engineer.context import STYLES
from engineer.scoring.learnability import learnability_model
from examples.column_addition.__main__ import INITIAL, SPACE, Experiment, addition, main, run_stages
from examples.column_addition.engineer_side import (
    FAILURE_TERMS,
    STATISTIC_TERMS,
    addition_domain,
    addition_evidence,
)
from examples.column_addition.environment import (
    AdditionConfiguration,
    AdditionSpace,
    DigitKnobs,
    Sum,
    check_answer,
    count_sums,
    draw_sums,
    quotas,
)
from examples.column_addition.trainee import END, UNTRAINED, Trainee, columns_of, reinforce
from tests.paths import ROOT


def one_group(digits: int, carry_ratio: float) -> AdditionConfiguration:
    return AdditionConfiguration(digits={digits: DigitKnobs(data_ratio=1, carry_ratio=carry_ratio)})


def schoolbook(first: int, second: int) -> tuple[str, list[int]]:
    """The sum as on paper: its digits, and the carries written above the columns, lowest first."""
    carries, digits = [0], ""
    for one, other in zip(str(first)[::-1], str(second)[::-1], strict=True):
        amount = carries[-1] + int(one) + int(other)
        digits += str(amount)[-1]
        carries.append(amount // 10)
    return ("1" if carries[-1] else "") + digits[::-1], carries


@st.composite
def sums(draw) -> Sum:
    digits = draw(st.integers(1, 6))
    number = st.integers(0 if digits == 1 else 10 ** (digits - 1), 10**digits - 1)
    return Sum(draw(number), draw(number))


@st.composite
def configurations(draw) -> AdditionConfiguration:
    """Any configuration on the grid and within the bounds."""
    cuts = sorted(draw(st.tuples(st.integers(0, 7), st.integers(0, 7))))
    shares = (1 + cuts[0], 1 + cuts[1] - cuts[0], 8 - cuts[1])
    knobs = [(share / 10, draw(st.integers(0, 10)) / 10) for share in shares]
    return addition(d1=knobs[0], d2=knobs[1], d3=knobs[2])


# Sums and their generator


@pytest.mark.parametrize("digits", [1, 2])
@pytest.mark.parametrize("carry", [False, True])
def test_kinds_are_as_large_as_counting_says(digits, carry):
    numbers = range(10) if digits == 1 else range(10, 100)
    counted = [p for p in product(numbers, repeat=2) if any(schoolbook(*p)[1]) == carry]
    assert count_sums(digits, carry) == len(counted)
    if digits == 1:
        drawn = draw_sums(one_group(1, float(carry)), len(counted), seed=3)
        assert sorted((one.first, one.second) for one in drawn) == counted


@settings(max_examples=60)
@given(configuration=configurations(), count=st.integers(0, 60), seed=st.integers(0, 2**32))
def test_quotas_are_met_by_different_sums(configuration, count, seed):
    drawn = draw_sums(configuration, count, seed)
    assert drawn == draw_sums(configuration, count, seed)
    assert len(set(drawn)) == len(drawn) == count == sum(quotas(configuration, count).values())
    for digits, knobs in configuration.digits.items():
        group = [one for one in drawn if len(str(one.first)) == digits]
        assert abs(len(group) - knobs.data_ratio * count) < 1
        with_carry = sum(any(schoolbook(one.first, one.second)[1]) for one in group)
        assert abs(with_carry - knobs.carry_ratio * len(group)) <= 0.5 + 1e-6


def test_held_out_sums_never_come_and_all_others_do():
    held_out = draw_sums(one_group(1, 1.0), 20, seed=1)
    for asked in (25, 45):
        rest = draw_sums(one_group(1, 1.0), asked, seed=2, held_out=held_out)
        assert len(set(rest)) == len(rest) == 25
        assert not set(rest) & set(held_out)


def test_other_seeds_draw_other_sums_all_over_their_kind():
    draws = [draw_sums(one_group(2, 0.5), 200, seed) for seed in range(20)]
    assert len(set(draws)) == 20
    seen = Counter((one.first, one.second) for drawn in draws for one in drawn)
    # 2,000 draws of 1,980 sums give 1,260 different ones and 2,000 of 6,120 give 1,710, if all are
    # equally likely.
    assert 2850 < len(seen) < 3100
    assert {first for first, _ in seen} == set(range(10, 100))


# The verifier


def first_failure(one: Sum, text: str) -> tuple[str | None, int | None]:
    """The taxonomy, from the digits and carries of schoolbook addition."""
    right, above = schoolbook(one.first, one.second)
    width = max(len(right), len(text))
    for column in range(width):
        place = width - 1 - column
        due, given_digit = right.rjust(width)[place], text.rjust(width)[place]
        if due == given_digit:
            continue
        if " " in (due, given_digit):
            return "wrong_length", column
        carry = above[column] if column < len(above) else 0
        if carry and given_digit == str((int(due) - carry) % 10):
            return "carry_missed", column
        return "wrong_digit", column
    return None, None


@settings(max_examples=300)
@given(one=sums(), data=st.data())
def test_first_failure_is_found_and_named_as_on_paper(one, data):
    right, above = schoolbook(one.first, one.second)
    assert one.carries == any(above)
    assert check_answer(one, f" {right}\n") == (None, None)
    assert check_answer(one, "0" + right) != (None, None)
    digits = list(right)
    for place in data.draw(st.sets(st.integers(0, len(right) - 1))):
        digits[place] = str(data.draw(st.integers(0, 9)))
    text = data.draw(st.sampled_from(["", "0", "7"])) + "".join(digits)[data.draw(st.booleans()) :]
    assume(text)
    assert check_answer(one, text) == first_failure(one, text)


@pytest.mark.parametrize(
    ("text", "failure", "column"),
    [
        ("132", None, None),
        ("122", "carry_missed", 1),
        ("032", "carry_missed", 2),
        ("32", "wrong_length", 2),
        ("1132", "wrong_length", 3),
        ("232", "wrong_digit", 2),
        ("131", "wrong_digit", 0),
        ("1", "wrong_digit", 0),
        *((text, "parse_error", None) for text in ("", "-132", "132.0", "1 32", "١٣٢", "1³2")),
    ],
)
def test_answers_to_47_plus_85(text, failure, column):
    assert check_answer(Sum(47, 85), text) == (failure, column)


@given(text=st.text())
@example("9" * 50_000)
@example("2" * 49_997 + "132")
def test_any_text_has_a_failure_of_the_taxonomy_or_none(text):
    failure, _ = check_answer(Sum(47, 85), text)
    assert failure in {None, *(term.key for term in FAILURE_TERMS)}
    assert (failure is None) == (text.strip() == "132")


# What the engineer asks for

CURRENT = addition(d1=(0.5, 0.2), d2=(0.3, 0.5), d3=(0.2, 1.0))
DOMAIN = addition_domain(SPACE, instances=64)
GOOD = answer_text(CURRENT)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "holds no complete JSON object with digit counts as keys"),
        (GOOD.replace('"3"', '"4"'), 'digit count "4" is not one of 1, 2, 3'),
        (GOOD.replace("carry_ratio", "hole_ratio", 1), '1."hole_ratio" is not one of'),
        (GOOD.replace("0.20", "NaN", 1), "1.carry_ratio must be a finite number, got nan"),
    ],
)
def test_refusals_name_the_environments_own_words(text, reason):
    reviewed = review_answer(text, CURRENT, DOMAIN)
    assert reviewed.kind == "rejected"
    assert reason in reviewed.reason


@settings(max_examples=150)
@given(
    configuration=configurations(),
    instances=st.integers(1, 300),
    seed=st.integers(0, 2**32),
    held=st.integers(0, 40),
)
@example(addition(d1=(0.5, 1.0), d2=(0.4, 0.0), d3=(0.1, 0.0)), 91, 0, 0)
def test_every_reviewed_configuration_has_all_its_sums(configuration, instances, seed, held):
    held_out = draw_sums(one_group(1, 0.5), held, seed)
    domain = addition_domain(SPACE, instances, held_out)
    reviewed = review_answer(answer_text(configuration), CURRENT, domain)
    if reviewed.configuration is None:
        asked = configuration.digits[1].data_ratio * instances
        assert f"{math.ceil(asked - 1e-9)} different sums, {100 - held} can" in reviewed.reason
        assert asked > (100 - held) / 2
        return
    drawn = draw_sums(reviewed.configuration, instances, seed, held_out)
    assert len(set(drawn)) == instances
    assert not set(drawn) & set(held_out)


@settings(max_examples=100)
@given(count=st.integers(1, 120), carry=st.integers(0, 20), most=st.integers(0, 20))
def test_nearest_knobs_are_possible_and_none_nearer_are(count, carry, most):
    carry = min(carry, most)
    space = AdditionSpace(digits=(1,), max_carry_ratio=most / 20)
    asked = {"data_ratio": 1.0, "carry_ratio": carry / 20}

    def possible(ratio: float) -> bool:
        """By counting: 55 sums have no carry and 45 have one."""
        with_carry = math.floor(count * ratio + 0.5 + 1e-9)
        return with_carry <= 45 and count - with_carry <= 55

    distances = {abs(n - carry) for n in range(most + 1) if possible(n / 20)}
    nearest = addition_domain(space, count).nearest
    if not distances:
        with pytest.raises(InfeasibleError, match=f"asks for {count} different sums, 100 can"):
            nearest("1", asked)
        return
    got = nearest("1", asked)
    assert possible(got["carry_ratio"])
    assert abs(round(20 * got["carry_ratio"]) - carry) == min(distances)
    assert (got["data_ratio"], nearest("1", got)) == (1.0, got)


@pytest.mark.parametrize("digits", [(), (0,), (7,), (1, 1), (1.5,)])
def test_impossible_numbers_of_digits_are_refused(digits):
    with pytest.raises(ValueError, match="digit"):
        AdditionSpace(digits=digits)


def test_configurations_order_their_groups_and_survive_json():
    turned = AdditionConfiguration(digits=dict(reversed(CURRENT.digits.items())))
    assert list(turned.values()) == ["1", "2", "3"]
    assert AdditionConfiguration.model_validate_json(CURRENT.model_dump_json()) == CURRENT
    with pytest.raises(ValueError, match=r"sum to 1, they sum to 0\.5"):
        addition(d1=(0.5, 0.1))


# What the engineer reads

QUICK = Experiment(stages=4, training={"updates": 20})


@pytest.fixture(scope="module")
def outcomes():
    return list(run_stages(QUICK, RuleEngineer()))


@pytest.mark.parametrize("style", STYLES)
def test_context_speaks_of_sums_and_holds_no_word_of_the_lake(outcomes, style):
    told = outcomes[2]
    view = StageView(QUICK.domain(), told.evidence, told.configuration, refusal="none was given")
    text = build_context(view, style=style).text
    lake = r"\b(lakes?|frozen|holes?|waits?|map sizes?|boards?|agents?|goals?|cells?|path\w*)\b"
    assert re.findall(lake, text, re.IGNORECASE) == []
    if style == "compact":
        assert [row.split(" ")[0] for row in text.split("\n")[1:-2]] == ["d1", "d2", "d3"]
    else:
        for block in ("ailure", "istory", "raining", "uideline", "nvironment"):
            assert block in text
        assert all(f'"{group}":' in text for group in SPACE.groups)
        assert "By carries: " in text
        assert re.search(r'on sum "\d+ \+ \d+ =": "\d*"', text)
        assert "share of sums that carry 0.1" in text


def test_evidence_counts_what_the_verifier_says():
    asked = draw_sums(CURRENT, 64, seed=5)
    wrong = {0: "x", 1: "", 2: "9999999", 3: "5"}
    texts = [wrong.get(i % 7, str(one.total)) for i, one in enumerate(asked)]
    evidence = addition_evidence(2, asked, texts)
    checked = [check_answer(one, text)[0] for one, text in zip(asked, texts, strict=True)]
    for group, tally in evidence.validation.items():
        own = [c for c, one in zip(checked, asked, strict=True) if one.digits == int(group)]
        assert (tally.count, tally.valid) == (len(own), sum(c is None for c in own))
        assert tally.failures == Counter(c for c in own if c)
        levels = tally.slices["carries"].values()
        assert sum(level.count for level in levels) == tally.count
        assert sum(level.valid for level in levels) == tally.valid
    pairs = [(case.group, case.failure) for case in evidence.failed_cases]
    frequent = Counter((str(one.digits), c) for one, c in zip(asked, checked, strict=True) if c)
    assert [frequent[pair] for pair in pairs] == sorted(frequent.values(), reverse=True)[:4]
    assert StageEvidence.model_validate_json(evidence.model_dump_json()) == evidence


def test_times_of_failures_are_those_of_half_and_of_nine_in_ten():
    wrong = [f"{222222 + 10**column}" for column in (5, 0, 1, 0, 3, 5, 2, 0, 1, 4)]
    times = addition_evidence(0, [Sum(111111, 111111)] * 10, wrong).failure_times
    assert {key: (time.median, time.latest) for key, time in times.items()} == {
        "wrong_digit": (1.0, 5.0)
    }
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        addition_evidence(0, [Sum(1, 2)] * 2, ["3"])


def test_knob_shows_in_the_slices_that_a_replay_reads():
    instances = draw_sums(addition(d1=(0.1, 0.5), d2=(0.4, 0.5), d3=(0.5, 0.5)), 300, seed=5)
    # Sums without a carry are solved, those with one never.
    answers = ["0" if one.carries else str(one.total) for one in instances]
    model = learnability_model(StageView(DOMAIN, addition_evidence(1, instances, answers), INITIAL))
    few, many = (model.rate("3", {"carry_ratio": ratio}) for ratio in (0.1, 0.4))
    assert few - many == pytest.approx(0.3, abs=0.1)


# The trainee and the loop


def rate(trainee: Trainee, asked: list[Sum]) -> float:
    answers = zip(asked, trainee.answer(asked, 0), strict=True)
    return sum(check_answer(*pair) == (None, None) for pair in answers) / len(asked)


def test_carries_are_learned_from_sums_that_carry():
    held_out = QUICK.held_out()
    asked = [one for one in held_out if one.digits == 2 and one.carries]
    rates = {}
    for ratio in (0.0, 1.0):
        shown = draw_sums(one_group(2, ratio), 128, seed=1, held_out=held_out)
        trained, evidence = reinforce(QUICK.warm_start(), shown, seed=2, updates=120)
        rates[ratio] = rate(trained, asked)
        assert evidence.reward_last > evidence.reward_first
    assert rates[1.0] > rates[0.0] + 0.15
    assert rates[1.0] > rate(QUICK.warm_start(), asked) + 0.15


def test_gradient_step_follows_the_log_probability_of_what_was_written():
    columns = columns_of([Sum(8, 5)])  # 13, then a carry, then nothing
    rng = np.random.default_rng(0)
    shapes = (one.shape for one in vars(UNTRAINED).values())
    start = Trainee(*(rng.normal(size=shape) for shape in shapes))
    for actions in ([3, 1, END], [3, END, 7]):  # what follows the end does not count
        last = actions.index(END) + 1

        def log_probability(trainee: Trainee, actions=actions, last=last) -> float:
            chances = trainee.probabilities(columns)[0]
            return float(np.log(chances[range(last), actions[:last]]).sum())

        slope = start.gradient_step(columns, np.array([actions]), np.ones(1)).plain - start.plain
        for row, action in ((13, 3), (13, 4), (19, 1), (19, END), (19, 7), (5, 5)):
            step = np.zeros_like(start.plain)
            step[row, action] = 1e-6
            moved = Trainee(start.plain + step, start.carried)
            rise = (log_probability(moved) - log_probability(start)) / 1e-6
            assert slope[row, action] == pytest.approx(rise, abs=1e-4)


def test_stages_train_on_what_was_designed_and_never_on_the_validation_set(outcomes):
    warm, first, second, third, last = outcomes
    assert warm.configuration is warm.record is last.record is None
    assert first.configuration == QUICK.initial()
    for outcome, after in ((first, second), (second, third), (third, last)):
        assert after.configuration == outcome.record.configuration
    assert len({answer_text(outcome.configuration) for outcome in outcomes[1:]}) > 1
    held_out = set(QUICK.held_out())
    for outcome in outcomes[1:]:
        assert len(set(outcome.sums)) == QUICK.instances
        assert not held_out & set(outcome.sums)
        for row in outcome.evidence.environment.values():
            assert set(row) == {term.key for term in STATISTIC_TERMS}
    assert "Stage 1 (configuration initial)" in third.record.context
    assert "Stage 2 (configuration accepted)" in third.record.context
    for group, tally in second.evidence.validation.items():
        change = f"{first.evidence.validation[group].valid_percent} to {tally.valid_percent}%"
        assert re.search(rf"^- {group}-digit .* valid {change}", third.record.context, re.MULTILINE)


def test_run_is_the_same_for_the_same_seed_only(outcomes):
    shown = [outcome.evidence for outcome in outcomes[:2]]
    again, other = (
        run_stages(Experiment(4, seed=seed, training=QUICK.training), RuleEngineer())
        for seed in (0, 1)
    )
    assert [next(again).evidence, next(again).evidence] == shown
    assert [next(other).evidence, next(other).evidence] != shown


@pytest.mark.parametrize("name", [*SCRIPTED, "shuffled:learnability"])
def test_every_scripted_engineer_designs_sums(name):
    training = {"updates": 3, "prompts": 8, "answers": 4}
    experiment = Experiment(stages=3, instances=40, training=training)
    engineer = scripted_engineer(name, RunSettings(SPACE, experiment.initial(), 3, 0))
    for outcome in run_stages(experiment, engineer):
        assert len(outcome.sums) == (40 if outcome.configuration else 0)
        if outcome.record:
            assert outcome.record.kind in ("accepted", "repaired")
            assert outcome.record.engineer == name


# The command line


def test_command_runs_stages_and_says_what_was_designed(capsys):
    assert main(["--stages", "2", "--engineer", "failure_proportional", "--context"]) == 0
    out = capsys.readouterr().out
    lines = [line for line in out.split("\n") if line.startswith(("warm", "stage"))]
    assert lines == ["warm start", "stage 1", "stage 2"]
    assert "design by failure_proportional: accepted, used as written" in out
    assert re.search(r"^    3\.data_ratio 0\.3 -> 0\.\d+$", out, re.MULTILINE)
    assert "## Failure breakdown" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engineer", "nobody"], "engineer: got 'nobody', allowed are"),
        (["--stages", "0"], "stages must be at least 1, got 0"),
        (["--seed", "-3"], "seed must be at least 0, got -3"),
        (["--instances", "0"], "instances must be at least 1, got 0"),
        (["--instances", "100000"], "data_ratio 0.4 asks for 40000 different sums"),
    ],
)
def test_bad_arguments_end_with_status_2_and_say_why(capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_module_runs_as_a_program():
    command = [sys.executable, "-m", "examples.column_addition", "--stages", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"stage 1" in done.stdout


def test_code_of_the_documentation_runs():
    text = (ROOT / "docs" / "your_environment.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/your_environment.md", "exec"), names)
