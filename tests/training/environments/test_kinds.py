"""`environment.kind` is validated, and lake-only settings are rejected elsewhere."""

import json
from pathlib import Path

import pytest

from training.analysis.evaluation import evaluate
from training.analysis.study.config import load_study
from training.errors import UserError
from training.policy.policy import write_random_policy
from training.schema import dump, load

PARITY = Path(__file__).with_name("parity.yaml")
MODULE = "tests.training.environments.parity"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "environment.kind=pond",
            ["environment: kind must be one of lake and package.module:NAME", "got 'pond'"],
        ),
        (
            "environment.kind=3",
            ["environment: kind must be one of lake and package.module:NAME", "got 3"],
        ),
        ("environment.kind=no.such.place:Thing", ["no.such.place", "ModuleNotFoundError"]),
        (f"environment.kind={MODULE}:Missing", ["has no attribute Missing"]),
        (f"environment.kind={MODULE}:NOT_A_CLASS", ["must be a subclass of UserEnvironment"]),
        (
            f"environment.kind={MODULE}:AbstractEnvironment",
            ["must implement domain, draw, group, prompt, score"],
        ),
        ("environment.settings.colour=blue", ["settings.colour: unknown key", "min_share"]),
        ("environment.settings.min_share=much", ["settings.min_share: got 'much'"]),
        ("environment.settings.min_share=0.6", ["settings: they define", "at most 0.5"]),
        ("environment.bounds=3", ["environment: bounds: unknown key", "settings"]),
        ("environment.initial.share=odd_ratio", ["share is 'odd_ratio'", "data_ratio"]),
        ("environment.initial=random", ["initial must be a mapping with groups", "got 'random'"]),
        ("environment.initial.groups.10.data_ratio=0", ["must be 8, 9, got 8, 9, 10"]),
        ("environment.initial.groups.8.size=0", ["must be data_ratio, odd_ratio"]),
        ("environment.initial.groups.8.data_ratio=0.5", ["must sum to 1, got a sum of 0.9"]),
        ("environment.initial.groups.8.odd_ratio=2", ["initial.groups.8.odd_ratio: got 2"]),
        ("environment.initial.groups.8.odd_ratio=0.55", ["must be a multiple of 0.1"]),
        ("validation.sizes=[3]", ["validation: sizes: unknown key", "configuration"]),
        ("validation.instances=0", ["validation.instances: got 0"]),
        (
            "engineer.picking={method: sfl}; engineer.kind=fixed",
            ["engineer.picking must not be set"],
        ),
        ("engineer.atlas={after_last: true}", ["engineer.atlas.after_last must not be set"]),
        ("engineer.learning={updates: 2}; engineer.kind=checkpoint", ["learning must not be set"]),
        ("prompt.style=full", ["prompt.style must not be set", "lake only"]),
        ("prompt.template='{board}'", ["prompt.template must not be set"]),
        ("reward.function=tests.training.hooks:bonus", ["reward.function must not be set"]),
        ("reward.valid=0.5", ["reward.valid must not be set", "lake only"]),
        (f"environment.kind={MODULE}:NoDemonstration", ["warm_start must be null"]),
        ("warm_start=null", ["warm_start must not be null for a model made from scratch"]),
    ],
)
def test_invalid_environment_option_is_named(override: str, words: list[str]):
    with pytest.raises(UserError) as error:
        load(PARITY, override.split("; "))
    for word in words:
        assert word in str(error.value)


def test_other_environment_config_round_trips(tmp_path: Path):
    config = load(PARITY)
    config_file = tmp_path / "copy.yaml"
    config_file.write_text(dump(config))
    assert load(config_file) == config
    assert dump(load(config_file)) == dump(config)
    assert list(config.environment.initial.values()["9"]) == ["data_ratio", "odd_ratio"]


def test_lake_commands_reject_other_environments(tmp_path: Path):
    study_file = tmp_path / "study.yaml"
    study_file.write_text(
        f"name: s\nbase: {PARITY}\nengineers: [{{name: a}}]\nseeds: [0]\nbaseline: a\n"
    )
    with pytest.raises(UserError, match="must be lake for this"):
        load_study(study_file)


@pytest.mark.slow
def test_policy_is_evaluated_on_other_environment(tmp_path: Path, capsys):
    config = load(PARITY)
    texts = [f"{prompt}odd even" for prompt in ("0 1 0 1 1 0 1 0 1\n", "1 0\n")]
    write_random_policy(tmp_path / "policy", config.model, texts, max_len=256, seed=0)
    output = tmp_path / "rates.json"
    evaluate(config, tmp_path / "policy", output)
    rates = json.loads(output.read_text())
    assert {group: row["count"] for group, row in rates["groups"].items()} == {"8": 20, "9": 20}
    total = rates["total"]
    assert total["count"] == 40 == total["valid"] + sum(total["failures"].values())
    assert "cells" not in rates
    stdout = capsys.readouterr().out
    assert "40 words" in stdout
    assert "number of bits" in stdout
