"""Policies that can't answer with their folder are rejected."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.paths import ROOT
from training.errors import UserError
from training.policy.huggingface import PACKAGED_MODELS
from training.policy.policy import load_policy
from training.schema import ModelConfig, PromptConfig


def test_tokenizer_without_an_end_token_is_rejected(tmp_path: Path) -> None:
    folder = shutil.copytree(PACKAGED_MODELS["jaxlake-base"], tmp_path / "model")
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    del settings["eos_token"]
    file.write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"model: .*_config\.json must name an eos_token"):
        load_policy(folder, ModelConfig(), PromptConfig(), length_bucket=16)


def test_plain_prompt_starts_with_tokenizer_prefix(tmp_path: Path) -> None:
    """Llama's tokenizers put a token before every text; chat templates write it themselves."""
    folder = shutil.copytree(PACKAGED_MODELS["jaxlake-base"], tmp_path / "model")
    policy, _ = load_policy(folder, ModelConfig(), PromptConfig(), length_bucket=16)
    file = folder / "tokenizer.json"
    tree = json.loads(file.read_text())
    begin_part = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
    text_part = {"Sequence": {"id": "A", "type_id": 0}}
    token_id = policy.tokenizer.convert_tokens_to_ids("<|endoftext|>")
    special_token = {"id": "<|endoftext|>", "ids": [token_id], "tokens": ["<|endoftext|>"]}
    tree["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [begin_part, text_part],
        "pair": [begin_part, text_part, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|endoftext|>": special_token},
    }
    file.write_text(json.dumps(tree))
    prefixed_policy, _ = load_policy(folder, ModelConfig(), PromptConfig(), length_bucket=16)
    board = "S F G\n"
    assert prefixed_policy.encode_prompt(board) == [token_id, *policy.encode_prompt(board)]
    assert prefixed_policy.encode_answer(board) == policy.encode_answer(board)
    prefixed_policy.tokenizer.chat_template = "{{ messages[0]['content'] }}"
    chat_policy = replace(prefixed_policy, prompt=PromptConfig(chat=True))
    assert chat_policy.encode_prompt(board) == policy.encode_prompt(board)


SCORING_SCRIPT = """\
import sys
from pathlib import Path

import numpy as np

from training.policy.policy import load_policy
from training.schema import ModelConfig, PromptConfig
from training.schema.model_sections import MeshConfig

sequences = [[5, 6, 7], [8, 9], [10, 11, 12, 13]]
folder, prompt = Path(sys.argv[1]), PromptConfig()
for mesh in (MeshConfig(fsdp=1), MeshConfig(fsdp=2)):
    policy, params = load_policy(folder, ModelConfig(mesh=mesh), prompt, length_bucket=16)
    np.savez(f"{sys.argv[2]}/{mesh.fsdp}.npz", *policy.logprobs(params, sequences))
"""


def test_scoring_fewer_sequences_than_devices(tmp_path: Path) -> None:
    environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    command = [
        sys.executable,
        "-c",
        SCORING_SCRIPT,
        str(PACKAGED_MODELS["jaxlake-base"]),
        str(tmp_path),
    ]
    subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=True, timeout=300)
    with np.load(tmp_path / "1.npz") as one_device, np.load(tmp_path / "2.npz") as two_devices:
        assert [len(scores) for scores in two_devices.values()] == [3, 2, 4]
        for name, expected in one_device.items():
            np.testing.assert_allclose(two_devices[name], expected, atol=1e-5)


DEEP_JSON = '{"a":' * 100_000


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tokenizer.json", "its tokenizer can't be read: "),
        ("tokenizer_config.json", "its tokenizer can't be read: "),
        ("config.json", "config.json"),
    ],
)
def test_file_of_another_format_is_named(name: str, message: str, tmp_path: Path) -> None:
    folder = shutil.copytree(PACKAGED_MODELS["jaxlake-base"], tmp_path / "model")
    for content in ("[1]", "null", DEEP_JSON):
        (folder / name).write_text(content)
        with pytest.raises(UserError, match=message):
            load_policy(folder, ModelConfig(), PromptConfig(), length_bucket=16)
