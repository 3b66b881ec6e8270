"""The commands of the pages on devices and hosts run, with smaller settings."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from jaxlake.command_line.entry import main
from tests.paths import ROOT
from tests.training.cluster_process import LEARNING_SETTINGS, find_free_address
from training.run.directory import RunDirectory

HOSTS_PAGE = (ROOT / "docs/how_to/several_hosts.md").read_text(encoding="utf-8")
DEVICES_PAGE = (ROOT / "docs/how_to/pods.md").read_text(encoding="utf-8")
SPEC = """\
grid: {size: [3, 4], hole_ratio: 0.2}
policies: [shortest_path]
boards: 8
"""


def run_shell(command: str, replacements: dict[str, str], folder: Path) -> None:
    """Run a page's command with some words replaced, using the `jaxlake` of this interpreter."""
    for word, replacement in replacements.items():
        assert command.count(word) >= 1, word
        command = command.replace(word, replacement)
    process = subprocess.run(
        ["bash", "-ec", command],
        cwd=folder,
        env=os.environ
        | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "",
        },
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    assert "error" not in process.stderr


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_processes_on_one_machine_share_a_run(tmp_path):
    (command,) = re.findall(r"^for I in 0 1; do jaxlake run .*?; wait$", HOSTS_PAGE, re.S | re.M)
    options = shlex.join([*LEARNING_SETTINGS, "grpo.completions=4", "stages.count=1"])
    replacements = {
        "configs/": f"{ROOT}/configs/",
        "127.0.0.1:12345": find_free_address(),
        " & done": f" {options} & done",
    }
    run_shell(command, replacements, tmp_path)
    directory = RunDirectory(tmp_path / "runs/two")
    assert directory.finished()
    assert len(directory.updates()) == 4
    files = (tmp_path / "runs/two/checkpoints").glob("*/state/array_metadatas/process_1")
    assert list(files)


def test_run_of_several_processes_rejects_prefetch(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    process_options = ["--coordinator", "127.0.0.1:1", "--processes", "2", "--process", "1"]
    run_options = ["configs/miniature.yaml", "--run-dir", str(tmp_path / "run")]
    assert main(["run", *run_options, *process_options, "--set", "sampling.engine=jax"]) == 2
    assert "--set grpo.prefetch=0" in capsys.readouterr().err


def test_run_on_slurm_passes_the_dry_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    page = re.sub(r"\\\n\s*", "", HOSTS_PAGE)
    (command,) = re.findall(r"^srun jaxlake (run configs/.*)$", page, re.MULTILINE)
    command = command.replace("/shared/runs", str(tmp_path)).replace("--coordinator auto ", "")
    assert main([*shlex.split(command), "--dry-run"]) == 0
    assert "a mesh of fsdp 16 x tensor 1" in capsys.readouterr().out


@pytest.mark.slow
def test_commands_for_many_devices_make_and_verify_parts(tmp_path):
    (tmp_path / "sweep.yaml").write_text(SPEC)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", DEVICES_PAGE, flags=re.DOTALL | re.MULTILINE)
    (make_command, join_code, info_command) = (block for _, block in blocks)
    for command, replacements in ((make_command, {"1000000000": "256"}), (info_command, {})):
        run_shell(command, {"/shared": str(tmp_path), **replacements}, tmp_path)
    assert (tmp_path / "boards/part-00000.npz").exists()
    original_files = {path: path.read_bytes() for path in (tmp_path / "sweep").rglob("*.*")}
    assert len(original_files) == 2
    initialize_call = f'initialize("{find_free_address()}", 1, 0)'
    code = join_code.replace("/shared", str(tmp_path)).replace("initialize()", initialize_call)
    assert initialize_call in code
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert {path: path.read_bytes() for path in original_files} == original_files
