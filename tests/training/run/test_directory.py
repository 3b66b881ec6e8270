"""A directory is claimed once, and a kill affects only the file being written."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from jaxlake.files import clear_unused_folder
from tests.paths import ROOT, TINY
from training.errors import UserError
from training.run.directory import RunDirectory
from training.run.records import UpdateMetrics, WarmStartMetrics, make_record
from training.run.typed_files import JsonLog
from training.schema import load

CONFIG = load(TINY)
KILLED_CLAIM_SCRIPT = """\
import os, signal, sys
from pathlib import Path
from training.schema import load
from training.run.directory import RunDirectory
os.link = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
RunDirectory(Path(sys.argv[2])).claim(load(Path(sys.argv[1])))
"""
RECORD_TYPE: TypeAdapter[dict[str, object]] = TypeAdapter(dict[str, object])


def test_killed_claim_can_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "run"
    for _ in range(2):
        command = [sys.executable, "-c", KILLED_CLAIM_SCRIPT, str(TINY), str(path)]
        process = subprocess.run(command, cwd=ROOT, timeout=100, check=False)
        assert process.returncode == -signal.SIGKILL
        assert not (path / "config.yaml").exists()
    assert any(path.iterdir())
    assert RunDirectory(path).claim(CONFIG) is False
    assert [child.name for child in path.iterdir()] == ["config.yaml"]
    assert RunDirectory(path).claim(CONFIG) is True


FOREIGN_NAMES = """thesis.tex .thesis.tex.12.tmp .config.yaml.tmp .config.yaml.twelve.tmp
.config.yaml.12.tmp.gz config.yaml.12.tmp .config-yaml.12.tmp .config.yaml.²2.tmp
.config.yaml.13.tmp/"""


@pytest.mark.parametrize("name", FOREIGN_NAMES.split())
def test_directory_with_other_files_is_rejected_and_kept(name: str, tmp_path: Path) -> None:
    if name.endswith("/"):
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".config.yaml.77.tmp").write_text("left by a kill")
    paths = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match="is not empty and contains no run"):
        RunDirectory(tmp_path).claim(CONFIG)
    assert sorted(tmp_path.iterdir()) == paths


def test_claim_names_differing_keys(tmp_path: Path) -> None:
    RunDirectory(tmp_path).claim(CONFIG)
    with pytest.raises(UserError, match=r"differs in seed \(3 there, 4 here\); choose another"):
        RunDirectory(tmp_path).claim(CONFIG.model_copy(update={"seed": 4}))


CHANGEABLE_SETTINGS = [
    "model.mesh.fsdp=2",
    "model.remat=true",
    "model.attention=blockwise",
    "grpo.micro_batch_size=8",
    "sampling.max_num_seqs=32",
    "sampling.gpu_memory_utilization=0.2",
    "sampling.tensor_parallel_size=2",
    "sampling.devices=[2, 3]",
    "engineer.atlas.after_last=true",
    "tracking.tensorboard=true",
]


def test_run_resumes_with_rounding_settings_changed(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.claim(CONFIG)
    assert directory.claim(load(TINY, CHANGEABLE_SETTINGS)) is True
    settings = ("seed=4", "grpo.minibatches=2", "model.dtype=bfloat16", "prompt.max_tokens=20")
    for override in settings:
        with pytest.raises(UserError, match=rf"differs in {override.partition('=')[0]} "):
            directory.claim(load(TINY, [*CHANGEABLE_SETTINGS, override]))


def test_mesh_is_fixed_if_each_device_adds_a_group(tmp_path: Path) -> None:
    settings = ["engineer.learning={}", "engineer.kind=checkpoint", "engineer.style=compact"]
    settings.append("engineer.blocks=[failure_breakdown, training_details, history]")
    RunDirectory(tmp_path).claim(load(TINY, settings))
    with pytest.raises(UserError, match=r"differs in model\.mesh"):
        RunDirectory(tmp_path).claim(load(TINY, [*settings, "model.mesh.fsdp=2"]))


@pytest.mark.parametrize("text", [b"", b"- a", b"{", b"3", b"\x00", b"\xff\xfe"])
def test_unreadable_configuration_is_named(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(text)
    with pytest.raises(UserError, match=r"/config\.yaml: (is not YAML|must hold a mapping)"):
        RunDirectory(tmp_path).claim(CONFIG)


def test_incomplete_line_affects_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "processes.jsonl"
    records = [{"run": "warm_start", "words": "é\n\u2028"}, {"run": "a/1", "status": -9}]
    new_record = {"run": "a/1", "status": 0}
    lines = [json.dumps(record) for record in records]
    text = "".join(f"{line}\n" for line in lines)
    for length in range(len(text) + 1):
        path.write_text(text[:length])
        log = JsonLog(path, RECORD_TYPE)
        log.append(new_record)
        log.append(new_record)
        num_complete = sum(length >= end for end in (len(lines[0]), len(text) - 1))
        assert log.read() == [*records[:num_complete], new_record, new_record], f"cut at {length}"
        assert path.read_text().startswith(text[:length])
        assert path.read_text().count("\n") <= text.count("\n") + 2


def test_invalid_utf8_affects_only_its_line(tmp_path: Path) -> None:
    path = tmp_path / "machines.jsonl"
    path.write_bytes(b'{"cores": 2}\n\x00\x00\xff{"cor\n' + b"[" * 100_000 + b'\n{"cores": 4}\n')
    assert JsonLog(path, RECORD_TYPE).read() == [{"cores": 2}, {"cores": 4}]


def test_invalid_record_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"phase": "warm_start", "step": -1}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl:1: warm_start\.step: got -1"):
        RunDirectory(tmp_path).metrics.read()


def test_rewind_drops_later_log_lines(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    records = [WarmStartMetrics(step=step, loss=1 / step) for step in (10, 20, 30)]
    directory.metrics.write(records)
    directory.rewind(20)
    assert directory.metrics.read() == records[:2]


def test_nan_loss_stops_the_run() -> None:
    with pytest.raises(UserError, match=r"metrics of step 10: loss: got nan: .*finite"):
        make_record(WarmStartMetrics, step=10, loss=float("nan"))
    with pytest.raises(UserError, match=r"metrics of stage 1, step 31: .*grad_norm: got inf"):
        make_record(UpdateMetrics, stage=1, update=1, step=31, grad_norm=float("inf"))


def test_only_one_of_two_claims_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other_config = load(TINY, ["seed=4"])

    def clear_after_other_claim(path: Path) -> bool:  # another process claims the folder first
        was_unused = clear_unused_folder(path)
        monkeypatch.undo()
        assert RunDirectory(tmp_path).claim(other_config) is False
        return was_unused

    monkeypatch.setattr("training.run.directory.clear_unused_folder", clear_after_other_claim)
    with pytest.raises(
        UserError, match=r"contains a run of another configuration, .* seed \(4 there"
    ):
        RunDirectory(tmp_path).claim(CONFIG)
    assert RunDirectory(tmp_path).claim(other_config) is True
    assert [child.name for child in tmp_path.iterdir()] == ["config.yaml"]
