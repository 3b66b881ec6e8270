"""A modified unfinished run reports the change, or ends as if it had not happened."""

import random
import shutil
from pathlib import Path

import pytest

from tests.paths import TINY
from tests.training.fake_run import (
    KilledError,
    assert_same_files,
    interrupt_at,
    raise_killed,
    read_comparable_files,
    without_vllm,
)
from training import loop
from training.audit import audit_run
from training.errors import UserError
from training.run.checkpoints import Checkpoints
from training.run.directory import RunDirectory
from training.run.shared_directory import open_run
from training.schema import load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CONFIG = load(TINY, ["warm_start.steps=20", "grpo.prefetch=1"])
NUM_ATTACKS = 100

# Files that a resumed run ignores or writes again.
IGNORED_PARTS = (".lock", "engine/", "report.html", "checkpoints/.", "/policy/")


@pytest.fixture(scope="module")
def half_finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run killed in the third update of its second stage, with a rollout drawn ahead."""
    run_dir = tmp_path_factory.mktemp("attacks") / "half"
    with without_vllm():
        loop.run(CONFIG, run_dir, stop_after=1)
        with pytest.raises(KilledError), interrupt_at("update", raise_killed):
            loop.run(CONFIG, run_dir)
    return run_dir


def flip_bit(path: Path, other_path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, other_path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def delete(path: Path, other_path: Path, rng: random.Random) -> None:
    path.unlink()


def swap(path: Path, other_path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(other_path.read_bytes())
    other_path.write_bytes(content)


def drop_line(path: Path, other_path: Path, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    path.write_bytes(b"".join(lines))


def can_resume(run_dir: Path) -> bool:
    """Return whether a run passes the checks that resuming makes before it computes anything."""
    try:
        with open_run(CONFIG, run_dir) as (directory, _):
            checkpoints = Checkpoints(directory.checkpoints)
            try:
                progress = checkpoints.progress()
                assert progress is not None
                directory.require_unchanged_logs(progress.logs)
            finally:
                checkpoints.close()
    except UserError:
        return False
    return True


def test_changed_run_is_reported_or_unaffected(
    half_finished_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with without_vllm():
        loop.run(CONFIG, shutil.copytree(half_finished_run, tmp_path / "expected"))
    names = sorted(
        str(path.relative_to(half_finished_run))
        for path in half_finished_run.rglob("*")
        if path.is_file() and path.stat().st_size
    )
    names = [name for name in names if not any(part in name for part in IGNORED_PARTS)]
    rng, undetected_changes = random.Random(49), dict[str, bytes | None]()  # None: deleted
    for index in range(NUM_ATTACKS):
        attack = (flip_bit, truncate, delete, swap, drop_line)[index % 5]
        name, other_name = rng.sample(names, 2)
        run_dir = shutil.copytree(half_finished_run, tmp_path / "attacked", dirs_exist_ok=True)
        old_content = (run_dir / name).read_bytes()
        attack(run_dir / name, run_dir / other_name, rng)
        new_content = (run_dir / name).read_bytes() if (run_dir / name).exists() else None
        is_changed = new_content != old_content
        changed_files = {name: new_content}
        if attack is swap:
            changed_files[other_name] = (run_dir / other_name).read_bytes()
        capsys.readouterr()
        if is_changed and can_resume(run_dir) and "damaged" not in capsys.readouterr().out:
            undetected_changes |= changed_files
        shutil.rmtree(run_dir)
    # The undetected changes together must not affect the run.
    run_dir = shutil.copytree(half_finished_run, tmp_path / "attacked")
    for name, content in undetected_changes.items():
        (run_dir / name).unlink() if content is None else (run_dir / name).write_bytes(content)
    with without_vllm():
        loop.run(CONFIG, run_dir)
    assert_same_files(tmp_path / "expected", run_dir)
    assert len(undetected_changes) < NUM_ATTACKS / 4, sorted(undetected_changes)


@pytest.mark.parametrize("attack", [flip_bit, delete])
def test_audit_names_changed_weights(attack, half_finished_run: Path, tmp_path: Path) -> None:
    run_dir = shutil.copytree(half_finished_run, tmp_path / "run")
    attack(run_dir / "stages/0/policy/model.safetensors", run_dir, random.Random(1))
    problems = [stage.problems for stage in audit_run(run_dir, deep=False) if stage.stage == 0]
    assert "policy/model.safetensors" in problems[0][0]
    if attack is delete:
        with without_vllm(), pytest.raises(UserError, match=r"model\.safetensors"):
            loop.run(CONFIG, run_dir)


def test_temporary_files_are_ignored(half_finished_run: Path, tmp_path: Path) -> None:
    run_dir = shutil.copytree(half_finished_run, tmp_path / "run")
    (run_dir / "stages/1/.gate.json.123.tmp").write_text("{")
    assert can_resume(run_dir)
    assert "stages/1/.gate.json.123.tmp" not in read_comparable_files(run_dir)


def test_moved_run_directory_is_reported(half_finished_run: Path, tmp_path: Path) -> None:
    run_dir = shutil.copytree(half_finished_run, tmp_path / "run")
    directory = RunDirectory(run_dir)
    directory.require_intact()
    run_dir.rename(tmp_path / "moved")
    with pytest.raises(UserError, match="was moved or removed while it was in use"):
        directory.stage(2).episodes.write([])
    assert not run_dir.exists()
