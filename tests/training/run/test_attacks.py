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
ATTACKS = 100

# Files that a resumed run ignores or writes again.
UNREAD = (".lock", "engine/", "report.html", "checkpoints/.", "/policy/")


@pytest.fixture(scope="module")
def half_finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run killed in the third update of its second stage, with a rollout drawn ahead."""
    run = tmp_path_factory.mktemp("attacks") / "half"
    with without_vllm():
        loop.run(CONFIG, run, stop_after=1)
        with pytest.raises(KilledError), interrupt_at("update", raise_killed):
            loop.run(CONFIG, run)
    return run


def flip(path: Path, other: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, other: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def delete(path: Path, other: Path, rng: random.Random) -> None:
    path.unlink()


def swap(path: Path, other: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


def drop_line(path: Path, other: Path, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    path.write_bytes(b"".join(lines))


def can_resume(run: Path) -> bool:
    """Return whether a run passes the checks that resuming makes before it computes anything."""
    try:
        with open_run(CONFIG, run) as (directory, _):
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
    half_finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with without_vllm():
        loop.run(CONFIG, shutil.copytree(half_finished, tmp_path / "expected"))
    names = sorted(
        str(path.relative_to(half_finished))
        for path in half_finished.rglob("*")
        if path.is_file() and path.stat().st_size
    )
    names = [name for name in names if not any(part in name for part in UNREAD)]
    rng, undetected = random.Random(49), dict[str, bytes | None]()  # None: deleted
    for number in range(ATTACKS):
        attack = (flip, truncate, delete, swap, drop_line)[number % 5]
        name, other = rng.sample(names, 2)
        run = shutil.copytree(half_finished, tmp_path / "attacked", dirs_exist_ok=True)
        before = (run / name).read_bytes()
        attack(run / name, run / other, rng)
        after = (run / name).read_bytes() if (run / name).exists() else None
        changed = after != before
        files = {name: after} | ({other: (run / other).read_bytes()} if attack is swap else {})
        capsys.readouterr()
        if changed and can_resume(run) and "damaged" not in capsys.readouterr().out:
            undetected |= files
        shutil.rmtree(run)
    # The undetected changes together must not affect the run.
    run = shutil.copytree(half_finished, tmp_path / "attacked")
    for name, content in undetected.items():
        (run / name).unlink() if content is None else (run / name).write_bytes(content)
    with without_vllm():
        loop.run(CONFIG, run)
    assert_same_files(tmp_path / "expected", run)
    assert len(undetected) < ATTACKS / 4, sorted(undetected)


@pytest.mark.parametrize("attack", [flip, delete])
def test_audit_names_changed_weights(attack, half_finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(half_finished, tmp_path / "run")
    attack(run / "stages/0/policy/model.safetensors", run, random.Random(1))
    problems = [stage.problems for stage in audit_run(run, deep=False) if stage.stage == 0]
    assert "policy/model.safetensors" in problems[0][0]
    if attack is delete:
        with without_vllm(), pytest.raises(UserError, match=r"model\.safetensors"):
            loop.run(CONFIG, run)


def test_killed_writers_leave_no_files(half_finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(half_finished, tmp_path / "run")
    (run / "stages/1/.gate.json.123.tmp").write_text("{")
    assert can_resume(run)
    assert "stages/1/.gate.json.123.tmp" not in read_comparable_files(run)


def test_moved_run_directory_is_reported(half_finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(half_finished, tmp_path / "run")
    directory = RunDirectory(run)
    directory.require_intact()
    run.rename(tmp_path / "moved")
    with pytest.raises(UserError, match="was moved or removed while it was in use"):
        directory.stage(2).episodes.write([])
    assert not run.exists()
