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


def tiny(name: str, kind: str, **changes: Any) -> RunConfig:
    tree = yaml.safe_load(TINY.read_text()) | {"name": name} | changes
    tree["engineer"] |= {"kind": kind}
    return RunConfig.model_validate(tree)


@pytest.fixture(scope="module")
def first_stage(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "first"
    with without_vllm():
        loop.run(tiny("first", "fixed"), path, stop_after=1)
    return path


def test_forked_run_equals_an_independent_run(first_stage: Path, tmp_path: Path):
    config = tiny("one", "random")
    fork_first_stage(RunDirectory(first_stage), tmp_path / "forked", config)
    stage = RunDirectory(tmp_path / "forked").stage(1)
    assert stage.episodes.exists()
    assert not stage.decision.exists()
    with without_vllm():
        loop.run(config, tmp_path / "forked")
        loop.run(config, tmp_path / "independent")
    independent = {
        file.relative_to(tmp_path / "independent") for file in (tmp_path / "independent").rglob("*")
    }
    forked = {file.relative_to(tmp_path / "forked") for file in (tmp_path / "forked").rglob("*")}
    assert {file.parts[0] for file in independent ^ forked} <= {"checkpoints", "engine"}
    for name in ("stages/2/digests.json", "summary.json", "metrics.jsonl"):
        independent_file, forked_file = (
            tmp_path / side / name for side in ("independent", "forked")
        )
        assert independent_file.read_bytes() == forked_file.read_bytes(), name
    decision = RunDirectory(tmp_path / "forked").stage(1).decision.read()
    assert decision.engineer == "random"
    assert not any(stage.problems for stage in audit_run(tmp_path / "forked"))


def test_different_starts_share_no_first_stage(first_stage: Path, tmp_path: Path):
    first = tiny("one", "random")
    assert has_same_first_stage(first, tiny("other", "rule"))
    second = tiny("other", "random", seed=99)
    assert not has_same_first_stage(first, second)
    with pytest.raises(UserError, match="must have the same first stage as other"):
        fork_first_stage(RunDirectory(first_stage), tmp_path / "forked", second)
    assert not (tmp_path / "forked").exists()


def test_different_pool_changes_the_first_stage():
    """`atlas.answers` is also the number of answers to the pool, which only picking has."""

    def with_answers(answers: int, **more: Any) -> RunConfig:
        tree = yaml.safe_load(TINY.read_text()) | {"name": "one"}
        tree["engineer"] |= {"kind": "fixed", "atlas": {"answers": answers}, **more}
        return RunConfig.model_validate(tree)

    for method in ("sfl", "plr"):
        picking = {"picking": {"method": method}}
        first, same, different = (with_answers(count, **picking) for count in (2, 2, 3))
        assert has_same_first_stage(first, same)
        assert not has_same_first_stage(first, different)
    assert has_same_first_stage(with_answers(2), with_answers(3))


def test_fork_rejects_existing_and_longer_runs(first_stage: Path, tmp_path: Path):
    config = tiny("one", "random")
    fork_first_stage(RunDirectory(first_stage), tmp_path / "forked", config)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "forked").rglob("*")}
    with pytest.raises(UserError, match="already exists"):
        fork_first_stage(RunDirectory(first_stage), tmp_path / "forked", config)
    assert before == {file: file.stat().st_mtime_ns for file in (tmp_path / "forked").rglob("*")}
    log = RunDirectory(tmp_path / "forked").metrics
    last = log.read()[-1]
    log.append(last.model_copy(update={"stage": 2, "step": last.step + 1}))
    with pytest.raises(UserError, match="must be stopped after its first stage"):
        fork_first_stage(RunDirectory(tmp_path / "forked"), tmp_path / "again", config)
