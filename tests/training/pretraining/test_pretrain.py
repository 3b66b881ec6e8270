"""A whole pretraining: stopped and resumed it ends as if it had not been, and its model loads."""

import json
import subprocess
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import yaml

from tests.paths import ROOT
from tests.training.pretraining.conftest import TINY
from tests.training.stand_in_sampler import StandInSampler
from training.errors import UserError
from training.policy.policy import open_policy
from training.pretraining import pretrain as loop
from training.pretraining.files import PretrainDirectory
from training.pretraining.schema import PretrainConfig
from training.run.digests import HASHES
from training.sampling import engines
from training.schema import Model, Prompt


@pytest.fixture(autouse=True)
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "LOG_EVERY", 10)


@pytest.fixture
def without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "VllmSampler", StandInSampler)


def weights(folder: Path) -> dict[str, np.ndarray]:
    from safetensors.flax import load_file

    return {
        name: np.asarray(leaf) for name, leaf in load_file(folder / "model.safetensors").items()
    }


def assert_same_result(one: Path, other: Path) -> None:
    first, second = weights(one / "model"), weights(other / "model")
    assert first.keys() == second.keys()
    for name, leaf in first.items():
        np.testing.assert_array_equal(leaf, second[name], err_msg=name)
    for name in ("metrics.jsonl", "evaluations.jsonl", "model/README.md", "model/tokenizer.json"):
        assert (one / name).read_text() == (other / name).read_text(), name


def check_whole(tiny: PretrainConfig, folder: Path) -> None:
    """Stop at some step, go on, and compare with a pretraining that was not stopped."""
    whole, stopped = folder / "whole", folder / "stopped"
    assert loop.pretrain(tiny, whole) == whole / "model"
    assert loop.pretrain(tiny, stopped, stop_after=27) is None
    assert not (stopped / "model").exists()
    assert loop.pretrain(tiny, stopped) == stopped / "model"
    assert_same_result(whole, stopped)

    directory = PretrainDirectory(whole)
    lines = directory.metrics.read()
    assert [line.step for line in lines] == [10, 20, 30, 40]
    assert lines[-1].plan_loss < lines[0].plan_loss
    assert lines[-1].design_loss < lines[0].design_loss
    assert lines[1].learning_rate == pytest.approx(5e-3)
    assert lines[-1].learning_rate == pytest.approx(5e-4)
    [evaluation] = directory.evaluations.read()
    assert evaluation.step == 40
    assert evaluation.valid is not None
    assert len(evaluation.valid) == 8
    assert set(evaluation.flips) == {
        "valid",
        "failures",
        "trend",
        "learnability",
        "levels",
        "last_edit",
    }
    for name, file in directory.records.items():
        assert (directory.model / name).read_bytes() == file.read_bytes()
    assert (directory.model / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    hashes = subprocess.run(["sha256sum", "--check", "--strict", HASHES], cwd=directory.model)
    assert hashes.returncode == 0
    assert (
        len((directory.model / HASHES).read_text().splitlines())
        == len(list(directory.model.iterdir())) - 1
    )
    # Nothing is done again where the model stands, and nothing is mixed with another one's.
    before = (whole / "metrics.jsonl").read_bytes()
    assert loop.pretrain(tiny, whole) == whole / "model"
    assert (whole / "metrics.jsonl").read_bytes() == before
    with pytest.raises(
        UserError, match=r"another configuration, which differs in seed \(5 there, 6 here\);"
    ):
        loop.pretrain(tiny.model_copy(update={"seed": 6}), whole)


def check_model(tiny: PretrainConfig, model: Path) -> None:
    """The folder holds bfloat16 weights, a card, and what both libraries read alike."""
    assert {leaf.dtype.name for leaf in weights(model).values()} == {"bfloat16"}
    card = (model / "README.md").read_text()
    assert "# tiny" in card
    assert "| 30% |" in card
    prompt = Prompt(max_tokens=48, max_steps=32)
    settings = Model(pretrained=str(model))
    policy, params = open_policy(model, settings, prompt, length_bucket=16)
    text = "stage next\nn3 valid8 hole swap + learn4 data5 + hole4 = wait3 =\nedits\n"
    ids = policy.tokenizer.encode(text, add_special_tokens=False)
    assert policy.tokenizer.decode(ids) == text
    ours = policy.logprobs(params, [ids])[0]

    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    assert tokenizer.encode(text, add_special_tokens=False) == ids
    with torch.no_grad():
        logits = theirs(torch.tensor([ids])).logits[0]
    scores = torch.log_softmax(logits, dim=-1)
    expected = [float(scores[place - 1, ids[place]]) for place in range(1, len(ids))]
    np.testing.assert_allclose(np.asarray(ours)[-len(expected) :], expected, atol=2e-2)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) > 10_000


@pytest.mark.slow
def test_a_stopped_pretraining_ends_as_if_it_had_not_been(
    tiny: PretrainConfig, tmp_path: Path, without_vllm: None
):
    check_whole(tiny, tmp_path)
    check_model(tiny, tmp_path / "whole/model")


@pytest.mark.vllm
@pytest.mark.slow
def test_with_vllm_too_a_stopped_pretraining_ends_as_if_it_had_not_been(
    tiny: PretrainConfig, tmp_path: Path
):
    check_whole(tiny, tmp_path)
    check_model(tiny, tmp_path / "whole/model")


def test_a_directory_of_something_else_is_left_alone(tiny: PretrainConfig, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty and holds no pretraining"):
        loop.pretrain(tiny, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.slow
def test_the_command_stops_where_it_is_told(
    tmp_path: Path, without_vllm: None, capsys: pytest.CaptureFixture[str]
):
    from jaxlake.command_line.entry import main

    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(TINY))
    arguments: list[Any] = ["pretrain", file, "--run-dir", tmp_path / "run", "--stop-after", 0]
    assert main([str(one) for one in arguments]) == 0
    assert (tmp_path / "run/config.yaml").exists()
    assert len((tmp_path / "run/plans.jsonl").read_text().splitlines()) == 300
    assert json.loads((tmp_path / "run/plans.jsonl").read_text().split("\n")[0])
    assert not (tmp_path / "run/model").exists()
