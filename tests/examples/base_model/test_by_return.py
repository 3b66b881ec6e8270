"""Rewards of designs equal the final valid rates of whole simulated runs."""

from types import SimpleNamespace

import numpy as np
import pytest

from engineer import scripted_engineer
from engineer.bench import Prior, draw_learners, select_learners, train_learners
from engineer.bench.version import STAGES, get_track
from examples.base_model.by_return import NUM_DESIGNS, main, roll_out, simulate_runs
from training.sampling.sampler import Completion, SamplingRequest

DOMAIN = get_track(2).domain
LEARNERS = draw_learners(Prior(), DOMAIN, 3, STAGES, (9,))
KEEP, HARDER = ("\n".join(f"n{size} = {sign} {sign}" for size in (4, 6)) for sign in "=+")


def compute_final_rates(name: str) -> np.ndarray:
    return (
        100 * train_learners(lambda run: scripted_engineer(name, run), LEARNERS, DOMAIN).final_rates
    )


class _ScriptedPolicy:
    """A policy and sampler whose answers are bytes: keep, harder, harder, nonsense."""

    def encode_prompt(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: tuple[int, ...]) -> str:
        return bytes(tokens).decode()

    stop_ids = ()

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        texts = (KEEP, HARDER, HARDER, "nonsense")[: request.n]
        completions = [Completion(tuple(text.encode()), np.zeros(1), False) for text in texts]
        return [completions for _ in request.prompts]


def test_simulate_runs_without_answers_follows_the_rule():
    final_rates, contexts = simulate_runs([[]] * 3, LEARNERS, DOMAIN)
    np.testing.assert_array_equal(final_rates, compute_final_rates("rule"))
    assert all(context.startswith("stage first\nn4 ") for context in contexts)


def test_simulate_runs_replays_answers_then_asks_the_rule():
    unchanged_rates, contexts = simulate_runs([[KEEP] * NUM_DESIGNS] * 3, LEARNERS, DOMAIN)
    np.testing.assert_array_equal(unchanged_rates, compute_final_rates("fixed"))
    assert contexts == [""] * 3
    final_rates, contexts = simulate_runs([[KEEP], [HARDER, HARDER], []], LEARNERS, DOMAIN)
    assert final_rates[2] == compute_final_rates("rule")[2]
    assert (final_rates[:2] != compute_final_rates("rule")[:2]).all()
    assert "stage next" in contexts[0] or "stage rolled" in contexts[0]


def test_roll_out_rewards_each_design_by_its_own_run():
    policy = _ScriptedPolicy()
    run = SimpleNamespace(
        policy=policy,
        config=SimpleNamespace(engineer=SimpleNamespace(max_tokens=24)),
        seed=lambda *stream: 0,
    )
    prompts, designs, rewards = roll_out(
        run, policy, LEARNERS, DOMAIN, n=4, temperature=1.0, update=0
    )
    assert len(prompts) == NUM_DESIGNS * 3
    assert len(designs) == NUM_DESIGNS * 3 * 4
    assert rewards.shape == (NUM_DESIGNS * 3, 4)
    for stage in range(NUM_DESIGNS):
        for i in range(3):
            learner = select_learners(LEARNERS, [i, i])
            texts = [[*[KEEP] * stage, answer] for answer in (KEEP, HARDER)]
            expected, _ = simulate_runs(texts, learner, DOMAIN)
            row = rewards[3 * stage + i]
            np.testing.assert_allclose(row, expected[[0, 1, 1, 0]], rtol=1e-6)
    np.testing.assert_allclose(rewards[-3:, 0], compute_final_rates("fixed"), rtol=1e-6)


def test_command_rejects_unknown_key(tmp_path, capsys: pytest.CaptureFixture[str]):
    config = "examples/base_model/by_return.yaml"
    with pytest.raises(SystemExit):
        main([config, "--set", "grpo.rate=1", "--run-dir", str(tmp_path)])
    assert "grpo.rate: unknown key" in capsys.readouterr().err
