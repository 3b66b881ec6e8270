"""`jaxlake engineer reading` on a model and on a run; the engine is real."""

import json
import subprocess
import sys

import numpy as np
import pytest

from engineer.scoring.reading import Reading
from examples.base_model.designs import draw_examples
from examples.base_model.recipe import Designs
from jaxlake.command_line.entry import main
from tests.paths import TINY
from tests.training.sample_run import reading_with, write_run
from training.analysis import model_reading
from training.analysis.model_reading import read_run
from training.phases.reading import EngineReader
from training.policy.policy import make_policy, open_policy
from training.run.directory import RunDirectory
from training.sampling.vllm_sampler import VllmSampler
from training.schema import Model, Prompt, Sampling, load


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with random weights, whose tokenizer knows the symbols."""
    path = tmp_path_factory.mktemp("model") / "random"
    examples = draw_examples(np.random.default_rng(0), Designs(count=200))
    texts = [text for example in examples for text in example]
    make_policy(path, load(TINY).model, texts, max_len=512, seed=0)
    return path


@pytest.mark.vllm
@pytest.mark.slow
def test_a_model_with_random_weights_does_not_read(folder, tmp_path):
    file = tmp_path / "reading.json"
    arguments = ["engineer", "reading", str(folder), "--contexts", "4", "--json", str(file)]
    # A process of its own: vLLM writes to the streams of the process that it is in.
    done = subprocess.run(
        [sys.executable, "-m", "jaxlake", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    reading = Reading.model_validate(json.loads(file.read_text()))
    assert reading.contexts == 4
    assert reading.well_formed == 0.0
    assert reading.nats > 20
    assert "It doesn't read" in done.stdout


@pytest.mark.vllm
@pytest.mark.slow
def test_the_engine_scores_answers_as_the_trainer_does(folder, tmp_path):
    policy, params = open_policy(folder, Model(), Prompt(), length_bucket=64)
    policy.export(params, tmp_path / "engine", untied=True)
    sampler = VllmSampler(tmp_path / "engine", Sampling(max_model_len=512))
    contexts = ["stage next\nn3 valid8 goal\nedits\n", "stage first\nn4 valid3\nedits\n"]
    answers = ["n3 + - =", "n4 ="]
    scored = EngineReader(policy, sampler, 16).nats(contexts, answers)
    sampler.close()
    for context, answer, nats in zip(contexts, answers, scored, strict=True):
        prompt, rest = policy.encode_prompt(context), policy.encode_answer(answer)
        (logprobs,) = policy.logprobs(params, [[*prompt, *rest]])
        assert nats == pytest.approx(-logprobs[len(prompt) :].sum(), abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{tmp}/absent"], ["absent", "no such folder"]),
        (["{tmp}", "--stage", "1"], ["--stage", "not a run's directory"]),
        (["{tmp}/run"], ["stage", "none yet"]),
    ],
)
def test_what_can_not_be_read_is_named(arguments, words, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(TINY.read_text())
    assert main(["engineer", "reading", *(one.format(tmp=tmp_path) for one in arguments)]) == 2
    error = capsys.readouterr().err
    assert all(word in error for word in words)


def test_reading_a_run_that_learned_to_design_says_that_its_weights_are_earlier_ones(
    tmp_path, monkeypatch, capsys
):
    """Only the measurement itself is left out, which takes a model that can be read."""
    path = write_run(tmp_path / "run", {"style": "compact"})
    monkeypatch.setattr(model_reading, "_measure", lambda *_: reading_with(1.0))
    assert read_run(path, 3, 2).reads
    assert capsys.readouterr().err == ""
    RunDirectory(path).stage(3).design_learning.path.write_text("")
    assert read_run(path, 3, 2).reads
    said = capsys.readouterr().err
    assert "stages/3/policy: is the policy before it learned to design" in said
