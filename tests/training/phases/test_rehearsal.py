"""Rehearsal: designs are imitated beside what GRPO learns, and the ledger counts them."""

from itertools import pairwise
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from engineer.synthetic import design_example, synthetic_readouts
from tests.paths import TINY
from tests.training.phases.test_grpo_update import ToldSampler
from tests.training.small_lakes import small_lakes, untrained_policy
from training.environments.catalogue import domain_of
from training.learner.grpo_step import grpo_optimizer
from training.learner.optimizer import gradient_step, initial_state
from training.phases.grpo_update import take_update
from training.phases.rehearsal import Rehearsal, design_examples, rehearsed_designs
from training.policy.policy import load_policy
from training.rollout.rollout import question_of
from training.run.active_run import ActiveRun
from training.run.directory import RunDirectory
from training.schema import load

SETTINGS = ["prompt.max_tokens=40", "rehearsal={contexts: 4}"]


@pytest.fixture(scope="module")
def boards():
    return small_lakes(8)


@pytest.fixture(scope="module")
def folder(boards, tmp_path_factory) -> Path:
    designs = [text for one in design_examples(load(TINY), 200) for text in one]
    return untrained_policy(tmp_path_factory.mktemp("policy"), boards, designs)


def started(folder, boards, tmp_path, *overrides):
    config = load(TINY, [*SETTINGS, *overrides])
    policy, params = load_policy(folder, config)
    run = ActiveRun(config, RunDirectory(tmp_path), None, policy, boards)
    return run, params


def design_nats(policy, params, designs) -> float:
    scores = policy.logprobs(params, [ids[mask] for ids, mask in rows(designs)])
    targets = [target[mask] for target, mask in zip(designs.targets, designs.mask, strict=True)]
    return -np.mean(np.concatenate([s[t] for s, t in zip(scores, targets, strict=True)]))


def rows(designs):
    return zip(np.asarray(designs.input_ids), designs.mask, strict=True)


def test_the_designs_of_an_update_are_the_rules_and_always_the_same(folder, boards, tmp_path):
    run, _ = started(folder, boards, tmp_path)
    rehearsal = Rehearsal(run, 4)
    batch, again = rehearsal.batch("rehearsal", 2, 3), Rehearsal(run, 4).batch("rehearsal", 2, 3)
    np.testing.assert_array_equal(batch.input_ids, again.input_ids)
    assert not np.array_equal(batch.input_ids, rehearsal.batch("rehearsal", 2, 4).input_ids)
    assert not np.array_equal(batch.input_ids, rehearsal.batch("rehearsal", 3, 3).input_ids)
    known = {f"{one.context}{one.answer}" for one in design_examples(run.config, 8192)}
    texts = [run.policy.decode(ids[mask].tolist()) for ids, mask in rows(batch)]
    assert len(set(texts)) == 4
    assert {text.replace(" ", "") for text in texts} <= {one.replace(" ", "") for one in known}


def test_a_context_without_a_contrast_stands_alone_and_the_next_one_follows():
    """On boards of one size without waits the rule often has one answer, whatever is shown."""
    bounds = "{sizes: [3], max_hole_ratio: 0.2, max_wait_ratio: 0.0}"
    sizes = "{3: {data_ratio: 1.0, hole_ratio: 0.0, wait_ratio: 0.0}}"
    options = [f"environment.bounds={bounds}", f"environment.initial.sizes={sizes}", "seed=1"]
    config = load(TINY, [*options, "validation.sizes=[3]", "validation.wait_ratios=[0.0]"])
    rng = np.random.default_rng(1)
    readouts = synthetic_readouts(rng, domain_of(config), stages=config.stages.count)
    contexts = [design_example(one, domain_of(config)) for one in readouts]
    examples = design_examples(config, 40)
    assert len(examples) == 40
    places = [examples.index(one) for one in contexts]
    assert places[0] == 0
    contrasts = [examples[place + 1 : following] for place, following in pairwise(places)]
    assert [len(found) for found in contrasts] == [0, 0, 0, 0, 0, 1]
    assert contrasts[5][0].answer != contexts[5].answer


def test_a_loss_beside_the_mean_adds_its_gradient():
    optimizer = optax.sgd(1.0)
    state = initial_state({"w": jnp.array([2.0, 3.0])}, optimizer)

    def loss(params, batch):
        return jnp.sum(params["w"] * batch), {}

    def beside(params):
        return 5.0 * params["w"][0], {"other": params["w"][1]}

    batches = jnp.array([[1.0, 0.0], [0.0, 4.0]])
    after, metrics = gradient_step(
        state, batches, 2, jnp.float32(2.0), loss=loss, optimizer=optimizer, beside=beside
    )
    np.testing.assert_allclose(after.params["w"], [2.0 - 0.5 - 5.0, 3.0 - 2.0])
    assert float(metrics["loss"]) == (2.0 + 12.0) / 2 + 10.0
    assert float(metrics["other"]) == 3.0


@pytest.mark.parametrize(
    "silent",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["rewards differ", "rewards are equal"],
)
def test_an_update_with_rehearsal_learns_designs_too(folder, boards, tmp_path, silent):
    run, params = started(folder, boards, tmp_path)
    sampler = ToldSampler(run.policy, boards)
    if silent:  # every answer is the same, so that GRPO learns nothing
        told = sampler.sample
        sampler.sample = lambda question: [  # type: ignore[method-assign]
            [group[0]] * question.n for group in told(question)
        ]
    designs = Rehearsal(run, 4).batch("rehearsal", 1, 1)
    before = design_nats(run.policy, params, designs)
    state = initial_state(params, grpo_optimizer(run.config.grpo, run.config.grpo_steps))
    for seed in range(2):
        question = question_of(run, boards, seed=seed)
        state, metrics = take_update(
            run, state, sampler, boards, question, step=0, seconds={}, rehearsed=designs
        )
    assert int(state.steps) == 2
    assert metrics["rehearsal_loss"] < before - 0.05
    assert design_nats(run.policy, state.params, designs) < metrics["rehearsal_loss"]


def test_the_first_loss_is_that_of_the_weights_before(folder, boards, tmp_path):
    run, params = started(folder, boards, tmp_path)
    designs = Rehearsal(run, 4).batch("rehearsal", 1, 1)
    before = design_nats(run.policy, params, designs)
    state = initial_state(params, grpo_optimizer(run.config.grpo, run.config.grpo_steps))
    sampler = ToldSampler(run.policy, boards)
    question = question_of(run, boards, seed=0)
    _, metrics = take_update(
        run, state, sampler, boards, question, step=0, seconds={}, rehearsed=designs
    )
    assert metrics["rehearsal_loss"] == pytest.approx(before, rel=1e-4)


def test_the_ledger_counts_what_is_rehearsed():
    config = load(TINY, SETTINGS)
    updates = 3
    assert rehearsed_designs(config, updates * config.grpo.prompts_per_update) == 4 * updates
    assert rehearsed_designs(load(TINY), 64) == 0
