"""Model folders: round trips against transformers, and errors about broken folders."""

import json
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from safetensors.numpy import load_file, save_file
from transformers import Qwen3Config as TorchConfig
from transformers import Qwen3ForCausalLM

from training.policy import huggingface
from training.policy.architectures import DecoderConfig
from training.policy.decoder import Decoder
from training.policy.huggingface import ModelFolderError

CONFIG = DecoderConfig(50, 16, 24, 3, 4, 2, head_dim=6, initializer_range=0.2)
KEY = "model.layers.1.self_attn.k_proj.weight"
EMBEDDINGS = "model.embed_tokens.weight"
INPUT_IDS = np.arange(24, dtype=np.int32).reshape(2, 12) * 2


def make_torch_model(tied, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    fields = CONFIG.to_hf() | {"tie_word_embeddings": tied}
    torch_model = Qwen3ForCausalLM(TorchConfig(**fields)).to(dtype)
    with torch.no_grad():
        for name, parameter in torch_model.named_parameters():
            if "norm" in name:
                parameter.add_(0.3 * torch.randn(parameter.shape))
    return torch_model.eval()


def torch_logits(folder):
    torch_model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return torch_model(torch.tensor(INPUT_IDS, dtype=torch.long)).logits.numpy()


def jax_logits(model):
    positions, mask = np.arange(12)[None].repeat(2, axis=0), jnp.ones(INPUT_IDS.shape, bool)
    return np.asarray(nnx.jit(lambda m: m.logits(m(INPUT_IDS, positions, mask)))(model))


def make_decoder(seed):
    return Decoder(CONFIG, rngs=nnx.Rngs(seed))


@pytest.fixture
def folder(tmp_path):
    return huggingface.save(make_decoder(seed=0), tmp_path / "model", tokenizer_from=None)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shard_size", ["5GB", "5KB"])
def test_transformers_folder_round_trips(tied, shard_size, tmp_path):
    make_torch_model(tied).save_pretrained(tmp_path / "a", max_shard_size=shard_size)
    assert (tmp_path / "a" / "model.safetensors.index.json").exists() == (shard_size == "5KB")
    model = huggingface.load(tmp_path / "a")
    expected = torch_logits(tmp_path / "a")
    np.testing.assert_allclose(jax_logits(model), expected, atol=1e-4, rtol=1e-4)
    huggingface.save(model, tmp_path / "b", tokenizer_from=None)
    np.testing.assert_array_equal(torch_logits(tmp_path / "b"), expected)


def test_sharded_folder_equals_the_single_file(tmp_path):
    make_torch_model(tied=False).save_pretrained(tmp_path / "a")
    model = huggingface.load(tmp_path / "a")
    huggingface.save(model, tmp_path / "b", tokenizer_from=None, max_shard_bytes=6000)
    index = json.loads((tmp_path / "b" / "model.safetensors.index.json").read_text())
    files = {path.name: load_file(path) for path in (tmp_path / "b").glob("*.safetensors")}
    assert index["weight_map"] == {name: file for file, names in files.items() for name in names}
    sizes = [sum(tensor.nbytes for tensor in tensors.values()) for tensors in files.values()]
    assert len(sizes) > 2
    assert max(sizes) <= 6000
    assert index["metadata"]["total_size"] == sum(sizes)
    np.testing.assert_array_equal(torch_logits(tmp_path / "b"), torch_logits(tmp_path / "a"))
    np.testing.assert_array_equal(jax_logits(huggingface.load(tmp_path / "b")), jax_logits(model))


@pytest.mark.parametrize(("tied", "untied"), [(False, False), (True, False), (True, True)])
def test_state_tensor_names_match_transformers(tied, untied, tmp_path):
    torch_model = make_torch_model(tied)
    torch_model.save_pretrained(tmp_path / "a")
    expected = {name: value.numpy() for name, value in torch_model.state_dict().items()}
    if tied and not untied:
        del expected["lm_head.weight"]
    tensors = list(huggingface.state_tensors(huggingface.load(tmp_path / "a"), untied=untied))
    assert len(tensors) == len(dict(tensors))
    assert dict(tensors).keys() == expected.keys()
    for name, value in tensors:
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_tied_checkpoint_may_repeat_its_head(tmp_path):
    make_torch_model(tied=True).save_pretrained(tmp_path / "a")
    expected = jax_logits(huggingface.load(tmp_path / "a"))
    edit_tensors(tmp_path / "a", lambda t: t.update({"lm_head.weight": t[EMBEDDINGS]}))
    np.testing.assert_array_equal(jax_logits(huggingface.load(tmp_path / "a")), expected)


def test_bfloat16_weights_round_trip_bitwise(tmp_path):
    make_torch_model(tied=False, dtype=torch.bfloat16).save_pretrained(tmp_path / "a")
    model = huggingface.load(tmp_path / "a", param_dtype=jnp.bfloat16, dtype=jnp.bfloat16)
    huggingface.save(model, tmp_path / "b", tokenizer_from=None)
    tensors, expected = (load_file(tmp_path / name / "model.safetensors") for name in "ba")
    assert tensors.keys() == expected.keys()
    for name, value in expected.items():
        assert tensors[name].dtype == value.dtype == jnp.bfloat16
        np.testing.assert_array_equal(tensors[name].view(np.uint16), value.view(np.uint16))
    assert json.loads((tmp_path / "b/config.json").read_text())["dtype"] == "bfloat16"
    model = huggingface.load(tmp_path / "a")
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(model))} == {jnp.dtype("float32")}
    logits = jax_logits(model)
    np.testing.assert_allclose(logits, torch_logits(tmp_path / "a"), atol=1e-4, rtol=1e-4)


def test_exported_folder_keeps_tokenizer_and_special_ids(folder):
    texts = {"tokenizer.json": "{}", "chat_template.jinja": "x", "generation_config.json": "{}"}
    for name, text in texts.items():
        (folder / name).write_text(text)
    edit_config(folder, eos_token_id=[3, 4])
    model = huggingface.load(folder)
    huggingface.save(model, folder, tokenizer_from=folder)
    assert {name: (folder / name).read_text() for name in texts} == texts
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] == [3, 4]
    with pytest.raises(ModelFolderError, match=r"tokenizer_from .*nowhere"):
        huggingface.save(model, folder, tokenizer_from=folder / "nowhere")
    assert (folder / "tokenizer.json").exists()


def test_interrupted_save_loses_nothing(folder):
    expected = jax_logits(huggingface.load(folder))
    script = """
import os, sys
from flax import nnx
from training.policy import huggingface

model = huggingface.load(sys.argv[1])
nnx.update(model, nnx.map_state(lambda _, leaf: leaf.replace(0 * leaf[...]), nnx.state(model)))
rename = os.replace
os.replace = lambda a, b: os._exit(17) if str(a).endswith(".partial") else rename(a, b)
huggingface.save(model, sys.argv[1], tokenizer_from=None)
"""
    process = subprocess.run([sys.executable, "-c", script, str(folder)], check=False, timeout=120)
    assert process.returncode == 17
    assert not folder.exists()
    np.testing.assert_array_equal(jax_logits(huggingface.load(folder)), expected)
    huggingface.save(make_decoder(seed=7), folder, tokenizer_from=None)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def edit_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def edit_tensors(folder, edit):
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


def set_tensor(folder, name, value):
    edit_tensors(folder, lambda tensors: tensors.update({name: value}))


def truncate(folder, end):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:end])


def remove_shard(folder):
    model = huggingface.load(folder)
    huggingface.save(model, folder, tokenizer_from=None, max_shard_bytes=6000)
    next(iter(sorted(folder.glob("model-00002*")))).unlink()


def write_bad_index(folder):
    weights = folder / "model.safetensors"
    weights.rename(f"{weights}.index.json").write_text('{"weight_map": []}')


DAMAGES = {
    "no folder": (shutil.rmtree, ["model", "does not exist"]),
    "no config": (lambda f: (f / "config.json").unlink(), ["model", "no config.json"]),
    "config no JSON": (lambda f: (f / "config.json").write_text("{"), ["config.json", "not JSON"]),
    "another model": (lambda f: edit_config(f, model_type="gpt2"), ["config.json", "gpt2", "qwen"]),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), ["model", "model.safetensors"]),
    "half weights": (lambda f: truncate(f, -50), ["model.safetensors", "truncated"]),
    "missing tensor": (lambda f: edit_tensors(f, lambda t: t.pop(KEY)), ["model", KEY, "has no"]),
    "unexpected tensor": (
        lambda f: set_tensor(f, "q.bias", np.ones(3)),
        ["model", "q.bias", "do not match"],
    ),
    "wrong shape": (lambda f: set_tensor(f, KEY, np.ones((3, 4))), [KEY, "(3, 4)", "(12, 16)"]),
    "wrong dtype": (lambda f: set_tensor(f, KEY, np.ones((12, 16), np.int32)), [KEY, "I32", "F32"]),
    "bad index": (write_bad_index, ["weight_map must map tensor names to files, got []"]),
    "missing shard": (remove_shard, ["model", "model-00002-of", "index"]),
    "one infinity": (
        lambda f: edit_tensors(f, lambda t: t[KEY].__setitem__((3, 4), np.inf)),
        ["model", KEY, "must be finite"],
    ),
    "layers beyond memory": (
        lambda f: edit_config(f, num_hidden_layers=10**9),
        ["config.json", "num_hidden_layers must be less than", "got 1000000000"],
    ),
    "another head": (
        lambda f: edit_config(f, tie_word_embeddings=True),
        ["tie_word_embeddings is true, but lm_head.weight differs from model.embed_tokens.weight"],
    ),
    "too few layers": (lambda f: edit_config(f, num_hidden_layers=2), ["model.layers.2"]),
}


def test_load_follows_the_weight_map(folder):
    model = huggingface.load(folder)
    huggingface.save(model, folder, tokenizer_from=None, max_shard_bytes=6000)
    shards = sorted(folder.glob("*.safetensors"))
    shard_tensors = [load_file(shard) for shard in shards]
    save_file(shard_tensors[-1] | {EMBEDDINGS: np.ones((50, 16), np.float32)}, shards[-1])
    assert EMBEDDINGS in shard_tensors[0]
    np.testing.assert_array_equal(jax_logits(huggingface.load(folder)), jax_logits(model))


def test_old_rotary_frequencies_are_ignored(folder):
    expected_model = huggingface.load(folder)
    set_tensor(folder, "model.layers.0.self_attn.rotary_emb.inv_freq", np.ones(2, np.float32))
    model = huggingface.load(folder)
    jax.tree.map(np.testing.assert_array_equal, nnx.state(model), nnx.state(expected_model))


@pytest.mark.parametrize("name", DAMAGES)
def test_load_error_names_the_damage(name, folder):
    damage, message_parts = DAMAGES[name]
    damage(folder)
    with pytest.raises(ModelFolderError) as error_info:
        huggingface.load(folder)
    for part in message_parts:
        assert part in str(error_info.value)


def test_resolve_finds_a_hub_model_in_the_local_cache(folder, tmp_path, monkeypatch):
    import huggingface_hub.constants as constants

    snapshot = tmp_path / "hub/models--someone--tiny/snapshots/0123"
    shutil.copytree(folder, snapshot)
    (tmp_path / "hub/models--someone--tiny/refs").mkdir()
    (tmp_path / "hub/models--someone--tiny/refs/main").write_text("0123")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert huggingface.resolve_model("someone/tiny").samefile(snapshot)
    with pytest.raises(ModelFolderError, match=r"someone/else.*nor available on the hub"):
        huggingface.resolve_model("someone/else")
