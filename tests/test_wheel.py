"""The sdist and the wheel in separate environments.

The oldest JAX is the one that pyproject.toml allows, the newest the one that pip finds.
"""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.slow

UV = Path(sys.executable).parent / "uv"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

BOARD = {"id": "x", "grid": ["S F G", "s H F", "g F F"]}
PLAN = BOARD | {"plan": [["RIGHT", "RIGHT"], ["DOWN", "DOWN"]]}


def run(*command: object, **options) -> subprocess.CompletedProcess[str]:
    arguments = [str(word) for word in command]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=800, **options)


def check_output(*command: object, **options) -> str:
    result = run(*command, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


def copy_checkout(target: Path, *folders: str) -> Path:
    """Copy what is committed or about to be: files at the top and in these folders."""
    file_names = check_output(
        "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT
    )
    for name in filter(None, file_names.split("\0")):
        top, _, rest = name.partition("/")
        if (top in folders or not rest) and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> dict[str, Path]:
    """The sdist, and the wheel that is built from it, by kind."""
    packages = ("jaxlake", "engineer", "training")
    source = copy_checkout(tmp_path_factory.mktemp("source"), *packages)
    target = tmp_path_factory.mktemp("dist")
    check_output(UV, "build", "--quiet", "--python", sys.executable, "--out-dir", target, source)
    return {"sdist": next(target.glob("*.tar.gz")), "wheel": next(target.glob("*.whl"))}


@pytest.fixture(scope="module")
def wheel(distributions) -> Path:
    return distributions["wheel"]


def test_distributions_pass_index_checks(distributions):
    check_output(
        UV, "tool", "run", "--quiet", "twine", "check", "--strict", *distributions.values()
    )


@pytest.fixture(scope="module")
def metadata(wheel) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_description_links_are_absolute(metadata):
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = re.sub(r"^```.*?^```", "", metadata.get_payload(), flags=re.MULTILINE | re.DOTALL)
    assert text.lstrip().startswith("# jaxlake")
    targets = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    assert targets
    for target in targets:
        assert target.startswith("https://"), target


def find_interpreter(version: str) -> str:
    """Return a Python of this version, on PATH or under pyenv; skip the test without one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [shutil.which(f"python{version}"), *pyenv.glob(f"versions/{version}.*/bin/python")]
    for candidate in filter(None, candidates):
        if run(candidate, "-c", "").returncode == 0:  # pyenv's shims of inactive versions fail
            return str(candidate)
    pytest.skip(f"no Python {version} on PATH or under pyenv")


@pytest.fixture(
    scope="module",
    params=[("3.11", "sdist", "oldest"), ("3.12", "sdist", "newest"), ("3.13", "wheel", "newest")],
    ids="-".join,
)
def bin_dir(request, distributions, tmp_path_factory) -> Path:
    """The `bin` of an environment with a distribution, the oldest or newest JAX, and no more."""
    python_version, kind, jax_release = request.param
    venv = tmp_path_factory.mktemp("empty") / "venv"
    check_output(UV, "venv", "--quiet", "--python", find_interpreter(python_version), venv)
    pins = (
        [requirement.replace(">=", "==") for requirement in PROJECT["dependencies"]]
        if jax_release == "oldest"
        else []
    )
    python = venv / "bin" / "python"
    check_output(UV, "pip", "install", "--quiet", "--python", python, *pins, distributions[kind])
    return python.parent


@pytest.fixture
def work_dir(tmp_path, monkeypatch) -> Path:
    """A user's folder."""
    (tmp_path / "boards.jsonl").write_text(json.dumps(BOARD) + "\n")
    (tmp_path / "plans.jsonl").write_text(json.dumps(PLAN) + "\n")
    for name in [name for name in os.environ if name.startswith("PYTHON")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # may name flags that other versions lack
    return tmp_path


def test_wheel_installs_only_core_dependencies(bin_dir, work_dir):
    probe = "import importlib.util as u; print([n for n in {} if u.find_spec(n)])"
    names = ["pydantic", "yaml", "flax", "torch", "transformers", "vllm", "rich", "PIL"]
    assert check_output(bin_dir / "python", "-c", probe.format(names)).strip() == "[]"
    script = "import jaxlake; print(jaxlake.__version__, jaxlake.solve.__name__)"
    version, name = check_output(bin_dir / "python", "-c", script, cwd=work_dir).split()
    assert name == "solve"
    assert check_output(bin_dir / "jaxlake", "--version", cwd=work_dir) == f"jaxlake {version}\n"


@pytest.mark.parametrize("launcher", [["jaxlake"], ["python", "-m", "jaxlake"]])
def test_lake_commands_need_only_core_dependencies(launcher, bin_dir, work_dir):
    command = [bin_dir / launcher[0], *launcher[1:]]
    (solution,) = check_output(*command, "solve", "boards.jsonl", cwd=work_dir).splitlines()
    assert json.loads(solution)["sum_of_costs"] == 3
    (outcome,) = check_output(
        *command, "check", "--no-optimum", "plans.jsonl", cwd=work_dir
    ).splitlines()
    assert json.loads(outcome)["failure"] == "off_board"
    assert "off board" in check_output(*command, "render", "plans.jsonl", cwd=work_dir)


def test_loop_commands_name_missing_extras(bin_dir, work_dir):
    result = run(bin_dir / "jaxlake", "run", "c.yaml", cwd=work_dir)
    assert result.returncode == 2
    assert re.search(
        r"needs the package '\w+', which isn't installed: pip install 'jaxlake\[", result.stderr
    )
    assert len(result.stderr.splitlines()) == 1


FAST_TESTS = (
    "tests/jaxlake/board",
    "tests/jaxlake/environment/test_conflict_policies.py",
    "tests/jaxlake/runtime/test_triton_backend.py",
    "tests/jaxlake/solver/test_pairs.py",
)
"""Tests of the lake that need neither torch nor vLLM."""


def test_lake_tests_pass_with_other_versions(bin_dir, distributions, work_dir):
    tool_names = ("pytest", "pytest-timeout", "hypothesis", "python-sat")
    requirements = [
        requirement
        for requirement in PROJECT["optional-dependencies"]["test"]
        if requirement.startswith(tool_names)
    ]
    requirements += PROJECT["optional-dependencies"]["sweeps"]
    python = bin_dir / "python"
    version = check_output(python, "-c", "import jax; print(jax.__version__)").strip()
    check_output(
        UV, "pip", "install", "--quiet", "--python", python, f"jax=={version}", *requirements
    )
    copy_checkout(work_dir, "tests", "benchmarks")
    pytest_command = [python, "-m", "pytest", "-q"]
    check_output(*pytest_command, "tests/test_readme.py", "-k", "python_blocks", cwd=work_dir)
    check_output(*pytest_command, "-m", "not slow", *FAST_TESTS, cwd=work_dir)
