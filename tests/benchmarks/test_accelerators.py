"""Measurements and digests of the lake's programs on accelerators."""

import json

import jax
import jax.numpy as jnp
import pytest

from benchmarks.accelerators import session
from benchmarks.accelerators.__main__ import main
from benchmarks.accelerators.measuring import compute_digests, covered_length, profile_kernels
from benchmarks.accelerators.programs import ENVIRONMENT_PROGRAMS, PROGRAMS
from tests.paths import ROOT


def test_measure_prints_and_stores_results_and_digests(tmp_path, capsys):
    path = tmp_path / "here.json"
    options = ["--environments", "4", "--only", "reset-4", "--json", str(path)]
    assert main(["--measure", *options]) == 0
    assert capsys.readouterr().out.startswith("reset-4: ")
    (record,) = json.loads(path.read_text())["programs"]
    assert record["rate"] == pytest.approx(record["units"] / record["seconds"], rel=1e-5)
    program = ENVIRONMENT_PROGRAMS["reset-4"](4)
    assert record["answers"] == compute_digests(jax.jit(program.function)(*program.arguments))


def test_digest_depends_on_bits_dtype_and_shape():
    arrays = {"a": jnp.arange(6, dtype=jnp.int32), "key": jax.random.key(1)}
    digests = compute_digests(arrays)
    assert list(digests) == ["a", "key"]
    assert compute_digests({**arrays}) == digests
    variants = [
        jnp.arange(6, dtype=jnp.int16),
        jnp.arange(6).reshape(2, 3),
        arrays["a"].at[5].set(7),
    ]
    assert len({digests["a"], *(compute_digests({"a": variant})["a"] for variant in variants)}) == 4
    assert compute_digests({**arrays, "key": jax.random.key(2)})["key"] != digests["key"]


def test_overlapping_kernel_time_counts_once():
    assert covered_length([(3.0, 4.0), (0.0, 2.0), (1.0, 1.5), (1.5, 2.5)]) == 3.5
    assert covered_length([]) == 0.0
    assert profile_kernels(lambda: jnp.arange(3) + 1) == {}  # CPUs profile no kernels


def test_compare_reports_each_array(tmp_path, capsys):
    program = ENVIRONMENT_PROGRAMS["step-4"](4)
    digests = compute_digests(jax.jit(program.function)(*program.arguments))
    path = tmp_path / "measured.json"

    def compare_with(stored_digests):
        record = {"name": "step-4", "size": 4, "device": "a GPU", "answers": stored_digests}
        path.write_text(json.dumps({"programs": [record, {"name": "reset-4"}]}))
        return main(["--compare", str(path)])

    assert compare_with(digests) == 0
    assert f"agree in all {len(digests)} arrays\n" in capsys.readouterr().out
    changed_name, *_, missing_name = digests
    changed_digests = {**digests, changed_name: "0" * 16}
    del changed_digests[missing_name]
    assert compare_with(changed_digests) == 1
    assert (
        f"differ in {', '.join(sorted([changed_name, missing_name]))}\n" in capsys.readouterr().out
    )


@pytest.mark.slow
def test_h200_digests_match_this_machine(capsys):
    path = ROOT / "benchmarks/results/h200.json"
    assert {record["name"] for record in json.loads(path.read_text())["programs"]} <= set(PROGRAMS)
    assert main(["--compare", str(path), "--only", "reset-4", "verify-4"]) == 0


@pytest.mark.slow
def test_session_keeps_results_of_every_step(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "TIMEOUTS", dict.fromkeys(session.TIMEOUTS, 800))
    path = tmp_path / "session.json"
    model = "{vocab_size: 480, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2,"
    model += " num_attention_heads: 2, num_key_value_heads: 1, head_dim: 64}"
    settings = ["warm_start.steps=20", "warm_start.instances=512", "stages.instances=64"]
    settings += [f"model.scratch={model}", "validation.per_cell=5", "sampling.max_num_seqs=64"]
    settings += ["environment.initial.sizes={4: {data_ratio: 1, hole_ratio: 0.1, wait_ratio: 0}}"]
    settings += ["environment.bounds.sizes=[4]", "validation.sizes=[4]", "stages.count=2"]
    sizes = ["--sizes", "64", "4", "--attention", "[60, 2, 256, 2, 64]"]
    status = session.main([str(path), *sizes, "--set", *settings])
    steps = {step["name"]: step for step in json.loads(path.read_text())["session"]}
    assert status == 0, steps
    assert set(steps) == {"programs", "answers", "attention", "loop"}
    assert all("agree in all" in line for line in steps["answers"]["lines"])
    assert max(steps["attention"]["triton"]["errors"]) < 0.02
    assert len(steps["loop"]["valid_rates"]) == 2
