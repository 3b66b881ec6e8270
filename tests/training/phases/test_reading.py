"""Reading is measured on all that a context can hold, whatever the engineer of the run is shown."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engineer.context.build import BLOCKS
from examples.base_model.designs import draw_examples
from examples.base_model.recipe import Designs
from tests.paths import TINY
from training.phases import reading
from training.policy.policy import make_policy, open_policy
from training.sampling.vllm_sampler import VllmSampler
from training.schema import Model, Prompt, Sampling, load


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights, whose tokenizer knows the symbols."""
    path = tmp_path_factory.mktemp("model") / "random"
    examples = draw_examples(np.random.default_rng(0), Designs(count=200))
    texts = [text for example in examples for text in example]
    make_policy(path, load(TINY).model, texts, max_len=512, seed=0)
    return path


def test_real_contexts_hold_all_blocks_of_each_trained_stage(monkeypatch: pytest.MonkeyPatch):
    config = load(TINY, ["engineer.blocks=[history]"])
    monkeypatch.setattr(reading, "view_of", lambda config, results, stage: (len(results), stage))
    monkeypatch.setattr(reading, "read_out", lambda view, blocks: (view, tuple(blocks)))
    results: Any = [SimpleNamespace(stage=stage) for stage in range(3)]
    assert reading.real_contexts(config, results) == [((2, 1), BLOCKS), ((3, 2), BLOCKS)]


@pytest.mark.vllm
@pytest.mark.slow
def test_the_engine_scores_answers_as_the_trainer_does(folder: Path, tmp_path: Path):
    policy, params = open_policy(folder, Model(), Prompt(), length_bucket=64)
    policy.export(params, tmp_path / "engine", untied=True)
    sampler = VllmSampler(tmp_path / "engine", Sampling(max_model_len=512))
    contexts = ["stage next\nn3 valid8 goal\nedits\n", "stage first\nn4 valid3\nedits\n"]
    answers = ["n3 + - =", "n4 ="]
    scored = reading.EngineReader(policy, sampler, 16).nats(contexts, answers)
    sampler.close()
    for context, answer, nats in zip(contexts, answers, scored, strict=True):
        prompt, rest = policy.encode_prompt(context), policy.encode_answer(answer)
        (logprobs,) = policy.logprobs(params, [[*prompt, *rest]])
        assert nats == pytest.approx(-logprobs[len(prompt) :].sum(), abs=1e-3)
