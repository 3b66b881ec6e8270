"""Trackers receive the logged numbers and don't change the run's files."""

import re
import struct
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from tests.paths import TINY
from tests.training.fake_run import read_comparable_files, without_vllm
from training import loop
from training.errors import UserError
from training.run.answer_records import compute_validation_rates
from training.run.directory import RunDirectory
from training.run.records import Rates, ValidationRecord
from training.run.trackers import open_trackers, profile_update
from training.schema import load

TRACKING_SETTINGS = ["tracking.tensorboard=true", "tracking.profile_updates=[2]"]
WANDB_SETTING = "tracking.wandb=true"


def read_scalars(folder: Path) -> dict[tuple[str, int], float]:
    """Return the values that TensorBoard shows: the last logged ones, without purged ones."""
    from tensorboardX.proto.event_pb2 import Event

    values: dict[tuple[str, int], float] = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        content = path.read_bytes()
        while content:  # length, checksum, event, checksum
            (length,) = struct.unpack("<Q", content[:8])
            event = Event.FromString(content[12 : 12 + length])
            content = content[16 + length :]
            if event.session_log.status == 1:  # START
                values = {key: value for key, value in values.items() if key[1] < event.step}
            for value in event.summary.value:
                values[value.tag, event.step] = value.simple_value
    return values


def make_validation(num_valid: int) -> ValidationRecord:
    scores = {"optimal_sum_of_costs": 2, "optimal_makespan": 2}
    row = Rates(count=8, valid=num_valid, scores=scores, failures={"hole": 8 - num_valid}, isr=0.5)
    return ValidationRecord(stage=1, groups={"3": row}, total=row)


def test_tensorboard_has_each_value_once_after_resume(tmp_path: Path):
    config, directory = load(TINY, ["tracking.tensorboard=true"]), RunDirectory(tmp_path)
    with open_trackers(config, directory, 0) as trackers:  # killed before there is a checkpoint
        trackers.log_validation(2, make_validation(2))
    with open_trackers(config, directory, 0) as trackers:
        for step in (3, 4, 5, 6):
            trackers.log_validation(step, make_validation(step))
    with open_trackers(config, directory, 4) as trackers:  # the checkpoint is of step 4
        trackers.log_validation(5, make_validation(6))
    scalars = read_scalars(directory.tensorboard)
    assert {step for _, step in scalars} == {3, 4, 5}
    valid_rates = [scalars["validation/3/valid", step] for step in (3, 4, 5)]
    assert valid_rates == [3 / 8, 4 / 8, 6 / 8]


def test_only_the_given_update_is_profiled(tmp_path: Path):
    config, directory = load(TINY, ["tracking.profile_updates=[2]"]), RunDirectory(tmp_path)
    for update in (1, 2, 3):
        with profile_update(config, directory, update):
            jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((64, 64))).block_until_ready()
    assert [path.name for path in directory.profile.iterdir()] == ["2"]
    (file,) = directory.profile.rglob("*.xplane.pb")
    profile = jax.profiler.ProfileData.from_file(str(file))
    assert any(True for plane in profile.planes for line in plane.lines for _ in line.events)


@pytest.mark.slow
def test_tracked_run_logs_the_recorded_values(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    config = load(TINY, [*TRACKING_SETTINGS, WANDB_SETTING])
    with without_vllm():
        loop.run(load(TINY), tmp_path / "plain")
        loop.run(config, tmp_path / "run", stop_after=1)
        loop.run(config, tmp_path / "run")
    directory = RunDirectory(tmp_path / "run")
    run_files, expected = (
        read_comparable_files(directory.path),
        read_comparable_files(tmp_path / "plain"),
    )
    names = [name for name in expected if not name.endswith(("config.yaml", "digests.json"))]
    assert [name for name in names if run_files[name] != expected[name]] == []
    scalars = read_scalars(directory.tensorboard)
    updates = directory.updates()
    for update in updates:
        assert scalars["train/reward_mean", update.step] == pytest.approx(update.reward_mean)
        group, row = next(iter(update.by_group.items()))
        assert scalars[f"train/by_group/{group}/valid", update.step] == row.valid
        assert scalars["timing/tokens_per_second", update.step] > 0
    for stage in (0, 1, 2):
        total = compute_validation_rates(stage, directory.stage(stage).episodes.read()).total
        valid_rate = scalars["validation/all/valid", config.warm_start.steps + 4 * stage]
        assert valid_rate == pytest.approx(total.valid / total.count)
    offline_files = list((directory.path / "wandb").glob("offline-run-*/run-*.wandb"))
    assert {path.name for path in offline_files} == {f"run-{directory.wandb_id.read()}.wandb"}


@pytest.mark.parametrize(("error", "expected_code"), [(None, None), (KeyboardInterrupt, 1)])
def test_wandb_receives_steps_id_and_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any, expected_code: int | None
):
    calls: list[Any] = []
    fake_run = SimpleNamespace(
        define_metric=lambda name, step_metric: calls.append((name, step_metric)),
        log=calls.append,
        finish=lambda exit_code=None: calls.append(exit_code),
    )
    fake_wandb = SimpleNamespace(
        init=lambda **settings: calls.append(settings["id"]) or fake_run,
        Settings=lambda **_: None,
        Error=RuntimeError,
    )
    monkeypatch.setitem(sys.modules, "wandb", fake_wandb)
    directory = RunDirectory(tmp_path)
    expected_error = nullcontext() if error is None else pytest.raises(error)
    with expected_error, open_trackers(load(TINY, [WANDB_SETTING]), directory, 0) as trackers:
        trackers.log_validation(7, make_validation(4))
        if error is not None:
            raise error
    identifier, metric, logged_values, exit_code = calls
    assert identifier == directory.wandb_id.read()
    assert metric == ("*", "step")
    assert (logged_values["step"], logged_values["validation/all/valid"]) == (7, 0.5)
    assert exit_code == expected_code


@pytest.mark.parametrize(
    ("name", "option"), [("tensorboardX", "tensorboard=true"), ("wandb", "wandb=true")]
)
def test_missing_library_is_named_with_its_extra(name, option, tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    config = load(TINY, [f"tracking.{option}"])
    extra = re.escape(f"pip install 'jaxlake[{name.lower().removesuffix('x')}]'")
    with pytest.raises(UserError, match=extra), open_trackers(config, RunDirectory(tmp_path), 0):
        pass
