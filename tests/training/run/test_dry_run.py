"""The estimates of a dry run."""

import shutil

import pytest

from tests.paths import ROOT
from training.errors import UserError
from training.policy.model_folders import PACKAGED_MODELS
from training.run.dry_run import estimate_trainer_memory, get_model_shape, print_preview
from training.schema import LoraConfig, load


def test_kl_reference_uses_the_compute_dtype():
    path = ROOT / "configs/paper.yaml"
    paper_config = load(path)
    shape = get_model_shape(paper_config)
    assert shape is not None
    memory_without_kl = estimate_trainer_memory(paper_config, shape, 512)
    assert paper_config.model.dtype == "bfloat16"
    for dtype, itemsize in (("bfloat16", 2), ("float32", 4)):
        config = load(path, ["grpo.kl_coefficient=0.001", f"model.dtype={dtype}"])
        memory = estimate_trainer_memory(config, shape, 512)
        assert memory["reference for KL"] * 4 == memory_without_kl["weights"] * itemsize
    assert "reference for KL" not in memory_without_kl


def test_adapters_reduce_optimizer_memory():
    config = load(ROOT / "configs/scratch.yaml", ["grpo.kl_coefficient=0.1"])
    shape = get_model_shape(config)
    assert shape is not None
    factor_bytes = 4 * ((128 + 128) * 4 + (128 + 416) * 3) * 8 * 4  # layers, in + out, rank, bytes
    adapted_config = config.model_copy(
        update={"model": config.model.model_copy(update={"lora": LoraConfig(rank=8)})}
    )
    memory = estimate_trainer_memory(adapted_config, shape, 64)
    full_memory = estimate_trainer_memory(config, shape, 64)
    assert memory["adapters"] == memory["reference for KL"] == factor_bytes
    assert memory["optimizer"] == memory["gradients"] == 2 * factor_bytes
    assert memory["weights"] == full_memory["weights"]


def test_print_preview_opens_the_model_folder(tmp_path):
    folder = shutil.copytree(PACKAGED_MODELS["jaxlake-base"], tmp_path / "model")
    (folder / "chat_template.jinja").unlink()
    model_settings = [f"model.pretrained={folder}", "prompt.chat=true"]
    with pytest.raises(UserError, match=r"prompt.chat must be false: .*model has no chat template"):
        print_preview(load(ROOT / "configs/miniature.yaml", model_settings))


def test_print_preview_warns_of_too_few_positions(capsys):
    print_preview(load(ROOT / "configs/miniature.yaml", ["sampling.max_model_len=1025"]))
    assert "max_model_len is 1025, but the model has 1024 positions" in capsys.readouterr().out
