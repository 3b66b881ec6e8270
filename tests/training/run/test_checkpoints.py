"""Checkpoints are atomic, detect damage, and allow the state to be donated at once."""

import functools
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from tests.paths import ROOT
from training.errors import UserError
from training.learner.optimizer import LearnerState, initial_state
from training.policy.architectures import DecoderConfig
from training.policy.decoder import Decoder
from training.policy.lora import add_adapters
from training.run import checkpoints as checkpoints_module
from training.run.checkpoints import Checkpoints, RunProgress
from training.run.digests import write_digests
from training.schema import LoraConfig

# Saves checkpoint 1, and is killed while the files of checkpoint 2 get their digests.
KILLED_SAVE_SCRIPT = """\
import os, signal, sys
from pathlib import Path
from tests.training.run.test_checkpoints import make_progress, make_state
from training.run import checkpoints
manager = checkpoints.Checkpoints(Path(sys.argv[1]))
manager.save(make_state(1), make_progress(1))
manager.wait()
if sys.argv[2] == "written":
    checkpoints.write_digests = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
manager.save(make_state(2), make_progress(2))
if sys.argv[2] == "begun":
    os.kill(os.getpid(), signal.SIGKILL)
manager.wait()
os.kill(os.getpid(), signal.SIGKILL)
"""


def make_state(step: int) -> LearnerState:
    """Return a learner state that differs between steps."""
    params = {"kernel": jax.random.normal(jax.random.key(step), (64, 256)), "bias": jnp.ones(8)}
    return initial_state(params, optax.adam(1e-3))


def make_progress(step: int) -> RunProgress:
    return RunProgress("train", 1, step, step)


def save_checkpoints(folder: Path, *steps: int) -> Path:
    """Save a checkpoint of each step, and return the folder."""
    with closing(Checkpoints(folder)) as checkpoints:
        for step in steps:
            checkpoints.save(make_state(step), make_progress(step))
    return folder


def assert_equal(state: LearnerState, other_state: LearnerState) -> None:
    jax.tree.map(np.testing.assert_array_equal, state, other_state)


def assert_restores(folder: Path, step: int) -> None:
    """Assert that all parts of the newest checkpoint belong to `step`."""
    with closing(Checkpoints(folder)) as checkpoints:
        assert checkpoints.progress() == make_progress(step)
        assert_equal(checkpoints.restore(make_state(0)), make_state(step))


def make_adapter_state(step: int) -> LearnerState:
    """Return a state of adapters; the frozen weights are equal at all steps."""
    model = Decoder(DecoderConfig(40, 32, 48, 1, 2, 1, head_dim=16), rngs=nnx.Rngs(0))
    add_adapters(model, LoraConfig(rank=2, targets=("q_proj", "down_proj")), seed=step)
    return initial_state(nnx.state(model), optax.adam(1e-3))


def test_save_stores_only_adapters_of_lora_learners(tmp_path: Path) -> None:
    with closing(Checkpoints(tmp_path / "checkpoints")) as checkpoints:
        checkpoints.save(make_adapter_state(1), make_progress(1))
        checkpoints.wait()
        metadata = (tmp_path / "checkpoints/1/state/_METADATA").read_text()
        assert "q_proj_lora_a" in metadata
        assert "embed_tokens" not in metadata
        assert "up_proj" not in metadata
        state = checkpoints.restore(make_adapter_state(0))
    assert_equal(state, make_adapter_state(1))


def flip_bit(file: Path, seed: int) -> None:
    content = bytearray(file.read_bytes())
    content[seed * 7919 % len(content)] ^= 1 << seed % 8
    file.write_bytes(content)


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoints(tmp_path_factory.mktemp("run") / "checkpoints", 1, 2)


@pytest.fixture
def checkpoints_dir(two_checkpoints: Path, tmp_path: Path) -> Path:
    return shutil.copytree(two_checkpoints, tmp_path / "checkpoints")


def test_flipped_bit_is_found(
    two_checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (two_checkpoints / "2/SHA256SUMS").read_text().splitlines()
    names = [line.split("  ")[1] for line in lines]
    assert {"progress/metadata", "state/_METADATA", "state/manifest.ocdbt"} < set(names)
    sizes = {name: (two_checkpoints / "2" / name).stat().st_size for name in names}
    for seed, name in enumerate([*names, *[max(names, key=sizes.__getitem__)] * 8]):
        if not sizes[name]:
            continue
        folder = shutil.copytree(two_checkpoints, tmp_path / str(seed))
        flip_bit(folder / "2" / name, seed)
        with closing(Checkpoints(folder)) as checkpoints:
            assert checkpoints.progress() == make_progress(1), name
        message = " ".join(capsys.readouterr().out.split())
        assert f"{folder}/2/{name} has a different SHA-256 than in SHA256SUMS" in message
        assert "Resuming from checkpoint 1." in message


def truncate_metadata(folder: Path) -> None:
    file = folder / "state/_METADATA"
    file.write_bytes(file.read_bytes()[:100])


def remove_manifest(folder: Path) -> None:
    """Remove a file without a digest, as Orbax does under a path that it reads as a pattern."""
    (folder / "state/manifest.ocdbt").unlink()
    write_digests(folder, excluded=("_CHECKPOINT_METADATA", "commit_success.txt"))


DAMAGES: list[Callable[[Path], None]] = [
    truncate_metadata,
    lambda folder: (folder / "progress/metadata").unlink(),
    lambda folder: (folder / "SHA256SUMS").unlink(),
    lambda folder: (folder / "SHA256SUMS").write_bytes(b"\xff\n"),
    lambda folder: (folder / "state/more").write_text("more"),
    lambda folder: shutil.rmtree(folder / "state"),
    remove_manifest,
]


@pytest.mark.parametrize("name", ["run[1]", "a*", "what?", "a\\b"])
def test_checkpoints_reject_paths_with_patterns(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="which Orbax interprets as patterns"):
        Checkpoints(tmp_path / name / "checkpoints")


def test_save_fails_if_its_arrays_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints_module, "require_literal_path", lambda path: None)
    checkpoints = Checkpoints(tmp_path / "run[1]")
    checkpoints.save(make_state(1), make_progress(1))
    with pytest.raises(UserError, match=r"the checkpoint can't be saved: ValueError: NOT_FOUND"):
        checkpoints.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoint_is_skipped(
    checkpoints_dir: Path, damage: Callable[[Path], None]
) -> None:
    damage(checkpoints_dir / "2")
    assert_restores(checkpoints_dir, 1)
    save_checkpoints(checkpoints_dir, 2)  # the steps are taken again
    assert_restores(checkpoints_dir, 2)


def test_damaged_checkpoints_are_all_named_and_kept(checkpoints_dir: Path) -> None:
    for step in ("1", "2"):
        flip_bit(checkpoints_dir / step / "progress/metadata", 3)
    with pytest.raises(UserError, match=r"no checkpoint is intact: .*/2/progress.*/1/progress"):
        Checkpoints(checkpoints_dir)
    assert {"1", "2"} <= {path.name for path in checkpoints_dir.iterdir()}


def test_two_checkpoints_are_kept(tmp_path: Path) -> None:
    folder = save_checkpoints(tmp_path / "all", 1, 2, 3, 4)
    assert {path.name for path in folder.iterdir()} == {"3", "4"}


def test_state_may_be_donated_while_it_is_saved(tmp_path: Path) -> None:
    @functools.partial(jax.jit, donate_argnums=0)
    def update(state: LearnerState) -> LearnerState:
        return jax.tree.map(lambda leaf: leaf + 1, state)

    state = make_state(0)
    with closing(Checkpoints(tmp_path)) as checkpoints:
        for step in range(1, 6):
            state = update(state)
            checkpoints.save(state, make_progress(step))
            expected = jax.tree.map(np.array, state)
            for _ in range(3):
                state = update(state)
            assert_equal(checkpoints.restore(make_state(0)), expected)


@pytest.mark.parametrize(("moment", "newest_step"), [("begun", 1), ("written", 1), ("complete", 2)])
def test_killed_save_is_whole_or_absent(moment: str, newest_step: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_SAVE_SCRIPT, str(tmp_path), moment]
    process = subprocess.run(command, cwd=ROOT, timeout=100, check=False)
    assert process.returncode == -signal.SIGKILL
    assert_restores(tmp_path, newest_step)
    assert {path.name for path in tmp_path.iterdir()} == {"1", "2"} - (
        {"2"} if newest_step == 1 else set()
    )


def test_background_save_error_keeps_older_checkpoints(
    checkpoints_dir: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    checkpoints = Checkpoints(checkpoints_dir)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints_module, "write_digests", fail)
        checkpoints.save(make_state(3), make_progress(3))
        with pytest.raises(UserError, match=r"/3: the checkpoint can't be saved.*No space left"):
            checkpoints.close()
    assert "Traceback" not in capfd.readouterr().err
    assert_restores(checkpoints_dir, 2)
    assert {"1", "2"} == {path.name for path in checkpoints_dir.iterdir()}
