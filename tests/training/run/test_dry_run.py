"""The estimates of a dry run beside what is really written."""

import shutil
from collections import namedtuple
from pathlib import Path

import jax
import pytest

from jaxlake.command_line.entry import main
from tests.paths import ROOT
from training.learner.grpo_step import grpo_optimizer
from training.learner.optimizer import initial_state
from training.policy.policy import load_policy, make_policy
from training.run.checkpoints import Checkpoints, RunProgress
from training.run.dry_run import run_disk, shape_of, trainer_memory
from training.schema import Lora, load


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_disk_that_weights_take_is_what_was_estimated(tmp_path: Path):
    wide = ["hidden_size=256", "intermediate_size=512", "vocab_size=300"]
    config = load(ROOT / "tests/training/tiny.yaml", [f"model.scratch.{one}" for one in wide])
    make_policy(tmp_path / "policy", config.model, ["S F G"], max_len=64, seed=0)
    policy, params = load_policy(tmp_path / "policy", config)
    random = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(0), leaf.shape), params)
    random = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), random, params)
    state = initial_state(random, grpo_optimizer(config.grpo, config.grpo_steps))
    # Moments of Adam are zeros now, which hardly take any room.
    state = jax.tree.map(
        lambda leaf: jax.random.normal(jax.random.key(1), leaf.shape).astype(leaf.dtype), state
    )
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.save(state, RunProgress(phase="train", stage=1, update=1, step=1))
    checkpoints.close()
    policy.export(random, tmp_path / "engine", untied=True)

    shape = shape_of(config)
    assert shape is not None
    three, stages, engine = run_disk(config, shape).values()
    for estimated, folder in (
        (three / 3, "checkpoints"),
        (stages / 3, "policy"),
        (engine, "engine"),
    ):
        assert 0.85 < _bytes_in(tmp_path / folder) / estimated < 1.15, folder


def test_the_reference_of_a_kl_divergence_takes_memory_in_the_dtype_of_products():
    paper = ROOT / "configs/paper.yaml"
    plain = load(paper)
    shape = shape_of(plain)
    assert shape is not None
    without = trainer_memory(plain, shape, 512)
    assert plain.model.dtype == "bfloat16"
    for dtype, bytes_of_one in (("bfloat16", 2), ("float32", 4)):
        config = load(paper, ["grpo.kl_coefficient=0.001", f"model.dtype={dtype}"])
        memory = trainer_memory(config, shape, 512)
        assert memory["reference for KL"] * 4 == without["weights"] * bytes_of_one
    assert "reference for KL" not in without


def test_adapters_take_memory_for_themselves_alone():
    config = load(ROOT / "configs/scratch.yaml", ["grpo.kl_coefficient=0.1"])
    shape = shape_of(config)
    assert shape is not None
    factors = 4 * ((128 + 128) * 4 + (128 + 416) * 3) * 8 * 4  # layers, in + out, rank, bytes
    adapted = config.model_copy(
        update={"model": config.model.model_copy(update={"lora": Lora(rank=8)})}
    )
    memory, disk = trainer_memory(adapted, shape, 64), run_disk(adapted, shape)
    plain = trainer_memory(config, shape, 64)
    assert memory["adapters"] == memory["reference for KL"] == factors
    assert memory["optimizer"] == memory["gradients"] == 2 * factors
    assert memory["weights"] == plain["weights"]
    assert disk["three checkpoints"] == 9 * factors


def test_a_full_disk_is_said_before_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    usage = namedtuple("usage", "total used free")
    arguments = ["run", str(ROOT / "configs/paper.yaml"), "--dry-run", "--run-dir", str(tmp_path)]
    for free, enough in ((2**50, True), (2**30, False)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage(2**50, 0, free))
        assert main(arguments) == 0
        assert ("not enough room" in capsys.readouterr().out) is not enough
