"""The wheel as a user gets it: in an environment without anything else."""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.slow

BOARD = {"id": "x", "grid": ["S F G", "s H F", "g F F"]}
PLAN = BOARD | {"plan": [["RIGHT", "RIGHT"], ["DOWN", "DOWN"]]}


def run(*command: object, **options) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=600, **options)


def succeed(*command: object, **options) -> str:
    done = run(*command, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of what is committed or about to be, built in a copy of it."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    listed = succeed(
        "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT
    )
    for name in filter(None, listed.split("\0")):
        if name.startswith(("jaxlake/", "engineer/", "training/")) or "/" not in name:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_file():
                shutil.copy(ROOT / name, source / name)
    build = ["--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
    succeed(sys.executable, "-m", "pip", "wheel", *build, "--wheel-dir", target, source)
    (found,) = target.glob("jaxlake-*.whl")
    return found


@pytest.fixture(scope="module")
def metadata(wheel) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_every_link_of_the_description_works_on_an_index(metadata):
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = re.sub(r"^```.*?^```", "", metadata.get_payload(), flags=re.MULTILINE | re.DOTALL)
    assert text.lstrip().startswith("# jaxlake")
    targets = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    assert targets
    for target in targets:
        assert target.startswith("https://"), target


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """The `bin` of an environment that has the wheel and what it requires, and nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    uv = Path(sys.executable).parent / "uv"
    succeed(uv, "venv", "--quiet", "--python", sys.executable, folder / "venv")
    python = folder / "venv" / "bin" / "python"
    pins = ROOT / "requirements" / "tested-on-cpu.txt"
    succeed(uv, "pip", "install", "--quiet", "--python", python, "--constraint", pins, wheel)
    return python.parent


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A user's folder."""
    (tmp_path / "boards.jsonl").write_text(json.dumps(BOARD) + "\n")
    (tmp_path / "plans.jsonl").write_text(json.dumps(PLAN) + "\n")
    for name in [name for name in os.environ if name.startswith("PYTHON")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    return tmp_path


def test_wheel_installs_only_core_dependencies(environment, folder):
    probe = "import importlib.util as u; print([n for n in {} if u.find_spec(n)])"
    names = ["pydantic", "yaml", "flax", "torch", "transformers", "vllm", "rich", "PIL"]
    assert succeed(environment / "python", "-c", probe.format(names)).strip() == "[]"
    script = "import jaxlake; print(jaxlake.__version__, jaxlake.solve.__name__)"
    version, name = succeed(environment / "python", "-c", script, cwd=folder).split()
    assert name == "solve"
    assert succeed(environment / "jaxlake", "--version", cwd=folder) == f"jaxlake {version}\n"


@pytest.mark.parametrize("start", [["jaxlake"], ["python", "-m", "jaxlake"]])
def test_lake_commands_work_with_the_core_alone(start, environment, folder):
    jaxlake = [environment / start[0], *start[1:]]
    (solved,) = succeed(*jaxlake, "solve", "boards.jsonl", cwd=folder).splitlines()
    assert json.loads(solved)["sum_of_costs"] == 3
    (checked,) = succeed(*jaxlake, "check", "--no-optimum", "plans.jsonl", cwd=folder).splitlines()
    assert json.loads(checked)["failure"] == "off_board"
    assert "off board" in succeed(*jaxlake, "render", "plans.jsonl", cwd=folder)


def test_commands_of_the_loop_say_what_they_lack(environment, folder):
    done = run(environment / "jaxlake", "run", "c.yaml", cwd=folder)
    assert done.returncode == 2
    assert re.search(
        r"needs the package '\w+', which isn't installed: pip install 'jaxlake\[", done.stderr
    )
    assert len(done.stderr.splitlines()) == 1
