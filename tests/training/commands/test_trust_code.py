"""Commands that only read a run don't execute code that the run names."""

import os
from pathlib import Path

import pytest
import yaml

from jaxlake.command_line.entry import main
from tests.paths import TINY
from training.run.directory import RunDirectory
from training.schema import dump, load

EVIL_CLASS = "evil_module:Evil"


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run, next to a module that leaves a file behind when it is imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil_module.py").write_text("open('executed', 'w').close()\n")
    run = tmp_path / "run"
    run.mkdir()
    (run / "stages" / "1").mkdir(parents=True)
    (run / "config.yaml").write_text(TINY.read_text())
    return run


def set_evil_class(run: Path, key: str) -> None:
    tree = yaml.safe_load((run / "config.yaml").read_text())
    *parents, leaf = key.split(".")
    section = tree
    for name in parents:
        section = section.setdefault(name, {})
    section[leaf] = EVIL_CLASS
    (run / "config.yaml").write_text(yaml.safe_dump(tree))


@pytest.mark.parametrize("key", ["environment.kind", "engineer.kind", "prompt.template"])
@pytest.mark.parametrize("command", ["audit RUN", "report RUN", "evaluate RUN/config.yaml"])
def test_reading_command_imports_no_code_of_a_run(command, key, run_dir, tmp_path):
    set_evil_class(run_dir, key)
    arguments = command.replace("RUN", str(run_dir)).split()
    if arguments[0] == "evaluate":
        arguments += ["--run-dir", str(run_dir)]
    main(arguments)
    assert not (tmp_path / "executed").exists()


def test_reading_command_imports_trusted_code(run_dir, tmp_path, capsys):
    set_evil_class(run_dir, "environment.kind")
    assert main(["audit", str(run_dir)]) == 2
    assert "commands that read runs take --trust-code" in capsys.readouterr().err
    main(["audit", str(run_dir), "--trust-code"])
    assert (tmp_path / "executed").exists()


def test_run_imports_no_code_of_the_run_it_starts_from(run_dir, tmp_path, capsys):
    set_evil_class(run_dir, "environment.kind")
    config = str(TINY)
    assert main(["run", config, "--run-dir", "new", "--from", str(run_dir), "--dry-run"]) == 2
    assert "commands that read runs take --trust-code" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()
    assert not RunDirectory(Path("new")).path.exists()


@pytest.mark.parametrize("name", ["SHA256SUMS", "stages/1/gate.json"])
@pytest.mark.parametrize("command", ["run CONFIG --run-dir RUN", "report RUN", "audit RUN"])
@pytest.mark.parametrize("is_pipe", [False, True])
def test_links_and_pipes_of_a_run_are_not_opened(is_pipe, command, name, run_dir, tmp_path, capsys):
    (tmp_path / "mine").write_text("mine")
    (run_dir / "config.yaml").write_text(dump(load(TINY)))
    os.mkfifo(run_dir / name) if is_pipe else (run_dir / name).symlink_to(tmp_path / "mine")
    arguments = command.replace("RUN", str(run_dir)).replace("CONFIG", str(TINY)).split()
    assert main(arguments) == 2
    problem = "is a pipe" if is_pipe else f"is a link to {tmp_path / 'mine'}, outside of"
    assert f"{name}: {problem}" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "mine"


def test_run_names_the_modules_it_imports(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paying_module.py").write_text("def pay(text, board, score):\n    return 0.0\n")
    config = str(TINY)
    main(["run", config, "--dry-run", "--set", "reward.function=paying_module:pay"])
    assert "Imported paying_module:pay from" in capsys.readouterr().out
