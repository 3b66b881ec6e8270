"""What a forecast says of launches agrees with another way to count them in the compiled text.

`benchmarks.accelerators.hlo` lists the instructions that are kernels. Here it is the other way
round: whatever is not known to cost nothing is a launch. Both read a program that was compiled for
a TPU, which `data/` keeps, and, where the compiler for GPUs is there, what it makes of two others.
"""

import json
import lzma
import os
import re
import subprocess
from collections import Counter

import jax
import jax.numpy as jnp
import pytest

from benchmarks.accelerators import hlo, loops
from benchmarks.accelerators.totals import totals, tree_of
from tests.paths import ROOT

GPU_PYTHON = ROOT / ".venv-gpu/bin/python"
KEPT = ROOT / "tests" / "benchmarks" / "data" / "generate-2-v5e.hlo.xz"
"""`generate` of 64 boards of two agents for a TPU v5e, as XLA printed it. It was made by
`python -m benchmarks.accelerators.worker --target v5e:2x2 --boards 64 --environments 64
--only generate-2 --hlo DIR` in `.venv-tpu`, and `xz` made of it what is kept."""

FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "copy-done"}
"""Instructions that say where something lies or wait for it, and nothing else."""

ON_PURPOSE = {"fusion", "custom-call", "copy", "copy-start", "sort"}
"""Instructions that are launched whatever their size."""

INSTRUCTION = re.compile(r"^ +(?:ROOT )?%(\S+) = (.*?) ([a-z][a-z-]*)\((.*)$")


def _is_number(shape: str) -> bool:
    """Say whether a shape is that of a single number."""
    (sides,) = re.findall(r"^[a-z0-9]+\[([0-9,]*)\]", shape) or ["0"]
    return set(sides.split(",")) <= {"", "1"}


def _count(text: str, rounds: dict[int, int]) -> Counter[str]:
    """Count what a call launches and decides, with the rounds of the numbered loops of all of it.

    Other loops have the rounds that the compiler knows, or make one each time.
    """
    bodies = re.findall(r"^(ENTRY )?%(\S+) .*\{\n((?:  .*\n)+?)\}", text, re.MULTILINE)
    lines = {name: re.sub(r"/\*.*?\*/", "", body).splitlines() for _, name, body in bodies}
    (entry,) = (name for marked, name, _ in bodies if marked)
    total: Counter[str] = Counter()

    def run(name: str, times: int) -> None:
        found = [line for line in map(INSTRUCTION.match, lines[name]) if line]
        shapes = {line[1]: line[2] for line in found}
        for _, shape, operation, rest in map(re.Match.groups, found):
            called = dict(re.findall(r"([a-z_]+)=%([\w.-]+)", rest))
            if operation == "while":
                known = re.search(r'"known_trip_count":\{"n":"(\d+)"', rest)
                number = re.search(r'op_name="[^"]*loop(\d+)_/while"', rest)
                each = times * int(known[1]) if known else times
                each = rounds[int(number[1])] if number else each
                run(called["body"], each)
                if not known:
                    total["decisions"] += each + times
                    run(called["condition"], each + times)
            elif operation == "conditional":
                total["decisions"] += times
                branches = re.search(r"branch_computations=\{([^}]*)\}", rest)
                two = [called.get(f"{side}_computation") for side in ("true", "false")]
                for branch in re.findall(r"%([\w.-]+)", branches[1]) if branches else two:
                    run(branch, times)
            elif operation == "call":
                run(called["to_apply"], times)
            elif operation not in FREE:
                operands = re.findall(r"%([\w.-]+)", rest.split(")")[0])
                numbers = all(map(_is_number, (shape, *(shapes[x] for x in operands))))
                total["launches"] += times * (operation in ON_PURPOSE or not numbers)

    run(entry, 1)
    return total


def _forecast(text: str, rounds: dict[int, int]) -> dict[str, int]:
    """Count the same as a forecast does."""
    found = [loops.Loop(number, f"loop{number}") for number in range(max(rounds, default=-1) + 1)]
    tree = tree_of(hlo.read_program(text), found, [rounds.get(i, 0) for i in range(len(found))])
    total = totals(tree)
    return {"launches": total["launches"], "decisions": total["conditions"]}


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
    assert _count(text, {}) == {"launches": 1 + 3}


@pytest.fixture(scope="module")
def kept():
    """The kept program, other rounds for each of its loops, and what that adds up to."""
    text = lzma.decompress(KEPT.read_bytes()).decode()
    numbers = {int(number) for number in re.findall(r'loop(\d+)_/while"', text)}
    rounds = {number: 3 + 2 * number for number in numbers}
    return text, rounds, _count(text, rounds)


def test_two_ways_to_count_a_kept_program_agree(kept):
    text, rounds, counted = kept
    assert len(rounds) == 9
    assert counted == _forecast(text, rounds)
    assert counted["launches"] > 1000
    # All loops but the outermost run as often as it has rounds, and one more is the compiler's.
    assert counted["decisions"] == sum(rounds.values()) + 1 + 8 * rounds[0] + 2


@pytest.mark.parametrize(
    "forgotten",
    ["fusion", "custom-call", "copy", "copy-start", "sort", "reshape", "reverse", "subtract"],
)
def test_a_reader_that_forgets_a_kind_of_kernel_is_noticed(kept, monkeypatch, forgotten):
    for name in ("KERNELS", "ENTRY_BY_ENTRY"):
        monkeypatch.setattr(hlo, name, getattr(hlo, name) - {forgotten})
    text, rounds, counted = kept
    assert counted != _forecast(text, rounds)


def test_two_ways_to_count_what_is_decided_agree():
    """A loop whose rounds the data say, with a branch in it and a loop of known rounds."""

    def halve(number):
        return jax.lax.fori_loop(0, 3, lambda _, x: jnp.sort(x), number) // 2

    def run(number):
        body = lambda x: jax.lax.cond(x.max() % 2 == 0, halve, lambda x: 3 * x + 1, x)  # noqa: E731
        return jax.lax.while_loop(lambda x: x.max() > 1, body, number)

    numbers = jnp.arange(100, 164)
    trace = jax.make_jaxpr(run)(numbers)
    compiled = jax.jit(loops.with_names(trace)).lower(numbers).compile().as_text()
    assert " conditional(" in compiled
    rounds = {loop.number: 5 + loop.number for loop in loops.loops_of(trace)}
    counted = _count(compiled, rounds)
    assert counted == _forecast(compiled, rounds)
    assert counted["decisions"] == (5 + 1) + 5


@pytest.mark.slow
@pytest.mark.skipif(not GPU_PYTHON.exists(), reason="`make accelerators` sets up the compiler")
def test_two_ways_to_count_what_is_compiled_for_a_gpu_agree(tmp_path):
    command = [GPU_PYTHON, "-m", "benchmarks.accelerators.worker", "--target", "h100:1"]
    command += ["--boards", "1024", "--environments", "1024", "--hlo", tmp_path]
    command += ["--counted-boards", "1024", "--only", "step", "tabulate"]
    own = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | own, capture_output=True, check=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["program"] for record in records] == ["tabulate-4", "step-4"]
    for record in records:
        text = (tmp_path / f"{record['program']}.txt").read_text()
        assert record["launches"] == _count(text, {})["launches"] > 0
