"""Reading is measured with the engine that generates."""

from pathlib import Path

import numpy as np
import pytest

from examples.base_model.designs import draw_examples
from examples.base_model.recipe import Designs
from tests.paths import TINY
from training.phases import reading
from training.policy.policy import load_policy, write_random_policy
from training.sampling.vllm_sampler import VllmSampler
from training.schema import ModelConfig, PromptConfig, SamplingConfig, load


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights, whose tokenizer knows the symbols."""
    path = tmp_path_factory.mktemp("model") / "random"
    examples = draw_examples(np.random.default_rng(0), Designs(count=200))
    texts = [text for example in examples for text in example]
    write_random_policy(path, load(TINY).model, texts, max_len=512, seed=0)
    return path


@pytest.mark.vllm
@pytest.mark.slow
def test_engine_scores_match_the_trainer(folder: Path, tmp_path: Path):
    policy, params = load_policy(folder, ModelConfig(), PromptConfig(), length_bucket=64)
    policy.export(params, tmp_path / "engine", untied=True)
    sampler = VllmSampler(tmp_path / "engine", SamplingConfig(max_model_len=512))
    contexts = ["stage next\nn3 valid8 goal\nedits\n", "stage first\nn4 valid3\nedits\n"]
    answers = ["n3 + - =", "n4 ="]
    costs = reading.EngineModel(policy, sampler, 16).answer_costs(contexts, answers)
    sampler.close()
    for context, answer, cost in zip(contexts, answers, costs, strict=True):
        prompt, answer_ids = policy.encode_prompt(context), policy.encode_answer(answer)
        (logprobs,) = policy.logprobs(params, [[*prompt, *answer_ids]])
        assert cost == pytest.approx(-logprobs[len(prompt) :].sum(), abs=1e-3)
