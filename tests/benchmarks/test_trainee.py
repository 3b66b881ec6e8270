"""Forecasts of the trainee count what its compiled update computes, keeps and exchanges."""

import dataclasses
import json
import re
import statistics

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.trainee import measuring
from benchmarks.trainee.__main__ import chip_count, forecast, held_record, main, put_into
from benchmarks.trainee.attention_kernels import kernel_flops
from benchmarks.trainee.program import Pace, forbidden_arrays, product_flops, read_traffic
from benchmarks.trainee.tables import BEGIN, END, PAGE, table
from benchmarks.trainee.update import MODELS, Work, shapes_of
from tests.commands import cli as cli
from tests.paths import ROOT
from training.errors import UserError
from training.policy.architectures import DecoderConfig
from training.run.compiled_update import compile_for, require_target, update_shape
from training.run.dry_run import KNOWN_SHAPES
from training.schema import load

PACE = Pace(flops=1e12, attention=1e11, bandwidth=1e9, launch=1e-6, sent=1e8)
COUNTS = {"micro_batches": 3, "devices": 8}
TINY = Work(DecoderConfig(64, 32, 48, 2, 4, 2, head_dim=8), 1, 8, 2, 16, 3, 1, 1)


def test_products_are_counted_alike_before_and_after_compilation():
    def layers(states, kernels):
        def layer(states, kernel):
            return jnp.tanh(states @ kernel), None

        return jax.lax.scan(layer, states, kernels)[0].sum()

    shapes = jnp.zeros((4, 64)), jnp.zeros((5, 64, 64))
    traced = jax.jit(jax.grad(layers, argnums=1)).trace(*shapes)
    expected = 3 * 5 * 2 * 4 * 64 * 64 - 2 * 4 * 64 * 64  # the first states have no gradient
    counted = product_flops(traced.jaxpr, **COUNTS)
    assert expected <= counted <= 3 * 5 * 2 * 4 * 64 * 64
    compiled = read_traffic(traced.lower().compile().as_text(), PACE, **COUNTS)
    assert compiled.flops == counted
    assert compiled.product_seconds > 0


def test_a_product_of_the_tpu_s_kind_counts_what_is_multiplied():
    plain = """\
ENTRY %main (a: f32[8,32], b: f32[32,16]) -> f32[8,16] {
  %a = f32[8,32]{1,0} parameter(0)
  %b = f32[32,16]{1,0} parameter(1)
  ROOT %c = f32[8,16]{1,0} convolution(%a, %b), dim_labels=bf_io->bf
}
"""
    batched = """\
ENTRY %main (a: f32[5,8,32], b: f32[5,32,16]) -> f32[5,8,16] {
  %a = f32[5,8,32]{2,1,0} parameter(0)
  %b = f32[5,32,16]{2,1,0} parameter(1)
  ROOT %c = f32[5,8,16]{2,1,0} convolution(%a, %b), \
window={size=5 stride=4 lhs_dilate=5}, dim_labels=0bf_0io->0bf
}
"""
    # The same product again, with the axis of a batch as a window over padding.
    padded = """\
ENTRY %main (a: f32[8,32,1], b: f32[5,16,32]) -> f32[5,8,16] {
  %a = f32[8,32,1]{1,0,2} parameter(0)
  %b = f32[5,16,32]{2,1,0} parameter(1)
  ROOT %c = f32[5,8,16]{2,1,0} convolution(%a, %b), \
window={size=5 pad=4_4 rhs_reversal=1}, dim_labels=bf0_0oi->0bf
}
"""
    assert read_traffic(padded, PACE, **COUNTS).flops == 5 * 2 * 8 * 32 * 16
    assert read_traffic(plain, PACE, **COUNTS).flops == 2 * 8 * 32 * 16
    assert read_traffic(batched, PACE, **COUNTS).flops == 5 * 2 * 8 * 32 * 16


def test_loops_count_to_the_constant_of_their_condition():
    text = """\
%until (s: (s32[], f32[8,4])) -> pred[] {
  %s = (s32[], f32[8,4]{1,0}) parameter(0)
  %n = s32[] constant(7)
  %i = s32[] get-tuple-element(%s), index=0
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}
%body (s: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %s = (s32[], f32[8,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[8,4]{1,0} get-tuple-element(%s), index=1
  %y = f32[8,4]{1,0} copy(%x)
  ROOT %t = (s32[], f32[8,4]{1,0}) tuple(%i, %y)
}
ENTRY %main (s: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %s = (s32[], f32[8,4]{1,0}) parameter(0)
  ROOT %w = (s32[], f32[8,4]{1,0}) while(%s), condition=%until, body=%body
}
"""
    assert read_traffic(text, PACE, **COUNTS).launches == 7
    unknown = text.replace("constant(7)", "get-tuple-element(%s), index=0")
    assert read_traffic(unknown, PACE, **COUNTS).launches == COUNTS["micro_batches"]


@pytest.mark.parametrize(
    ("name", "products", "axes"),
    [("flash_forward", 2, (0, 1, 2, 3)), ("splash_mha_dkv_segmented", 4, (0, 2, 1, 3))],
)
def test_a_kernel_for_attention_counts_the_blocks_up_to_the_diagonal(name, products, axes):
    query, key = ((3, 1024, 4, 64), (3, 1280, 2, 64))
    shapes = [",".join(str(shape[axis]) for axis in axes) for shape in (query, key)]
    text = f"""\
ENTRY %main (q: bf16[{shapes[0]}], k: bf16[{shapes[1]}]) -> bf16[{shapes[0]}] {{
  %q = bf16[{shapes[0]}]{{3,2,1,0}} parameter(0)
  %k = bf16[{shapes[1]}]{{3,2,1,0}} parameter(1)
  ROOT %c = bf16[{shapes[0]}]{{3,2,1,0}} custom-call(%q, %k), metadata={{op_name="jit/{name}/call"}}
}}
"""
    block = 64 if "flash" in name else 512
    pairs = sum(256 + (row // block + 1) * block for row in range(1024))
    found = read_traffic(text, PACE, **COUNTS)
    assert found.flops == 2 * 3 * 4 * 64 * products * pairs
    assert found.attention_seconds == found.flops / PACE.attention
    assert found.product_seconds == found.other_seconds == 0
    assert kernel_flops(name, [(8, 128), (8, 128)]) == 0  # a call that moves what a kernel takes


def test_gradients_of_queries_are_counted_as_a_part_of_what_their_kernel_may_write():
    text = """\
ENTRY %main (s: bf16[3,4,1280,256], k: bf16[3,1280,2,64], q: bf16[3,1024,4,64]) -> bf16[3,1024,4,64] {
  %s = bf16[3,4,1280,256]{3,2,1,0} parameter(0)
  %k = bf16[3,1280,2,64]{3,2,1,0} parameter(1)
  %q = bf16[3,1024,4,64]{3,2,1,0} parameter(2)
  ROOT %c = bf16[3,1024,4,64]{3,2,1,0} custom-call(%s, %k, %q), metadata={op_name="flash_by_query_in_4/call"}
}
"""  # noqa: E501
    pairs = 3 * 4 * sum(256 + (row // 128 + 1) * 128 for row in range(1024))
    found = read_traffic(text, PACE, **COUNTS)
    assert found.flops == 2 * 64 * pairs / 4
    moved = 2 * (pairs / 4 + 3 * 1280 * 2 * 64 + 3 * 256 * 4 * 64)  # bfloat16
    assert found.attention_seconds == max(found.flops / PACE.attention, moved / PACE.bandwidth)
    slow = dataclasses.replace(PACE, bandwidth=1e6)
    assert read_traffic(text, slow, **COUNTS).attention_seconds == moved / slow.bandwidth


def test_a_kernel_on_tpus_is_read_past_its_attributes_of_several_lines():
    text = """\
ENTRY %main (m: s8[1,1,1], q: bf16[4,512,64], k: bf16[2,512,64]) -> bf16[4,512,64] {
  %m = s8[1,1,1]{2,1,0} parameter(0)
  %q = bf16[4,512,64]{2,1,0} parameter(1)
  %k = bf16[2,512,64]{2,1,0} parameter(2)
  %c = bf16[4,512,64]{2,1,0} custom-call(%m, %q, %k), frontend_attributes={kernel_metadata={
"xprof_metadata":"{}"
}}, metadata={op_name="jit/splash_mha_fwd_segmented/call"}
  ROOT %d = bf16[4,512,64]{2,1,0} copy(%c)
}
"""
    found = read_traffic(text, PACE, **COUNTS)
    assert found.launches == 2
    assert found.flops == 2 * 4 * 64 * 2 * 512 * 512  # a row: two products of its block of keys
    assert found.other_seconds > 0


def test_what_devices_send_is_counted_in_every_round_of_a_loop():
    text = """\
%body (s: (f32[8,4])) -> (f32[8,4]) {
  %s = (f32[8,4]{1,0}) parameter(0)
  %x = f32[8,4]{1,0} get-tuple-element(%s), index=0
  %all = f32[64,4]{1,0} all-gather(%x), dimensions={0}
  %part = f32[8,4]{1,0} reduce-scatter(%all), dimensions={0}
  ROOT %t = (f32[8,4]{1,0}) tuple(%part)
}

ENTRY %main (s: (f32[8,4])) -> (f32[8,4]) {
  %s = (f32[8,4]{1,0}) parameter(0)
  ROOT %w = (f32[8,4]{1,0}) while(%s), condition=%cond, body=%body, \
backend_config={"known_trip_count":{"n":"6"}}
}
"""
    found = read_traffic(text, PACE, **COUNTS)
    assert found.collectives == {"all-gather": 6, "reduce-scatter": 6}
    assert found.sent == {"all-gather": 6 * 128 * 7, "reduce-scatter": 6 * 1024 * 7 / 8}
    assert found.waiting_seconds == pytest.approx(6 * 256 * 7 / 1e8)  # nothing runs beside them


_ASYNC = """\
ENTRY %main (a: f32[1000,4], b: f32[100000]) -> f32[100000] {
  %a = f32[1000,4]{1,0} parameter(0)
  %b = f32[100000]{0} parameter(1)
  %one = (f32[1000,4]{1,0}, f32[8000,4]{1,0}) all-gather-start(%a), dimensions={0}
  %two = (f32[1000,4]{1,0}, f32[8000,4]{1,0}) all-gather-start(%a), dimensions={0}
  %kernel = f32[100000]{0} copy(%b)
  %one.done = f32[8000,4]{1,0} all-gather-done(%one)
  %two.done = f32[8000,4]{1,0} all-gather-done(%two)
  ROOT %last = f32[100000]{0} copy(%kernel)
}
"""


@pytest.mark.parametrize(
    ("text", "waited"),
    [
        # Two exchanges of 1.12 ms, one after the other, beside a kernel of 0.8 ms.
        (_ASYNC, 2 * 1.12e-3 - 0.8e-3),
        (_ASYNC.replace("f32[100000]", "f32[1000000]"), 0.0),  # of 8 ms
        (_ASYNC.replace(", dimensions", ', c={"is_sync":true}, dimensions'), 2 * 1.12e-3),
    ],
    ids=["longer than the kernels", "hidden", "not split"],
)
def test_an_exchange_runs_beside_the_kernels_between_its_start_and_its_end(text, waited):
    found = read_traffic(text, PACE, **COUNTS)
    assert found.sent == {"all-gather": 2 * 16_000 * 7}
    assert found.waiting_seconds == pytest.approx(waited)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ("f32[2,16,64]", "logits"),
        ("bf16[64,32]", None),  # the output embedding
        ("f32[2,4,64]", None),  # a chunk
        ("f32[2,4,16,24]", "scores"),
        ("bf16[24,16]", "scores"),
        ("f32[2,4,8,8]", None),  # a block
        ("pred[16,24]", None),
    ],
)
def test_logits_and_scores_of_whole_sequences_are_found(shape: str, kind: str | None):
    found = forbidden_arrays(
        f"  %x = {shape}{{1,0}} fusion(%y)", vocabulary={64}, hidden={32}, queries=16, keys=24
    )
    assert [name for name, shapes in found.items() if shapes] == ([kind] if kind else [])


def test_the_model_s_operations_are_those_of_its_products_with_nothing_computed_twice():
    """Without remat, of one micro-batch: what is computed beyond are pairs that may not attend."""
    work = dataclasses.replace(TINY, micro_batches=1, dtype="float32", remat=False)
    step, state, batch = shapes_of(work, jax.devices()[:1])
    counts = {"micro_batches": 1, "devices": 1}
    computed = product_flops(step.trace(state, batch).jaxpr, **counts)
    masked = 8 * 8 + 2 * 16 * (8 + 16) - (8 * 9 / 2 + 2 * 16 * (8 + 17 / 2))
    assert computed == work.model_flops() + 12 * 2 * 4 * 8 * masked


def test_a_kernel_whose_heads_devices_can_t_share_is_not_forecast():
    model = dataclasses.replace(MODELS["4B"], num_key_value_heads=8)
    work = dataclasses.replace(TINY, model=model, dtype="bfloat16", tensor=8)
    assert work.attention_on("gpu") == "triton"
    few = dataclasses.replace(work, model=dataclasses.replace(model, num_key_value_heads=4))
    assert few.attention_on("gpu") == "exact"


def test_known_models_have_the_shapes_that_the_dry_run_knows():
    for name, config in MODELS.items():
        fields = dataclasses.astuple(config)
        assert fields[:7] == KNOWN_SHAPES[f"Qwen/Qwen3-{name}"]


def test_the_paper_s_update_is_the_largest_one():
    config = load(ROOT / "configs/paper.yaml")
    fields = update_shape(config, MODELS["4B"])
    assert fields.pop("name") == "paper"
    work = Work(**fields | {"model": MODELS["4B"]})
    assert (work.groups, work.rows, work.width, work.micro_batches) == (1, 8, 8192, 4)
    assert (work.fsdp, work.tensor, work.dtype, work.remat) == (8, 1, "bfloat16", True)


def test_a_forecast_adds_up_kernels_and_what_they_wait_for():
    record = {"devices": 8, "product_seconds": 1.5, "attention_seconds": 0.5}
    record |= {"other_seconds": 1.0, "waiting_seconds": 0.25, "output_bytes": 5.0}
    record |= {"argument_bytes": 6e9, "temporary_bytes": 7e9, "aliased_bytes": 5.0}
    record |= {"sent_bytes": {"all-gather": 350e9}}
    found = forecast(record, "h100:8", model_flops=8 * 989e12)
    assert found["exchange_seconds"] == 1.0
    assert found["forecast_seconds"] == 3.25
    assert found["forecast_mfu"] == pytest.approx(1 / 3.25)
    assert found["fits"]
    assert not forecast(record | {"temporary_bytes": 75e9}, "h100:8", 1.0)["fits"]
    assert forecast(record, "h100:8", 1.0, engine_share=0.8)["fits"]
    assert not forecast(record, "h100:8", 1.0, engine_share=0.9)["fits"]
    two_hosts = forecast(record | {"devices": 16}, "h100:16", 1.0)
    assert two_hosts["exchange_seconds"] == pytest.approx(350 / 45)


def test_a_result_takes_the_place_of_an_older_one_of_the_same_update(tmp_path):
    path, one = tmp_path / "results.json", {"target": "h100:8", "model": "4B", "work": {"rows": 8}}
    for record in (one | {"launches": 1}, one | {"target": "v5e:2x2"}, one | {"launches": 2}):
        put_into(path, record)
    updates = json.loads(path.read_text())["updates"]
    assert updates == [one | {"launches": 2}, one | {"target": "v5e:2x2"}]


def test_a_run_s_plan_says_why_it_cannot_be_compiled_for_a_target():
    config = load(ROOT / "configs/paper.yaml")
    for target, message in (
        ("a100:8", "--compile-for: got 'a100:8', allowed are h100:SHAPE"),
        ("h100:4", "--compile-for h100:4: 4 devices, allowed are as many as the mesh has: fsdp 8"),
    ):
        for call in (require_target, compile_for):
            with pytest.raises(UserError, match=re.escape(message)):
                call(config, target)


def test_a_mistyped_target_is_told_before_the_plan_is_printed(cli):
    told = cli("run", ROOT / "configs/paper.yaml", "--dry-run", "--compile-for", "h1000:8")
    assert (told.status, told.out) == (2, "")
    assert "--compile-for: got 'h1000:8', allowed are h100:SHAPE" in told.err


def test_targets_that_cannot_be_compiled_for_are_named(capsys, monkeypatch, tmp_path):
    assert chip_count("v5p:2x2x4") == 16
    for target in ("a100:8", "h100:", "h100:x"):
        assert main(["--target", target]) == 2
        assert f"--target: got '{target}'" in capsys.readouterr().err
    assert main(["--target", "h100:8", "--tensor", "3"]) == 2
    assert "--tensor: got 3, allowed are divisors of 8" in capsys.readouterr().err
    monkeypatch.setattr("benchmarks.trainee.__main__.ROOT", tmp_path)
    assert main(["--target", "h100:8"]) == 2
    assert ".venv-gpu is not there; `make accelerators` makes it" in capsys.readouterr().err


def test_the_page_shows_the_committed_results():
    assert f"{BEGIN}\n\n{table()}\n{END}" in PAGE.read_text()


def test_what_was_measured_of_an_update_stays_beside_a_new_forecast(tmp_path):
    file = tmp_path / "results.json"
    record = {"target": "h200:1", "model": "4B", "work": {"rows": 8}}
    assert held_record(file, record) == record
    put_into(file, record | {"measured": {"seconds": 9.0}})
    put_into(file, record | {"forecast_seconds": 8.0})
    both = record | {"measured": {"seconds": 9.0}, "forecast_seconds": 8.0}
    assert json.loads(file.read_text())["updates"] == [both]
    assert held_record(file, record) == both
    assert held_record(file, record | {"model": "8B"}) == record | {"model": "8B"}


@pytest.mark.slow
def test_an_update_is_measured_with_weights_that_learn(monkeypatch):
    monkeypatch.setattr(measuring, "require_devices", lambda work, target: jax.devices()[:1])
    measured = measuring.measure_update(TINY, "h100:1", updates=2)
    assert measured["device"] == jax.devices()[0].device_kind
    assert measured["seconds"] == statistics.median(measured["update_seconds"])
    assert len(measured["update_seconds"]) == 2
    peak = 989e12
    assert measured["mfu"] == TINY.model_flops() / peak / measured["seconds"]
    assert measured["grad_norm"] > 0
    assert np.isfinite(measured["loss"])


@pytest.mark.slow
def test_attention_alone_is_measured_and_held_against_float32():
    found = measuring.measure_attention(TINY, "h100:1")
    assert set(found) == {"difference", "rows", "causal"}  # cuDNN is on GPUs only
    assert found["difference"] < 0.02
    assert all(0 < found[kind]["forward"] < 60 for kind in ("rows", "causal"))


def test_updates_are_measured_on_a_targets_own_devices_only(capsys):
    assert main(["--target", "h100:1", "--measure", "--model", "0.6B"]) == 2
    said = f"error: --measure: got {len(jax.devices())} of cpu here, h100:1 needs 1 of gpu\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("option", [["--check"], ["--hlo", "x"], ["--beside", "trl"]])
def test_options_that_a_measurement_would_pass_over_are_refused(option, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--target", "h100:1", "--measure", *option])
    assert ended.value.code == 2
    assert f"--measure: got {option[0]}, too, which does something else" in capsys.readouterr().err
