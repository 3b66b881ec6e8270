"""The engineer inside other trainers: each example trains the artificial learner."""

import json
from importlib import import_module

import numpy as np
import pytest

from engineer import LearnabilityEngineer
from examples.plug_in import prime_rl_sampler, verl_dataset

MODULES = ("prime_rl_sampler", "verl_dataset", "reasoning_gym_curriculum")


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("name", MODULES)
def test_main_moves_the_learner_to_harder_instances(name, capsys):
    if name == "reasoning_gym_curriculum":
        pytest.importorskip("reasoning_gym", reason="needs pip install reasoning-gym")
    learner = import_module(f"examples.plug_in.{name}").main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert "'difficulty': 0.8" in lines[-1]
    assert min(learner.skill.values()) > 0.0


def test_configure_sets_levels_and_weights():
    pytest.importorskip("reasoning_gym", reason="needs pip install reasoning-gym")
    from reasoning_gym.coaching import (
        CurriculumAttributeConfig,
        CurriculumExperiment,
        CurriculumExperimentConfig,
    )

    from examples.plug_in.reasoning_gym_curriculum import configure

    config = CurriculumExperimentConfig({"chain_sum": CurriculumAttributeConfig({"*": 0})})
    experiment = CurriculumExperiment("one", config, size=8, seed=0)
    configure(experiment, {"chain_sum": {"data_ratio": 0.7, "difficulty": 0.5}})
    dataset_config = experiment.composite.datasets["chain_sum"].config
    assert (dataset_config.min_terms, dataset_config.max_terms) == (2, 7)
    assert (dataset_config.min_digits, dataset_config.max_digits) == (1, 5)
    assert experiment.composite.weights == [0.7]


def make_sampler(num_groups: int) -> prime_rl_sampler.EngineerSampler:
    """Return a sampler of 40 tasks that has seen the answers to some of them."""
    namespace = prime_rl_sampler.SimpleNamespace
    tasks = [namespace(data=namespace(group="ab"[n % 2], difficulty=n / 40)) for n in range(40)]
    sampler = prime_rl_sampler.EngineerSampler(tasks, LearnabilityEngineer(), stage=4)
    agent = namespace(trainable=True)
    for index in range(num_groups):
        trace = namespace(reward=float(index % 3), has_error=False, agent=agent)
        sampler.observe([namespace(task=next(sampler), traces=[trace])])
    return sampler


def test_sampler_resumes_from_its_state():
    sampler, resumed_sampler = make_sampler(6), make_sampler(0)
    resumed_sampler.load_state_dict(json.loads(json.dumps(sampler.state_dict())))
    assert resumed_sampler.metrics() == sampler.metrics()
    draws = [[next(s).data.difficulty for _ in range(8)] for s in (sampler, resumed_sampler)]
    assert draws[0] == draws[1]


def test_validation_rows_keep_their_order():
    rows = [{"data_source": "a", "extra_info": {"difficulty": n}, "n": n} for n in range(9)]
    config = verl_dataset.SimpleNamespace(train_files=["train.parquet"])
    validation_set = verl_dataset.EngineerDataset(rows, config=config)
    assert [validation_set[n]["n"] for n in range(9)] == list(range(9))
    config.train_files = rows
    training_set = verl_dataset.EngineerDataset(rows, config=config)
    assert np.mean([training_set[8]["n"] for _ in range(9)]) < 2  # the easiest rows come first
