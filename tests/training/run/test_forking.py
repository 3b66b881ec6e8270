"""A forked run ends like a run that computed the first stage itself."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.paths import TINY
from tests.training.fake_run import without_vllm
from training import loop
from training.audit import audit_run
from training.errors import UserError
from training.run.directory import RunDirectory
from training.run.forking import fork_first_stage, has_same_first_stage
from training.schema import RunConfig


def make_tiny_config(name: str, kind: str, **changes: Any) -> RunConfig:
    tree = yaml.safe_load(TINY.read_text()) | {"name": name} | changes
    tree["engineer"] |= {"kind": kind}
    return RunConfig.model_validate(tree)


@pytest.fixture(scope="module")
def first_stage_dir(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "first"
    with without_vllm():
        loop.run(make_tiny_config("first", "fixed"), path, stop_after=1)
    return path


def test_forked_run_equals_an_independent_run(first_stage_dir: Path, tmp_path: Path):
    config = make_tiny_config("one", "random")
    independent_dir, forked_dir = tmp_path / "independent", tmp_path / "forked"
    fork_first_stage(RunDirectory(first_stage_dir), forked_dir, config)
    stage = RunDirectory(forked_dir).stage(1)
    assert stage.episodes.exists()
    assert not stage.decision.exists()
    with without_vllm():
        loop.run(config, forked_dir)
        loop.run(config, independent_dir)
    independent_paths, forked_paths = (
        {file.relative_to(folder) for file in folder.rglob("*")}
        for folder in (independent_dir, forked_dir)
    )
    assert {file.parts[0] for file in independent_paths ^ forked_paths} <= {"checkpoints", "engine"}
    for name in ("stages/2/digests.json", "summary.json", "metrics.jsonl"):
        assert (independent_dir / name).read_bytes() == (forked_dir / name).read_bytes(), name
    decision = RunDirectory(forked_dir).stage(1).decision.read()
    assert decision.engineer == "random"
    assert not any(stage.problems for stage in audit_run(forked_dir))


def test_different_starts_share_no_first_stage(first_stage_dir: Path, tmp_path: Path):
    config = make_tiny_config("one", "random")
    assert has_same_first_stage(config, make_tiny_config("other", "rule"))
    reseeded_config = make_tiny_config("other", "random", seed=99)
    assert not has_same_first_stage(config, reseeded_config)
    with pytest.raises(UserError, match="must have the same first stage as other"):
        fork_first_stage(RunDirectory(first_stage_dir), tmp_path / "forked", reseeded_config)
    assert not (tmp_path / "forked").exists()


def test_different_pool_changes_the_first_stage():
    """With `engineer.picking`, `atlas.answers` also sets the answers to the pool of boards."""

    def make_config(answers: int, **sections: Any) -> RunConfig:
        tree = yaml.safe_load(TINY.read_text()) | {"name": "one"}
        tree["engineer"] |= {"kind": "fixed", "atlas": {"answers": answers}, **sections}
        return RunConfig.model_validate(tree)

    for method in ("sfl", "plr"):
        picking = {"picking": {"method": method}}
        config, same_config, other_config = (make_config(count, **picking) for count in (2, 2, 3))
        assert has_same_first_stage(config, same_config)
        assert not has_same_first_stage(config, other_config)
    assert has_same_first_stage(make_config(2), make_config(3))


def test_fork_rejects_existing_and_longer_runs(first_stage_dir: Path, tmp_path: Path):
    config = make_tiny_config("one", "random")
    fork_first_stage(RunDirectory(first_stage_dir), tmp_path / "forked", config)
    mtimes = {file: file.stat().st_mtime_ns for file in (tmp_path / "forked").rglob("*")}
    with pytest.raises(UserError, match="already exists"):
        fork_first_stage(RunDirectory(first_stage_dir), tmp_path / "forked", config)
    assert mtimes == {file: file.stat().st_mtime_ns for file in (tmp_path / "forked").rglob("*")}
    log = RunDirectory(tmp_path / "forked").metrics
    last_record = log.read()[-1]
    log.append(last_record.model_copy(update={"stage": 2, "step": last_record.step + 1}))
    with pytest.raises(UserError, match="must be stopped after its first stage"):
        fork_first_stage(RunDirectory(tmp_path / "forked"), tmp_path / "again", config)
