"""Forecasts count what runs: rounds of loops, kernels of their bodies, bytes that are moved."""

import json
import statistics
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from benchmarks.accelerators import answers, loops, worker
from benchmarks.accelerators.__main__ import main, put_into
from benchmarks.accelerators.hlo import read_program
from benchmarks.accelerators.loops import Costs
from benchmarks.accelerators.measuring import _covered, call_seconds, digests, kernels_of
from benchmarks.accelerators.programs import OF_BOARDS, OF_ENVIRONMENTS
from benchmarks.accelerators.samples import Part, Sample, sample_of, scaled
from benchmarks.accelerators.targets import machine_of
from benchmarks.accelerators.worker import count
from jaxlake.solver.chunks import widths_for


def _collatz(numbers):
    """Halve or triple until 1, lane by lane; twice as many additions inside each round."""

    def advance(state):
        number, steps = state
        steps = jax.lax.fori_loop(0, 2, lambda _, s: s + 1, steps)
        odd = jnp.bool_(number % 2 == 1)
        return jax.lax.cond(odd, lambda n: 3 * n + 1, lambda n: n // 2, number), steps

    return jax.lax.while_loop(lambda state: state[0] > 1, advance, (numbers, 0 * numbers))[1]


def _steps(number):
    return 0 if number == 1 else 1 + _steps(3 * number + 1 if number % 2 else number // 2)


def test_rounds_are_counted_for_all_lanes_together_and_change_nothing():
    numbers = jnp.array([6, 27, 1])
    trace = jax.make_jaxpr(jax.jit(jax.vmap(_collatz)))(numbers)
    assert len(loops.loops_of(trace)) == 2
    counts, longest = jax.jit(loops.with_counts(trace, Costs()))(numbers)
    assert counts.tolist() == [_steps(27), 2 * _steps(27)]
    assert longest.shape == (0,)
    (steps,) = loops.with_names(trace)(numbers)
    assert steps.tolist() == [2 * _steps(n) for n in numbers.tolist()]


def test_loops_keep_their_numbers_when_they_are_compiled():
    numbers = jnp.array([6, 27, 1])
    trace = jax.make_jaxpr(jax.vmap(_collatz))(numbers)
    compiled = jax.jit(loops.with_names(trace)).lower(numbers).compile()
    (outer,) = read_program(compiled.as_text()).loops
    assert (outer.number, outer.trips) == (0, None)
    assert outer.launches > 0


def test_bytes_are_those_of_arrays_and_of_a_slice_only_what_it_takes():
    def add_row(table, row):
        return jnp.tanh(jax.lax.dynamic_index_in_dim(table, row, keepdims=False)) + 1

    arguments = jnp.zeros((1000, 64)), jnp.int32(3)
    body = read_program(jax.jit(add_row).lower(*arguments).compile().as_text())
    assert body.launches == 1
    assert 2 * 4 * 64 <= body.bytes <= 2 * 4 * 64 + 16
    doubled = jax.jit(lambda x: x * 2).lower(np.zeros(1 << 20, np.float32)).compile()
    assert read_program(doubled.as_text()).bytes == 2 * 4 << 20


@pytest.mark.parametrize("target", ["h100", "a100:1", "v5e:2x2"])
def test_targets_that_are_not_known_or_not_installed_are_named(
    target, capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr("benchmarks.accelerators.__main__.ROOT", tmp_path)
    assert main(["--target", target]) == 2
    assert f"--target{' ' if target == 'v5e:2x2' else ': got '}" in capsys.readouterr().err


def test_programs_that_are_not_known_are_named(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.accelerators.__main__._python_for", lambda target: tmp_path)
    assert main(["--target", "h100:1", "--only", "solve-2", "dance"]) == 2
    assert "--only: got 'dance', programs are solve-2" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--target", "h100:1", "--boards", "0"])
    assert "got 0, at least 1" in capsys.readouterr().err


def test_a_program_measured_again_takes_its_place_and_all_others_stay(tmp_path):
    def result(target, price, *programs, boards=64):
        records = [{"program": name, "rate": rate} for name, rate in programs]
        one = {"assumptions": {"launch": price}, "programs": records}
        return {"schema": 1, "boards": boards, "environments": 8, "targets": {target: one}}

    path = tmp_path / "results.json"

    def rates(target):
        programs = json.loads(path.read_text())["targets"][target]["programs"]
        return {one["program"]: one["rate"] for one in programs}

    put_into(path, result("h100:1", 4, ("solve-2", 1), ("step-4", 2)))
    put_into(path, result("v5e:2x2", 2, ("solve-2", 3)))
    put_into(path, result("h100:1", 4, ("solve-3", 5), ("step-4", 4)))
    assert list(rates("h100:1").items()) == [("solve-2", 1), ("solve-3", 5), ("step-4", 4)]
    assert rates("v5e:2x2") == {"solve-2": 3}
    put_into(path, result("h100:1", 4, ("solve-2", 1), ("the rest", 0)))  # its compiler died
    assert list(rates("h100:1")) == ["solve-2", "solve-3", "step-4", "the rest"]
    put_into(path, result("h100:1", 5, ("solve-3", 6)))  # other assumptions
    assert rates("h100:1") == {"solve-3": 6}
    put_into(path, result("h100:1", 5, ("solve-4", 7), boards=128))
    assert list(json.loads(path.read_text())["targets"]) == ["h100:1"]
    assert rates("h100:1") == {"solve-4": 7}


def test_bytes_of_a_scatter_are_its_updates():
    text = """
%fused (p0: s32[1000,64], p1: s32[8,1], p2: s32[8,64]) -> s32[1000,64] {
  %p0 = s32[1000,64]{1,0} parameter(0)
  %p1 = s32[8,1]{1,0} parameter(1)
  %p2 = s32[8,64]{1,0} parameter(2)
  ROOT %s = s32[1000,64]{1,0} scatter(%p0, %p1, %p2), to_apply=%add
}

ENTRY %main (a: s32[1000,64], b: s32[8,1], c: s32[8,64]) -> s32[1000,64] {
  %a = s32[1000,64]{1,0} parameter(0)
  %b = s32[8,1]{1,0} parameter(1)
  %c = s32[8,64]{1,0} parameter(2)
  ROOT %f = s32[1000,64]{1,0} fusion(%a, %b, %c), kind=kInput, calls=%fused
}
"""
    body = read_program(text)
    assert (body.launches, body.bytes) == (1, 8 * 4 + 2 * 8 * 64 * 4)


@pytest.mark.parametrize(
    ("slices", "read"),
    [
        ("  ROOT %r = f32[4,8]{1,0} slice(%d), slice={[0:4], [0:8]}\n", 4 * 8),
        ("  ROOT %r = f32[1,8]{1,0} dynamic-slice(%d, %i, %i), dynamic_slice_sizes={1,8}\n", 8),
        ("  ROOT %r = f32[8]{0} reduce(%d, %c), dimensions={0}, to_apply=%add\n", 1000 * 8),
        ("  ROOT %r = f32[1000,8]{1,0} negate(%d)\n", 1000 * 8),
    ],
)
def test_of_what_is_sliced_later_only_the_slice_is_read(slices, read):
    """Also behind a change of shape and behind what is done entry by entry."""
    shape = slices.split(" = ")[1].split("{")[0]
    text = f"""
%fused (p0: f32[8000], p1: s32[]) -> {shape} {{
  %p0 = f32[8000]{{0}} parameter(0)
  %i = s32[] parameter(1)
  %c = f32[] constant(2)
  %b = f32[1000,8]{{1,0}} bitcast(%p0)
  %two = f32[1000,8]{{1,0}} broadcast(%c), dimensions={{}}
  %d = f32[1000,8]{{1,0}} multiply(%b, %two)
{slices}}}

ENTRY %main (a: f32[8000], i: s32[]) -> {shape} {{
  %a = f32[8000]{{0}} parameter(0)
  %i = s32[] parameter(1)
  ROOT %f = {shape} fusion(%a, %i), kind=kLoop, calls=%fused
}}
"""
    written = {"f32[4,8]": 32, "f32[1,8]": 8, "f32[8]": 8, "f32[1000,8]": 8000}[shape]
    used = 4 * ("%i" in slices)
    assert read_program(text).bytes == 4 * (read + written) + used


def test_an_array_that_is_written_in_place_behind_a_change_of_shape_isnt_read():
    text = """
%fused (p0: f32[8000], p1: f32[8], p2: s32[]) -> f32[1000,8] {
  %p0 = f32[8000]{0} parameter(0)
  %b = f32[1000,8]{1,0} bitcast(%p0)
  %p1 = f32[8]{0} parameter(1)
  %n = f32[1,8]{1,0} bitcast(%p1)
  %p2 = s32[] parameter(2)
  ROOT %u = f32[1000,8]{1,0} dynamic-update-slice(%b, %n, %p2, %p2)
}

ENTRY %main (a: f32[8000], b: f32[8], i: s32[]) -> f32[1000,8] {
  %a = f32[8000]{0} parameter(0)
  %b = f32[8]{0} parameter(1)
  %i = s32[] parameter(2)
  ROOT %f = f32[1000,8]{1,0} fusion(%a, %b, %i), kind=kLoop, calls=%fused
}
"""
    assert read_program(text).bytes == 4 * (8 + 8) + 4


def test_kernels_are_opaque_but_their_rounds_are_counted():
    def collatz(numbers, steps):
        def advance(state):
            number, count = state
            odd = jnp.where(number > 1, 3 * number + 1, number)
            half = jnp.where(number & 1 == 1, odd, number >> 1)
            return half, count + jnp.where(number > 1, 1, 0)

        number = numbers[...]
        state = (number, 0 * number)
        unfinished = lambda state: jnp.max(state[0]) > 1  # noqa: E731
        steps[...] = jax.lax.while_loop(unfinished, advance, state)[1]

    def run(numbers):
        spec = pl.BlockSpec((1,), lambda i: (i,))
        shape = jax.ShapeDtypeStruct(numbers.shape, numbers.dtype)
        call = pl.pallas_call(
            collatz, grid=(3,), in_specs=[spec], out_specs=spec, out_shape=shape, interpret=True
        )
        return jax.lax.fori_loop(0, 2, lambda _, x: call(x) + 1, numbers)

    numbers = jnp.array([6, 27, 1])
    trace = jax.make_jaxpr(run)(numbers)
    counts, longest = jax.jit(loops.with_counts(trace, Costs()))(numbers)
    first = [_steps(n) for n in numbers.tolist()]
    second = [_steps(n + 1) for n in first]
    assert counts.tolist() == [2, 2 * 3, sum(first) + sum(second)]
    (kernel,) = loops.kernels_of(trace).values()
    programs, body = loops.operations_of(kernel, Costs())
    assert programs > 0
    assert 9 <= body <= 12
    assert longest.tolist() == [2 * programs + (max(first) + max(second)) * body]


def test_a_round_of_a_kernel_waits_once_for_what_it_loads():
    def add_up(table, total):
        def add(i, so_far):
            return so_far + table[i] + table[i + 1]

        total[...] = jax.lax.fori_loop(0, 3, add, jnp.zeros(4, jnp.int32))

    def run(table):
        shape = jax.ShapeDtypeStruct((4,), jnp.int32)
        return pl.pallas_call(add_up, out_shape=shape, interpret=True)(table)

    (kernel,) = loops.kernels_of(jax.make_jaxpr(run)(jnp.ones((4, 4), jnp.int32))).values()
    program, body = loops.operations_of(kernel, Costs())
    assert loops.operations_of(kernel, Costs(wait=50)) == [program, body + 50]
    assert body == 4


def test_what_says_where_lanes_read_is_no_operation():
    def gather(table, result):
        lanes = jax.lax.broadcasted_iota(jnp.int32, (4,), 0)
        result[...] = table[pl.program_id(0), lanes]

    def run(table):
        shape = jax.ShapeDtypeStruct((4,), jnp.int32)
        return pl.pallas_call(gather, out_shape=shape, grid=(1,), interpret=True)(table)

    (kernel,) = loops.kernels_of(jax.make_jaxpr(run)(jnp.ones((4, 4), jnp.int32))).values()
    # The numbers of the lanes, what they read, and what they write.
    assert loops.operations_of(kernel, Costs()) == [3]


@pytest.mark.parametrize(("warps", "operations"), [(1, 6 * 8 + 2 * 50 + 15), (8, 6 + 2 * 50 + 33)])
def test_operations_are_instructions_of_a_warp_and_what_it_waits_for(warps, operations):
    def largest(table, result):
        result[...] = table[0] + 1
        triton.debug_barrier()
        result[...] = jnp.broadcast_to(jnp.max(table[1]), (256,))

    def run(table):
        shape, params = (
            jax.ShapeDtypeStruct((256,), jnp.int32),
            triton.CompilerParams(num_warps=warps),
        )
        return pl.pallas_call(largest, out_shape=shape, compiler_params=params)(table)

    # In 8 warps the largest number is stored, loaded after a barrier (18) and compared once more.
    sample = Sample(run, (Part((jnp.ones((2, 256), jnp.int32),), 10.0),), 1)
    _, (work,) = count(sample, [], machine_of("h100:1"))
    assert (work.longest, work.operations) == (operations, 10 * warps * operations)


def test_a_smaller_machine_has_as_many_chunks_and_never_one_crowded_board_at_a_time():
    whole = widths_for("gpu")
    smaller = scaled(whole, 1 / 32)
    assert smaller.planned_boards * 32 == whole.planned_boards
    assert smaller.loop_bytes * 32 == whole.loop_bytes
    assert (smaller.kernels, smaller.crowded_boards) == (whole.kernels, 2)
    assert [smaller.node_lanes, scaled(replace(whole, node_lanes=1), 0.5).node_lanes] == [8, 1]
    assert scaled(widths_for("cpu"), 1 / 1024).tree_lanes == 1


@pytest.mark.slow
def test_a_sample_of_solve_stands_for_all_boards_and_has_the_hardest_apart(monkeypatch):
    monkeypatch.setattr("benchmarks.accelerators.samples.HARDEST", 4)
    program = OF_BOARDS["solve-2"](64)
    assert sample_of(program, 64, widths_for("cpu")).boards is None
    sample = sample_of(program, 16, widths_for("cpu"))
    (others, weight), (hard, one) = ((p.arguments[0], p.weight) for p in sample.parts)
    assert (sample.boards, sample.hardest, one) == (16, 4, 1)
    assert 16 * weight + 4 * one == program.units
    assert hard.agent_mask.any(-1).tolist() == [True] * 4 + [False] * 12
    all_boards, few, most = (
        sample.function(b).expansions for b in (*program.arguments, others, hard)
    )
    assert sorted(most.tolist()[:4]) == sorted(all_boards.tolist())[-4:]
    assert max(few.tolist()) <= min(most.tolist()[:4])


def test_rounds_of_a_sample_are_the_most_of_its_parts_and_kernels_are_scaled_up():
    numbers = [jnp.array([6, 1, 1]), jnp.array([27, 1, 1])]
    sample = Sample(jax.vmap(_collatz), tuple(Part((x,), 2.0) for x in numbers), 3)
    loops_of_call = loops.loops_of(jax.make_jaxpr(jax.vmap(_collatz))(jnp.zeros(9, jnp.int32)))
    rounds, work = count(sample, loops_of_call, machine_of("h100:1"))
    assert (rounds, work) == ([_steps(27), 2 * _steps(27)], [])
    with pytest.raises(ValueError, match="other loops"):
        count(sample, loops_of_call[:1], machine_of("h100:1"))


SMALL = ["--target", "h100:1", "--boards", "4", "--environments", "4", "--only", "reset-4"]


@pytest.mark.slow
def test_a_measurement_stands_beside_the_forecast_of_the_same_call(tmp_path, monkeypatch, capsys):
    counted = {"launches": 9, "bytes": 8, "conditions": 0, "units": 4, "unit": "environment"}
    counted |= {"compile_seconds": 0.5, "argument_bytes": 1, "temporary_bytes": 1}
    counted |= {"uncounted_loops": 0, "counted_boards": None, "hardest_boards": 0}
    counted |= {"kernels": [], "took_seconds": 1.0}
    counted |= {"tree": {"launches": 9, "bytes": 8, "conditions": 0, "loops": []}}
    module = "benchmarks.accelerators.__main__."
    monkeypatch.setattr(f"{module}_python_for", lambda target: tmp_path)
    monkeypatch.setattr(f"{module}_records", lambda *_: iter([{"program": "reset-4", **counted}]))
    monkeypatch.setattr(f"{module}require_device", lambda target: None)
    file = tmp_path / "results.json"

    def record():
        (program,) = json.loads(file.read_text())["targets"]["h100:1"]["programs"]
        return program

    assert main([*SMALL, "--json", str(file)]) == 0
    forecast_only = record()
    assert main([*SMALL, "--json", str(file), "--measure"]) == 0
    both = record()
    measured = both["measured"]
    assert {name: both[name] for name in forecast_only} == forecast_only
    assert measured["device"] == jax.devices()[0].device_kind
    assert measured["jax"] == jax.__version__
    assert measured["commit"]
    assert measured["rate"] == 4 / measured["seconds"]
    assert measured["seconds"] == statistics.median(measured["call_seconds"])
    (names, cells) = (
        line
        for line in capsys.readouterr().out.splitlines()
        if line.endswith("| measured |") or "environments/s on" in line
    )
    assert names.count("|") == cells.count("|")
    assert "0.04 ms, 111,111 environments/s | " in cells
    assert f"environments/s on {measured['device']} (compiled in " in cells
    assert main([*SMALL, "--json", str(file)]) == 0
    assert record()["measured"] == measured
    assert main([*SMALL, "--measure"]) == 0
    assert "| reset-4 | not forecast |" in capsys.readouterr().out


def test_a_program_that_fails_on_the_device_is_said_and_its_forecast_stays(
    tmp_path, monkeypatch, capsys
):
    def fail(program):
        raise RuntimeError("out of memory")

    monkeypatch.setattr("benchmarks.accelerators.__main__.require_device", lambda target: None)
    monkeypatch.setattr("benchmarks.accelerators.__main__.OnDevice", fail)
    assert main([*SMALL, "--measure"]) == 1
    assert "| failed: RuntimeError: out of memory |" in capsys.readouterr().out


def test_without_the_targets_device_nothing_is_measured(capsys, tmp_path):
    file = tmp_path / "results.json"
    assert main([*SMALL, "--measure", "--json", str(file)]) == 2
    assert capsys.readouterr().err == (
        "error: --measure: got JAX on cpu here, h100:1 needs it on gpu\n"
    )
    assert not file.exists()


def test_every_call_is_timed_until_its_result_is_there():
    def slow(wait):
        time.sleep(wait)
        return jnp.zeros(2)

    seconds = call_seconds(slow, (0.01,), 3)
    assert len(seconds) == 3
    assert min(seconds) >= 0.01


def test_a_forecast_names_the_commit_and_the_version_of_jax(monkeypatch, capsys):
    monkeypatch.setattr(worker, "devices", lambda target: jax.devices())
    monkeypatch.setattr("sys.argv", ["worker", *SMALL])
    assert worker.main() == 0
    record = json.loads(capsys.readouterr().out)
    assert "error" not in record
    assert record["jax"] == jax.__version__
    assert len(record["commit"].rstrip("+")) == 40


def test_programs_are_made_for_every_number_of_agents_and_a_step_gives_all_that_a_learner_reads():
    assert [name for name in OF_BOARDS if name.startswith("generate")] == [
        f"generate-{agents}" for agents in (2, 3, 4, 5)
    ]
    step = OF_ENVIRONMENTS["step-4"](4)
    _, _, reward, terminated, truncated, failure = jax.eval_shape(step.function, *step.arguments)
    assert reward.dtype == jnp.float32
    assert terminated.dtype == truncated.dtype == bool
    assert len({leaf.shape[0] for leaf in (reward, terminated, truncated, failure)}) == 1


def test_digests_tell_arrays_apart_by_any_bit_their_type_and_their_shape():
    given = {"a": jnp.arange(6, dtype=jnp.int32), "key": jax.random.key(1)}
    same = digests(given)
    assert list(same) == ["a", "key"]
    assert digests({**given}) == same
    others = [jnp.arange(6, dtype=jnp.int16), jnp.arange(6).reshape(2, 3), given["a"].at[5].set(7)]
    assert len({same["a"], *(digests({"a": other})["a"] for other in others)}) == 4
    assert digests({**given, "key": jax.random.key(2)})["key"] != same["key"]


def test_time_in_which_kernels_run_side_by_side_counts_once():
    assert _covered(iter([(3.0, 4.0), (0.0, 2.0), (1.0, 1.5), (1.5, 2.5)])) == 3.5
    assert _covered(iter([])) == 0.0


def test_a_device_that_profiles_no_kernels_says_nothing_of_them():
    assert kernels_of(lambda: jnp.arange(3) + 1) == {}


def _answered(folder, answers):
    """Write a file in which a device has answered `step-4` and nothing else."""
    program = {"program": "step-4", "measured": {"device": "a GPU", "answers": answers}}
    path = folder / "measured.json"
    targets = {"h100:1": {"programs": [program, {"program": "reset-4"}]}}
    path.write_text(json.dumps({"boards": 4, "environments": 4, "targets": targets}))
    return path


def test_what_a_device_answered_is_compared_array_by_array(tmp_path, capsys):
    program = OF_ENVIRONMENTS["step-4"](4)
    own = digests(jax.jit(program.function)(*program.arguments))
    here = jax.devices()[0].device_kind
    assert answers.main(["--json", str(_answered(tmp_path, own))]) == 0
    said = f"h100:1 step-4: a GPU and {here} are the same, all {len(own)} arrays\n"
    assert capsys.readouterr().out == said
    wrong, *_, missing = own
    other = {**own, wrong: "0" * 16}
    del other[missing]
    assert answers.main(["--json", str(_answered(tmp_path, other))]) == 1
    assert f"differ in {', '.join(sorted([wrong, missing]))}\n" in capsys.readouterr().out


def test_a_file_without_answers_is_refused(tmp_path, capsys):
    path = _answered(tmp_path, {})
    assert answers.main(["--json", str(path), "--only", "solve-2"]) == 2
    assert f"--json: {path} holds no answers of these programs" in capsys.readouterr().err
    assert answers.main(["--json", str(tmp_path / "none.json")]) == 2


@pytest.mark.parametrize("text", ["{", "[]", '{"targets": {}}', '{"targets": {"h100:1": {}}}'])
def test_a_file_that_is_damaged_or_of_something_else_is_named(text, tmp_path, capsys):
    path = tmp_path / "other.json"
    path.write_text(text)
    assert answers.main(["--json", str(path)]) == 2
    assert f"error: --json: {path} is no file of --measure (" in capsys.readouterr().err
