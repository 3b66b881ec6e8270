"""Invalid model folders raise one-line errors in bounded time and memory."""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import allow_only, alter_json, damage_bytes
from tests.paths import TINY
from training.errors import UserError
from training.policy import folder_checks
from training.policy.architectures import DecoderConfig
from training.policy.folder_checks import ModelFolderError, require_safe_folder
from training.policy.model_check import require_loadable_policy
from training.policy.model_folders import PACKAGED_MODELS, require_model
from training.schema import load

BASE_MODEL = PACKAGED_MODELS["jaxlake-base"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shipped model without digests."""
    model = shutil.copytree(BASE_MODEL, tmp_path / "model")
    (model / "SHA256SUMS").unlink()
    return model


def test_shipped_model_is_intact():
    require_safe_folder(BASE_MODEL, complete=True)


@pytest.mark.parametrize("complete", [True, False])
def test_changed_file_is_named(complete, tmp_path):
    rng = random.Random(1)
    for number, name in enumerate(["model.safetensors", "config.json", "tokenizer.json"] * 4):
        model = shutil.copytree(BASE_MODEL, tmp_path / str(number))
        content = bytearray((model / name).read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (model / name).write_bytes(content)
        with pytest.raises(ModelFolderError, match=f"{name} has a different SHA-256"):
            require_safe_folder(model, complete=complete)


def test_pipe_as_weights_file_is_rejected(folder):
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    with pytest.raises(ModelFolderError, match="is a pipe"):
        require_safe_folder(folder)


def test_folder_with_adapters_is_rejected(folder):
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelFolderError, match="merge the adapters into the weights"):
        require_safe_folder(folder)
    (folder / "config.json").unlink()
    require_model(folder)  # leaves the message to `require_safe_folder`


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", 3, ["a"]])
def test_weights_outside_the_folder_are_rejected(name, folder):
    index = {"weight_map": {"model.norm.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelFolderError, match="weight_map"):
        require_safe_folder(folder)


@pytest.mark.parametrize("token_id", [4_000_000_000, -1, 1.5, True, "7"])
@pytest.mark.parametrize("is_added_token", [True, False])
def test_invalid_token_id_is_rejected(is_added_token, token_id, folder):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    if is_added_token:
        tokenizer["added_tokens"].append({"id": token_id, "content": "x"})
    else:
        tokenizer["model"]["vocab"]["x"] = token_id
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ModelFolderError, match="token ids must be in"):
        require_safe_folder(folder)


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
        "{% if tools is none %}{{ 9 ** (9 ** 9) }}{% endif %}",
        "{% generation %}{{ 9 ** (9 ** 9) }}{% endgeneration %}",
        "{{ 'x' * 10 ** 12 }}",
    ],
)
def test_endless_template_is_rejected(template, folder, monkeypatch):
    monkeypatch.setattr(folder_checks, "_MAX_TEMPLATE_SECONDS", 2.0)
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(ModelFolderError, match="the chat template exceeds"):
        require_safe_folder(folder)


@pytest.mark.parametrize(
    "fields",
    [
        {"model_type": ["qwen3"]},
        {"model_type": {}},
        {"model_type": 3},
        {"rms_norm_eps": float("inf")},
        {"rms_norm_eps": float("nan")},
        {"rms_norm_eps": True},
        {"hidden_size": 64.5},
        {"num_hidden_layers": "2"},
        {"layer_types": 3},
    ],
)
def test_from_hf_rejects_invalid_values(fields):
    config: dict[str, Any] = json.loads((BASE_MODEL / "config.json").read_text())
    with pytest.raises(ValueError, match=next(iter(fields))):
        DecoderConfig.from_hf(config | fields)


@pytest.mark.slow
def test_hostile_folder_opens_or_raises_one_error(folder):
    rng, prompt = random.Random(49), load(TINY).prompt
    names = ["config.json", "tokenizer.json", "tokenizer_config.json"]
    for number in range(120):
        name = rng.choice([*names, "model.safetensors"])
        path, original = folder / name, (folder / name).read_bytes()
        path.write_bytes(damage_bytes(original, rng))
        if number % 3 and name in names:
            path.write_text(json.dumps(alter_json(json.loads(original), rng, 0.03)))
        with allow_only(UserError):
            require_safe_folder(folder)
            require_loadable_policy(folder, prompt)
        path.write_bytes(original)
    require_loadable_policy(folder, prompt)
