"""Trackers are told what a run's logs hold; the run's own files are the same without them."""

import json
import re
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import pytest

from jaxlake.command_line.entry import main
from tests.paths import TINY
from tests.training.killed_run import files_of
from training import loop
from training.errors import UserError
from training.run.answer_records import count_answers
from training.run.directory import RunDirectory
from training.run.records import Rates, UpdateMetrics, ValidationRecord
from training.run.trackers import open_trackers, profiled, validation_numbers
from training.schema import dump, load

ENGINE = ["sampling.engine=jax", "model.pretrained=jaxlake-base", "warm_start=null"]
TRACKED = ["tracking.tensorboard=true", "tracking.profile_updates=[2]"]


def events_of(folder: Path) -> list[Any]:
    """Read TensorBoard's files by their format: length, checksum, event, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    events = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            events.append(Event.FromString(content[12 : 12 + length]))
            content = content[16 + length :]
    return events


def scalars_of(folder: Path) -> dict[tuple[str, int], float]:
    """Read what TensorBoard shows: what was told last, without what a restart purged."""
    values: dict[tuple[str, int], float] = {}
    for event in events_of(folder):
        if event.session_log.status == 1:  # START
            values = {key: value for key, value in values.items() if key[1] < event.step}
        for value in event.summary.value:
            values[value.tag, event.step] = value.simple_value
    return values


def rates(valid: int) -> ValidationRecord:
    scores = {"optimal_sum_of_costs": 2, "optimal_makespan": 2}
    row = Rates(count=8, valid=valid, scores=scores, failures={"hole": 8 - valid}, isr=0.5)
    return ValidationRecord(stage=1, groups={"3": row}, total=row)


def test_tensorboard_gets_every_number_once_also_from_a_run_that_goes_on(tmp_path: Path):
    config, directory = load(TINY, ["tracking.tensorboard=true"]), RunDirectory(tmp_path)
    with open_trackers(config, directory, 0) as trackers:  # killed before there is a checkpoint
        trackers.validation(2, rates(2))
    with open_trackers(config, directory, 0) as trackers:
        for step in (3, 4, 5, 6):
            trackers.validation(step, rates(step))
    with open_trackers(config, directory, 4) as trackers:  # the checkpoint is of step 4
        trackers.validation(5, rates(6))
    found = scalars_of(directory.tensorboard)
    assert {step for _, step in found} == {3, 4, 5}
    valid = [found["validation/3/valid", step] for step in (3, 4, 5)]
    assert valid == [3 / 8, 4 / 8, 6 / 8]
    assert {name for name, _ in found} == set(validation_numbers(rates(4)))


def test_nobody_is_told_and_nothing_is_written_unless_it_is_asked_for(tmp_path: Path):
    with open_trackers(load(TINY), RunDirectory(tmp_path), 0) as trackers:
        trackers.validation(1, rates(4))
    with profiled(load(TINY), RunDirectory(tmp_path), 1):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_trace_of_an_update_can_be_loaded_and_has_what_was_computed(tmp_path: Path):
    config, directory = load(TINY, ["tracking.profile_updates=[2]"]), RunDirectory(tmp_path)
    for update in (1, 2, 3):
        with profiled(config, directory, update):
            jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((64, 64))).block_until_ready()
    assert [path.name for path in directory.profile.iterdir()] == ["2"]
    (file,) = directory.profile.rglob("*.xplane.pb")
    profile = jax.profiler.ProfileData.from_file(str(file))
    lines = [line for plane in profile.planes for line in plane.lines]
    assert any(True for line in lines for _ in line.events)


def test_an_update_to_profile_must_exist_and_tracking_decides_nothing_of_a_run(tmp_path: Path):
    with pytest.raises(UserError, match=r"profile_updates: got 9, allowed are 1 to 8"):
        load(TINY, ["tracking.profile_updates=[9]"])
    assert "tracking" not in dump(load(TINY))
    config = load(TINY, TRACKED)
    assert load_again(config, tmp_path) == config
    assert RunDirectory(tmp_path / "run").claim(load(TINY)) is False
    assert RunDirectory(tmp_path / "run").claim(config) is True
    with pytest.raises(UserError, match="differs in seed"):
        RunDirectory(tmp_path / "run").claim(load(TINY, [*TRACKED, "seed=4"]))


def load_again(config: Any, folder: Path) -> Any:
    (folder / "again.yaml").write_text(dump(config))
    return load(folder / "again.yaml")


@pytest.mark.slow
def test_a_tracked_run_leaves_the_files_of_one_that_is_not_and_tells_what_they_hold(
    tmp_path: Path,
):
    wandb = "tracking.wandb={project: tests, mode: offline}"
    loop.run(load(TINY, ENGINE), tmp_path / "plain")
    config = load(TINY, [*ENGINE, *TRACKED, wandb])
    loop.run(config, tmp_path / "run", stop_after=1)
    loop.run(config, tmp_path / "run")
    directory = RunDirectory(tmp_path / "run")

    found, expected = files_of(directory.path), files_of(tmp_path / "plain")
    own = {name for name in found if name.startswith(("tensorboard", "wandb", "profile"))}
    same = [name for name in expected if not name.endswith(("config.yaml", "digests.json"))]
    assert set(found) - own == set(expected)
    assert [name for name in same if found[name] != expected[name]] == []
    assert main(["audit", str(directory.path)]) == 0

    told = scalars_of(directory.tensorboard)
    updates = [one for one in directory.metrics.read() if isinstance(one, UpdateMetrics)]
    for update in updates:
        for name in ("reward_mean", "sampler_gap", "grad_norm"):
            value = told[f"train/{name}", update.step]
            assert value == pytest.approx(getattr(update, name), rel=1e-6, abs=1e-12)
        size, row = next(iter(update.by_group.items()))
        assert told[f"train/by_group/{size}/valid", update.step] == row.valid
        assert told["speed/tokens_per_second", update.step] > 0
    answers = [directory.stage(stage).episodes.read() for stage in (0, 1, 2)]
    stages = [count_answers(0, episodes).total for episodes in answers]
    for stage, total in enumerate(stages):
        valid = told["validation/all/valid", 4 * stage]
        assert valid == pytest.approx(total.valid / total.count, rel=1e-6)

    assert [path.name for path in directory.profile.iterdir()] == ["2"]
    offline = list((directory.path / "wandb").glob("offline-run-*/run-*.wandb"))
    identifier = directory.wandb_id.read()
    assert len(offline) == 2
    assert all(path.name == f"run-{identifier}.wandb" for path in offline)
    rewards = wandb_history(offline, "train/reward_mean")
    assert rewards == {one.step: pytest.approx(one.reward_mean) for one in updates}


@pytest.mark.slow
def test_weights_and_biases_is_told_whether_a_run_failed(tmp_path: Path):
    config = load(TINY, ["tracking.wandb={project: tests, mode: offline}"])
    for name, error in (("done", None), ("failed", KeyboardInterrupt)):
        directory = RunDirectory(tmp_path / name)
        directory.path.mkdir()
        ending = nullcontext() if error is None else pytest.raises(error)
        with ending, open_trackers(config, directory, 0) as trackers:
            trackers.validation(1, rates(4))
            if error is not None:
                raise error
    codes = {
        name: exit_codes((tmp_path / name / "wandb").glob("offline-run-*/run-*.wandb"))
        for name in ("done", "failed")
    }
    assert codes == {"done": [0], "failed": [1]}


def exit_codes(files: Iterable[Path]) -> list[int]:
    """Read how runs ended from the library's own files."""
    from wandb.proto import wandb_internal_pb2

    records = [
        wandb_internal_pb2.Record.FromString(data)
        for path in files
        for data in leveldb_records(path.read_bytes())
    ]
    return [one.exit.exit_code for one in records if one.HasField("exit")]


def wandb_history(files: list[Path], name: str) -> dict[int, float]:
    """Read one number by step from the library's own files."""
    from wandb.proto import wandb_internal_pb2

    values: dict[int, float] = {}
    for path in sorted(files):
        for data in leveldb_records(path.read_bytes()):
            record = wandb_internal_pb2.Record.FromString(data)
            items = {
                "/".join(item.nested_key) or item.key: json.loads(item.value_json)
                for item in record.history.item
            }
            if name in items:
                values[int(items["step"])] = items[name]
    return values


def leveldb_records(content: bytes) -> Iterator[bytes]:
    """Read LevelDB's log format behind a head of 7 bytes: blocks of 32 KiB, records in pieces."""
    assert content.startswith(b":W&B")
    place, record = 7, b""
    while place < len(content):
        left = 32_768 - place % 32_768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + 7])
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch):
    for name, option in (("tensorboardX", "tensorboard=true"), ("wandb", "wandb={mode: offline}")):
        monkeypatch.setitem(sys.modules, name, None)
        config = load(TINY, [f"tracking.{option}"])
        extra = re.escape(f"pip install 'jaxlake[{name.lower().removesuffix('x')}]'")
        with (
            pytest.raises(UserError, match=extra),
            open_trackers(config, RunDirectory(tmp_path), 0),
        ):
            pass
