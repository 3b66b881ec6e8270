"""The lake's programs on accelerators: measurements, digests of answers, counts of kernels."""

import json
import time

import jax
import jax.numpy as jnp
import pytest

from benchmarks.accelerators import answers
from benchmarks.accelerators.__main__ import main
from benchmarks.accelerators.compiling import launches
from benchmarks.accelerators.measuring import covered, digests, kernels_of, seconds_of
from benchmarks.accelerators.programs import OF_BOARDS, OF_ENVIRONMENTS, PROGRAMS
from benchmarks.results_file import put_record
from tests.paths import ROOT


def test_unknown_programs_are_named(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--measure", "--only", "solve-2", "dance"])
    assert "--only: got 'dance', programs are solve-2" in capsys.readouterr().err


def test_a_measured_program_is_printed_and_kept_with_its_answers(tmp_path, capsys):
    path = tmp_path / "here.json"
    options = ["--environments", "4", "--only", "reset-4", "--json", str(path)]
    assert main(["--measure", *options]) == 0
    assert capsys.readouterr().out.startswith("reset-4: ")
    (record,) = json.loads(path.read_text())["programs"]
    assert record["rate"] == pytest.approx(record["units"] / record["seconds"], rel=1e-5)
    program = OF_ENVIRONMENTS["reset-4"](4)
    assert record["answers"] == digests(jax.jit(program.function)(*program.arguments))


def test_a_program_that_fails_is_a_result(tmp_path, capsys, monkeypatch):
    def fail(size):
        raise RuntimeError("out of memory")

    monkeypatch.setitem(PROGRAMS, "reset-4", fail)
    path = tmp_path / "here.json"
    assert main(["--measure", "--only", "reset-4", "--json", str(path)]) == 1
    assert capsys.readouterr().out == "reset-4: failed: RuntimeError: out of memory\n"
    assert json.loads(path.read_text())["programs"][0]["error"] == "RuntimeError: out of memory"


def test_a_record_replaces_the_one_of_its_name(tmp_path):
    path = tmp_path / "results.json"
    for section, name, rate in (
        ("programs", "b", 1),
        ("updates", "b", 2),
        ("programs", "a", 3),
        ("programs", "b", 4),
    ):
        put_record(path, section, {"name": name, "rate": rate})
    assert json.loads(path.read_text()) == {
        "programs": [{"name": "a", "rate": 3}, {"name": "b", "rate": 4}],
        "updates": [{"name": "b", "rate": 2}],
    }


def test_launches_are_kernels_outside_of_fusions():
    text = """
%fused (p0: s32[8]) -> s32[8] {
  %p0 = s32[8]{0} parameter(0)
  ROOT %r = s32[8]{0} reverse(%p0), dimensions={0}
}

%body (c: (s32[], s32[8])) -> (s32[], s32[8]) {
  %c = (s32[], s32[8]{0}) parameter(0)
  %x = s32[8]{0} get-tuple-element(%c), index=1
  %f = s32[8]{0} fusion(%x), kind=kLoop, calls=%fused
  ROOT %t = (s32[], s32[8]{0}) tuple(%n, %f)
}

ENTRY %main (a: s32[8]) -> s32[8] {
  %a = s32[8]{0} parameter(0)
  %s = (s32[8]{0}, s32[8]{0}) sort(%a, %a), dimensions={0}, to_apply=%compare
  ROOT %w = (s32[], s32[8]{0}) while(%s), condition=%more, body=%body
}
"""
    assert launches(text) == 2


def test_every_call_is_timed_until_its_result_is_there():
    def wait(number):
        time.sleep(0.02)
        return number

    function = jax.jit(lambda x: jax.pure_callback(wait, x, x))
    assert all(seconds >= 0.02 for seconds in seconds_of(lambda: function(jnp.float32(1)), 3))


def test_a_step_returns_all_that_a_learner_reads():
    assert [name for name in OF_BOARDS if name.startswith("generate")] == [
        f"generate-{agents}" for agents in (2, 3, 4, 5)
    ]
    step = OF_ENVIRONMENTS["step-4"](4)
    _, _, reward, terminated, truncated, failure = jax.eval_shape(step.function, *step.arguments)
    assert reward.dtype == jnp.float32
    assert terminated.dtype == truncated.dtype == bool
    assert len({leaf.shape[0] for leaf in (reward, terminated, truncated, failure)}) == 1


def test_digests_tell_arrays_apart_by_any_bit_type_and_shape():
    given = {"a": jnp.arange(6, dtype=jnp.int32), "key": jax.random.key(1)}
    same = digests(given)
    assert list(same) == ["a", "key"]
    assert digests({**given}) == same
    others = [jnp.arange(6, dtype=jnp.int16), jnp.arange(6).reshape(2, 3), given["a"].at[5].set(7)]
    assert len({same["a"], *(digests({"a": other})["a"] for other in others)}) == 4
    assert digests({**given, "key": jax.random.key(2)})["key"] != same["key"]


def test_time_in_which_kernels_overlap_counts_once():
    assert covered([(3.0, 4.0), (0.0, 2.0), (1.0, 1.5), (1.5, 2.5)]) == 3.5
    assert covered([]) == 0.0
    assert kernels_of(lambda: jnp.arange(3) + 1) == {}  # CPUs profile no kernels


def test_answers_are_compared_array_by_array(tmp_path, capsys):
    program = OF_ENVIRONMENTS["step-4"](4)
    own = digests(jax.jit(program.function)(*program.arguments))
    path = tmp_path / "measured.json"

    def compare(answered):
        record = {"name": "step-4", "size": 4, "device": "a GPU", "answers": answered}
        path.write_text(json.dumps({"programs": [record, {"name": "reset-4"}]}))
        return answers.main(["--json", str(path)])

    assert compare(own) == 0
    assert f"agree in all {len(own)} arrays\n" in capsys.readouterr().out
    wrong, *_, missing = own
    other = {**own, wrong: "0" * 16}
    del other[missing]
    assert compare(other) == 1
    assert f"differ in {', '.join(sorted([wrong, missing]))}\n" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["{", "[]", '{"programs": []}'])
def test_a_file_without_answers_is_refused(text, tmp_path, capsys):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(SystemExit, match="2"):
        answers.main(["--json", str(path)])
    assert f"--json: {path} " in capsys.readouterr().err


@pytest.mark.slow
def test_the_h200_answered_as_this_machine_does(capsys):
    path = ROOT / "benchmarks/results/h200.json"
    assert {one["name"] for one in json.loads(path.read_text())["programs"]} == set(PROGRAMS)
    assert answers.main(["--json", str(path), "--only", "reset-4", "verify-4"]) == 0
