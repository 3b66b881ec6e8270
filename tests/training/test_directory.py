"""A directory is claimed once, and what a kill cuts short in it costs nothing else."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from training.config import RunConfig, load
from training.errors import UserError
from training.run.directory import JsonLog, RunDirectory

ROOT = Path(__file__).parents[2]
TINY = Path(__file__).with_name("tiny.yaml")
KILLED_CLAIM = """\
import os, signal, sys
from pathlib import Path
from training.config import load
from training.run.directory import RunDirectory
os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
RunDirectory(Path(sys.argv[2])).claim(load(Path(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return load(TINY)


def kill_in_claim(path: Path) -> list[str]:
    """Claim a run's directory, be killed before the first file has its name; what is left."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_CLAIM, str(TINY), str(path)], cwd=ROOT, timeout=100
    )
    assert killed.returncode == -signal.SIGKILL
    return [child.name for child in path.iterdir()]


def test_a_run_that_was_killed_while_it_claimed_its_directory_starts_with_the_same_command(
    config: RunConfig, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    assert kill_in_claim(path) != ["config.yaml"]
    kill_in_claim(path)
    assert RunDirectory(path).claim(config) is False
    assert [child.name for child in path.iterdir()] == ["config.yaml"]
    assert RunDirectory(path).claim(config) is True


@pytest.mark.parametrize(
    "name",
    [
        "thesis.tex",
        ".thesis.tex.12.tmp",
        ".config.yaml.tmp",
        ".config.yaml.twelve.tmp",
        ".config.yaml.12.tmp.gz",
        "config.yaml.12.tmp",
        ".config-yaml.12.tmp",
        ".config.yaml.²2.tmp",
    ],
)
def test_files_that_are_no_runs_are_refused_and_kept(
    name: str, config: RunConfig, tmp_path: Path
) -> None:
    (tmp_path / name).write_text("mine")
    (tmp_path / ".config.yaml.77.tmp").write_text("of a kill, or not")
    with pytest.raises(UserError, match="is not empty and holds no run"):
        RunDirectory(tmp_path).claim(config)
    assert sorted(child.name for child in tmp_path.iterdir()) == sorted(
        [name, ".config.yaml.77.tmp"]
    )


def test_a_folder_of_the_name_of_a_temporary_file_is_refused_and_kept(
    config: RunConfig, tmp_path: Path
) -> None:
    (tmp_path / ".config.yaml.12.tmp").mkdir()
    with pytest.raises(UserError, match="is not empty and holds no run"):
        RunDirectory(tmp_path).claim(config)
    assert (tmp_path / ".config.yaml.12.tmp").is_dir()


@pytest.mark.parametrize("text", [b"", b"- a", b"{", b"3", b"\x00", b"\xff\xfe"])
def test_a_configuration_in_the_directory_that_is_none_is_named(
    text: bytes, config: RunConfig, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_bytes(text)
    with pytest.raises(UserError, match=r"/config\.yaml: (is not YAML|must hold a mapping)"):
        RunDirectory(tmp_path).claim(config)


def test_a_line_cut_by_a_kill_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "processes.jsonl"
    old = [{"run": "warm_start", "status": 0}, {"run": "a/1", "status": -9}]
    new = {"run": "a/1", "status": 0}
    lines = [json.dumps(record) for record in old]
    text = "".join(f"{line}\n" for line in lines)
    for cut in range(len(text) + 1):
        path.write_text(text[:cut])
        log = JsonLog(path)
        log.append(new)
        log.append(new)
        whole = sum(cut >= end for end in (len(lines[0]), len(text) - 1))
        assert log.read() == [*old[:whole], new, new], f"cut at {cut}"
        assert path.read_text().startswith(text[:cut])
        assert path.read_text().count("\n") <= text.count("\n") + 2


def test_lines_that_follow_whole_lines_are_written_as_they_are(tmp_path: Path) -> None:
    log = JsonLog(tmp_path / "metrics.jsonl")
    log.append({"step": 1})
    log.append({"step": 2, "words": "é\n\u2028"})
    text = (tmp_path / "metrics.jsonl").read_text()
    assert [json.loads(line) for line in text.split("\n")[:-1]] == log.read()
    assert len(log.read()) == 2
    assert text.endswith("}\n")


def test_bytes_that_are_no_text_cost_only_their_line(tmp_path: Path) -> None:
    path = tmp_path / "machines.jsonl"
    path.write_bytes(b'{"cores": 2}\n\x00\x00\xff{"cor\n' + b"[" * 100_000 + b'\n{"cores": 4}\n')
    assert JsonLog(path).read() == [{"cores": 2}, {"cores": 4}]
