"""Rehearsal: GRPO updates also imitate designs, and the ledger counts them."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.paths import TINY
from tests.training.phases.test_grpo_update import ScriptedSampler, open_run, run_update
from tests.training.small_lakes import draw_small_lakes, write_untrained_policy
from training.learner.optimizer import gradient_step, initial_state
from training.phases.rehearsal import Rehearsal, count_rehearsed_designs, make_design_examples
from training.schema import load


@pytest.fixture(scope="module")
def boards():
    return draw_small_lakes(8)


@pytest.fixture(scope="module")
def folder(boards, tmp_path_factory) -> Path:
    designs = [text for example in make_design_examples(load(TINY), 200) for text in example]
    return write_untrained_policy(tmp_path_factory.mktemp("policy"), boards, designs)


@pytest.fixture
def run_and_state(folder, boards, tmp_path):
    return open_run(folder, boards, tmp_path, "rehearsal={contexts: 4}")


def compute_design_loss(policy, params, designs) -> float:
    scores = policy.logprobs(params, [ids[mask] for ids, mask in iterate_rows(designs)])
    targets = [target[mask] for target, mask in zip(designs.is_target, designs.mask, strict=True)]
    return -np.mean(np.concatenate([s[t] for s, t in zip(scores, targets, strict=True)]))


def iterate_rows(designs):
    return zip(np.asarray(designs.input_ids), designs.mask, strict=True)


def test_rehearsed_designs_are_deterministic_rule_edits(run_and_state):
    run, _ = run_and_state
    rehearsal = Rehearsal(run, 4)
    batch = rehearsal.batch("rehearsal", 2, 3)
    repeated_batch = Rehearsal(run, 4).batch("rehearsal", 2, 3)
    np.testing.assert_array_equal(batch.input_ids, repeated_batch.input_ids)
    assert not np.array_equal(batch.input_ids, rehearsal.batch("rehearsal", 2, 4).input_ids)
    assert not np.array_equal(batch.input_ids, rehearsal.batch("rehearsal", 3, 3).input_ids)
    examples = make_design_examples(run.config, 8192)
    rule_texts = {f"{example.context}{example.answer}".replace(" ", "") for example in examples}
    texts = [run.policy.decode(ids[mask].tolist()) for ids, mask in iterate_rows(batch)]
    assert len(set(texts)) == 4
    assert {text.replace(" ", "") for text in texts} <= rule_texts


def test_rehearsal_loss_adds_its_gradient():
    optimizer = optax.sgd(1.0)
    state = initial_state({"w": jnp.array([2.0, 3.0])}, optimizer)

    def loss(params, batch):
        return jnp.sum(params["w"] * batch), {}

    def rehearsal_loss(params):
        return 5.0 * params["w"][0], {"other": params["w"][1]}

    batches = jnp.array([[1.0, 0.0], [0.0, 4.0]])
    new_state, metrics = gradient_step(
        state,
        batches,
        2,
        jnp.float32(2.0),
        loss=loss,
        optimizer=optimizer,
        rehearsal_loss=rehearsal_loss,
    )
    np.testing.assert_allclose(new_state.params["w"], [2.0 - 0.5 - 5.0, 3.0 - 2.0])
    assert float(metrics["loss"]) == (2.0 + 12.0) / 2 + 10.0
    assert float(metrics["other"]) == 3.0


@pytest.mark.parametrize(
    "equal_rewards",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["rewards differ", "rewards are equal"],
)
def test_update_with_rehearsal_also_learns_designs(run_and_state, boards, equal_rewards):
    run, state = run_and_state
    sampler = ScriptedSampler(run.policy, boards)
    if equal_rewards:  # every answer is the same, so that GRPO learns nothing
        sample = sampler.sample
        sampler.sample = lambda request: [  # type: ignore[method-assign]
            [group[0]] * request.n for group in sample(request)
        ]
    designs = Rehearsal(run, 4).batch("rehearsal", 1, 1)
    initial_loss = compute_design_loss(run.policy, state.params, designs)
    losses = []
    for seed in range(2):
        state, metrics = run_update(run, state, sampler, seed=seed, rehearsal_examples=designs)
        losses.append(metrics["rehearsal_loss"])
    assert int(state.steps) == 2
    assert losses[0] == pytest.approx(initial_loss, rel=1e-4)
    assert losses[1] < initial_loss - 0.05
    assert compute_design_loss(run.policy, state.params, designs) < losses[1]


def test_ledger_counts_rehearsed_tokens():
    config = load(TINY, ["rehearsal={contexts: 4}"])
    num_boards = 3 * config.grpo.prompts_per_update
    assert count_rehearsed_designs(config, num_boards) == 3 * 4
    assert count_rehearsed_designs(load(TINY), 64) == 0
