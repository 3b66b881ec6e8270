"""What a forecast says of launches agrees with another way to count them in the compiled text.

`benchmarks.accelerators.hlo` lists the instructions that are kernels. Here it is the other way
round: whatever is not known to cost nothing is a launch. Needs the compiler for GPUs.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GPU_PYTHON = ROOT / ".venv-gpu/bin/python"

FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}
"""Instructions that say where something lies, and nothing else."""

INSTRUCTION = re.compile(r"^ +(?:ROOT )?%\S+ = .*? ([a-z][a-z-]*)\(")


def _launches(text: str) -> int:
    """Count launches of a program in which every loop has known rounds and nothing is decided."""
    bodies = re.findall(r"^(ENTRY )?%(\S+) .*\{\n((?:  .*\n)+)\}", text, re.MULTILINE)
    lines = {name: body.splitlines() for _, name, body in bodies}
    (entry,) = (name for marked, name, _ in bodies if marked)

    def of(name: str) -> int:
        total = 0
        for line in lines[name]:
            operation = INSTRUCTION.match(re.sub(r"/\*.*?\*/", "", line)).group(1)
            if operation == "while":
                rounds = int(re.search(r'"known_trip_count":\{"n":"(\d+)"', line).group(1))
                total += rounds * of(re.search(r"body=%([\w.-]+)", line).group(1))
            elif operation == "call":
                total += of(re.search(r"to_apply=%([\w.-]+)", line).group(1))
            else:
                assert operation != "conditional"
                total += operation not in FREE
        return total

    return of(entry)


def test_launches_of_a_loop_are_those_of_all_its_rounds():
    text = """
%body (p: (s32[], s32[8])) -> (s32[], s32[8]) {
  %p = (s32[], s32[8]{0}) parameter(0)
  %one = s32[8]{0} get-tuple-element(%p), index=1
  %f = (s32[], /*index=1*/s32[8]{0}) fusion(%one), kind=kLoop, calls=%fused
}

ENTRY %main (a: s32[8]) -> s32[8] {
  %a = s32[8]{0} parameter(0)
  %c = s32[8]{0} copy(%a)
  %w = (s32[], s32[8]{0}) while(%c), body=%body, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %r = s32[8]{0} get-tuple-element(%w), index=1
}
"""
    assert _launches(text) == 1 + 3


@pytest.mark.slow
@pytest.mark.skipif(not GPU_PYTHON.exists(), reason="`make accelerators` sets up the compiler")
def test_two_ways_to_count_launches_agree(tmp_path):
    command = [GPU_PYTHON, "-m", "benchmarks.accelerators.worker", "--target", "h100:1"]
    command += ["--boards", "1024", "--environments", "1024", "--hlo", tmp_path]
    command += ["--counted-boards", "1024", "--only", "step", "tabulate"]
    own = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | own, capture_output=True, check=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["program"] for record in records] == ["tabulate-4", "step-4"]
    for record in records:
        text = (tmp_path / f"{record['program']}.txt").read_text()
        assert record["launches"] == _launches(text) > 0
