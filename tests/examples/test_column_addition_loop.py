"""Column addition in the loop: evidence, trainee, stages and command."""

import re
from collections import Counter

import numpy as np
import pytest

from engineer import (
    SCRIPTED_ENGINEERS,
    RuleEngineer,
    RunSettings,
    StageEvidence,
    StageView,
    answer_text,
    build_context,
    scripted_engineer,
)
from engineer.context import STYLES
from examples.column_addition.__main__ import SPACE, Experiment, main, run_stages
from examples.column_addition.engineer_side import STATISTICS, addition_evidence
from examples.column_addition.environment import Sum, check_answer, draw_sums
from examples.column_addition.trainee import END, UNTRAINED, Trainee, make_columns, reinforce
from tests.examples.additions import CURRENT, make_group

EXPERIMENT = Experiment(stages=4, training={"num_updates": 20})


@pytest.fixture(scope="module")
def outcomes():
    return list(run_stages(EXPERIMENT, RuleEngineer()))


@pytest.mark.parametrize("style", STYLES)
def test_context_describes_sums_and_not_the_lake(outcomes, style):
    outcome = outcomes[2]
    view = StageView(
        EXPERIMENT.domain(), outcome.evidence, outcome.configuration, refusal="none was given"
    )
    text = build_context(view, style=style).text
    lake = r"\b(lakes?|frozen|holes?|waits?|map sizes?|boards?|agents?|goals?|cells?|path\w*)\b"
    assert re.findall(lake, text, re.IGNORECASE) == []
    if style == "compact":
        assert [row.split(" ")[0] for row in text.split("\n")[1:-2]] == ["d1", "d2", "d3"]
    else:
        for block in ("ailure", "istory", "raining", "uideline", "nvironment"):
            assert block in text
        assert all(f'"{group}":' in text for group in SPACE.groups)
        assert "Valid by carries: " in text
        assert re.search(r'on sum "\d+ \+ \d+ =": the answer ends in "\d*"', text)
        assert "share of sums that carry 0.1" in text


def test_evidence_counts_verifier_outcomes():
    sums = draw_sums(CURRENT, 64, seed=5)
    wrong_answers = {0: "x", 1: "", 2: "9999999", 3: "5"}
    texts = [wrong_answers.get(i % 7, str(problem.total)) for i, problem in enumerate(sums)]
    evidence = addition_evidence(2, sums, texts)
    failures = [check_answer(problem, text)[0] for problem, text in zip(sums, texts, strict=True)]
    for group, tally in evidence.validation.items():
        group_failures = [
            failure
            for failure, problem in zip(failures, sums, strict=True)
            if problem.num_digits == int(group)
        ]
        assert (tally.count, tally.valid) == (
            len(group_failures),
            sum(failure is None for failure in group_failures),
        )
        assert tally.failures == Counter(failure for failure in group_failures if failure)
        levels = tally.slices["carries"].values()
        assert sum(level.count for level in levels) == tally.count
        assert sum(level.valid for level in levels) == tally.valid
    pairs = [(case.group, case.failure) for case in evidence.failed_cases]
    counts = Counter(
        (str(problem.num_digits), failure)
        for problem, failure in zip(sums, failures, strict=True)
        if failure
    )
    assert [counts[pair] for pair in pairs] == sorted(counts.values(), reverse=True)[:4]
    assert StageEvidence.model_validate_json(evidence.model_dump_json()) == evidence


# The trainee and the loop


def measure_rate(trainee: Trainee, sums: list[Sum]) -> float:
    answers = zip(sums, trainee.answer(sums, 0), strict=True)
    return sum(check_answer(*pair) == (None, None) for pair in answers) / len(sums)


def test_trainee_learns_carries_from_carrying_sums():
    held_out = EXPERIMENT.held_out()
    test_sums = [problem for problem in held_out if problem.num_digits == 2 and problem.carries]
    rates = {}
    for ratio in (0.0, 1.0):
        sums = draw_sums(make_group(2, ratio), 128, seed=1, held_out=held_out)
        trainee, evidence = reinforce(EXPERIMENT.warm_start(), sums, seed=2, num_updates=120)
        rates[ratio] = measure_rate(trainee, test_sums)
        assert evidence.reward_last > evidence.reward_first
    assert rates[1.0] > rates[0.0] + 0.15
    assert rates[1.0] > measure_rate(EXPERIMENT.warm_start(), test_sums) + 0.15


def test_gradient_step_follows_the_log_probability():
    columns = make_columns([Sum(8, 5)])  # 13, then a carry, then nothing
    rng = np.random.default_rng(0)
    shapes = (table.shape for table in vars(UNTRAINED).values())
    base = Trainee(*(rng.normal(size=shape) for shape in shapes))
    for actions in ([3, 1, END], [3, END, 7]):  # what follows the end does not count
        length = actions.index(END) + 1

        def log_probability(trainee: Trainee, actions=actions, length=length) -> float:
            probabilities = trainee.probabilities(columns)[0]
            return float(np.log(probabilities[range(length), actions[:length]]).sum())

        gradient = base.gradient_step(columns, np.array([actions]), np.ones(1)).plain - base.plain
        for row, action in ((13, 3), (13, 4), (19, 1), (19, END), (19, 7), (5, 5)):
            offset = np.zeros_like(base.plain)
            offset[row, action] = 1e-6
            neighbour = Trainee(base.plain + offset, base.carried)
            numerical = (log_probability(neighbour) - log_probability(base)) / 1e-6
            assert gradient[row, action] == pytest.approx(numerical, abs=1e-4)


def test_stages_never_train_on_held_out_sums(outcomes):
    warm_start, stage_1, stage_2, stage_3, stage_4 = outcomes
    assert warm_start.configuration is warm_start.record is stage_4.record is None
    assert stage_1.configuration == EXPERIMENT.initial()
    for outcome, next_outcome in ((stage_1, stage_2), (stage_2, stage_3), (stage_3, stage_4)):
        assert next_outcome.configuration == outcome.record.configuration
    assert len({answer_text(outcome.configuration) for outcome in outcomes[1:]}) > 1
    held_out = set(EXPERIMENT.held_out())
    for outcome in outcomes[1:]:
        assert len(set(outcome.sums)) == EXPERIMENT.instances
        assert not held_out & set(outcome.sums)
        for row in outcome.evidence.environment.values():
            assert set(row) == {label.key for label in STATISTICS}
    assert "| 1 | initial | 1-digit sums |" in stage_3.record.context
    assert "| 2 | accepted | 1-digit sums |" in stage_3.record.context
    for group, tally in stage_2.evidence.validation.items():
        percent_before = stage_1.evidence.validation[group].valid_percent
        row = rf"^\| 2 \| .* {group}-digit sums .* {percent_before}% \| {tally.valid_percent}% \|"
        assert re.search(row, stage_3.record.context, re.MULTILINE)


def test_run_depends_on_its_seed_only(outcomes):
    evidence = [outcome.evidence for outcome in outcomes[:2]]
    same_seed, other_seed = (
        run_stages(Experiment(4, seed=seed, training=EXPERIMENT.training), RuleEngineer())
        for seed in (0, 1)
    )
    assert [next(same_seed).evidence, next(same_seed).evidence] == evidence
    assert [next(other_seed).evidence, next(other_seed).evidence] != evidence


@pytest.mark.parametrize("name", [*SCRIPTED_ENGINEERS, "shuffled:learnability"])
def test_scripted_engineers_design_sums(name):
    training = {"num_updates": 3, "num_prompts": 8, "num_answers": 4}
    experiment = Experiment(stages=3, instances=40, training=training)
    engineer = scripted_engineer(name, RunSettings(SPACE, experiment.initial(), 3, 0))
    for outcome in run_stages(experiment, engineer):
        assert len(outcome.sums) == (40 if outcome.configuration else 0)
        if outcome.record:
            assert outcome.record.kind in ("accepted", "repaired", "unchanged")
            assert outcome.record.engineer == name


# The command line


def test_command_runs_stages_and_prints_designs(capsys):
    assert main(["--stages", "2", "--engineer", "learnability", "--context"]) == 0
    output = capsys.readouterr().out
    lines = [line for line in output.split("\n") if line.startswith(("warm", "stage"))]
    assert lines == ["warm start", "stage 1", "stage 2"]
    assert "design by learnability: accepted, used as written" in output
    assert re.search(r"^    \d\.data_ratio 0\.\d+ -> 0\.\d+$", output, re.MULTILINE)
    assert "## Failure breakdown" in output
