"""A user's environment behind the loop's protocol: counts, draws and errors."""

from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest

from engineer import KnobConfiguration
from tests.training.environments.parity import FixedStatistics, parity
from training.environments.catalogue import get_environment
from training.environments.user_adapter import UserEnvironmentAdapter
from training.errors import UserError
from training.run.answer_records import compute_validation_rates, make_stage_evidence
from training.run.records import DecisionRecord
from training.schema import load

PARITY = Path(__file__).with_name("parity.yaml")


@pytest.fixture(scope="module")
def environment() -> UserEnvironmentAdapter:
    adapter = get_environment(load(PARITY))
    assert isinstance(adapter, UserEnvironmentAdapter)
    return adapter


def test_answers_are_counted_by_group_and_slice(environment: UserEnvironmentAdapter):
    words = environment.validation_set()
    rng = np.random.default_rng(3)
    texts = rng.choice(["odd", " even", "perhaps"], len(words)).tolist()
    judged_texts = environment.judge(words, texts)
    episodes = environment.episodes(words, texts, judged_texts)
    evidence, rates = make_stage_evidence(2, episodes), compute_validation_rates(2, episodes)
    for group, tally in evidence.validation.items():
        for level, counts in tally.slices["ones"].items():
            results = [
                "unreadable" if text == "perhaps" else "valid" if text.strip() == level else "wrong"
                for word, text in zip(words, texts, strict=True)
                if len(word) == int(group) and parity(word) == level
            ]
            result_counts = Counter(results)
            assert counts.count == len(results) > 0
            assert counts.valid == result_counts.pop("valid", 0)
            assert counts.failures == result_counts
        assert tally.count == sum(counts.count for counts in tally.slices["ones"].values())
    assert list(rates.groups) == ["8", "9"]
    assert rates.total.valid == int(judged_texts.scores.rewards.sum())
    assert [episode.text for episode in episodes] == texts
    np.testing.assert_array_equal(judged_texts.scores.parsed, [text != "perhaps" for text in texts])


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("ShortDraw", "draw returned 39 of 40 instances"),
        ("UnknownFailure", "failure must be one of unreadable, wrong, got 'typo'"),
        ("InfiniteReward", "reward must be finite"),
        ("InvalidLevel", r"parity:InvalidLevel: .*slices\.ones: got 3"),
    ],
)
def test_invalid_environment_output_is_named(name: str, problem: str):
    adapter = get_environment(
        load(PARITY, [f"environment.kind=tests.training.environments.parity:{name}"])
    )

    def judge_answers() -> None:
        words = adapter.validation_set()
        texts = ["perhaps"] * len(words)
        adapter.episodes(words, texts, adapter.judge(words, texts))

    with pytest.raises(UserError, match=problem):
        judge_answers()


@pytest.mark.parametrize(
    ("statistics", "problem"),
    [
        ({"twos": 1.0}, "statistics: 'twos' is not one of the domain's: ones"),
        ({"ones": "many"}, "statistics: ones must be a finite number, got 'many'"),
        ({"ones": float("nan")}, "statistics: ones must be a finite number, got nan"),
        ({"ones": np.float32(4.5)}, None),
    ],
)
def test_statistics_must_be_finite_domain_names(statistics, problem):
    config = load(PARITY)
    validation = config.validation.configuration
    user_environment = FixedStatistics(fixed_statistics=statistics)
    adapter = UserEnvironmentAdapter("here", user_environment, 32, validation, 40, 0)
    arguments = (jax.random.key(0), config.environment.initial, 32, adapter.validation_set())
    if problem is None:
        assert adapter.stage_set(*arguments).statistics == {"8": {"ones": 4.5}, "9": {"ones": 4.5}}
        return
    with pytest.raises(UserError, match=problem):
        adapter.stage_set(*arguments)


def test_held_out_instances_are_not_trained_on():
    config = load(PARITY, ["environment.kind=tests.training.environments.parity:LeakyDraw"])
    adapter = get_environment(config)
    with pytest.raises(UserError, match="which is held out for validation"):
        adapter.stage_set(
            jax.random.key(0), config.environment.initial, 32, adapter.validation_set()
        )


def test_decision_of_a_custom_configuration_is_plain_json():
    from examples.column_addition.__main__ import INITIAL

    fields = {"stage": 1, "engineer": "rule", "kind": "kept", "reason": "", "spent": {}}
    decision = DecisionRecord.model_validate(
        {**fields, "diff": (), "repairs": (), "configuration": INITIAL}
    )
    assert isinstance(decision.configuration, KnobConfiguration)
    assert decision.configuration.share == "data_ratio"
    assert decision.configuration.values() == INITIAL.values()
