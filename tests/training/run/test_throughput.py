"""Throughput of updates, and the peak FLOP/s of devices by name."""

from types import SimpleNamespace

import pytest

from tests.paths import TINY
from training.learner.flops import update_flops
from training.policy.architectures import DecoderConfig
from training.run import throughput
from training.run.dry_run import KNOWN_SHAPES
from training.run.records import TimingRecord
from training.run.throughput import UpdateWork, compute_timing_fields, peak_tflops
from training.schema import LoraConfig, load


def test_flops_exclude_gradients_of_frozen_weights():
    shape = DecoderConfig(*KNOWN_SHAPES["Qwen/Qwen3-0.6B"])
    dense_flops = update_flops(shape, [100], [[300] * 4])
    rank_1_flops = update_flops(shape, [100], [[300] * 4], LoraConfig(rank=1, targets=("q_proj",)))
    rank_3_flops = update_flops(shape, [100], [[300] * 4], LoraConfig(rank=3, targets=("q_proj",)))
    query_width = shape.num_attention_heads * shape.head_dim
    factor_size = shape.num_hidden_layers * (shape.hidden_size + query_width)  # for each rank
    assert rank_3_flops - rank_1_flops == pytest.approx(6 * 2 * factor_size * 1300)
    num_pairs = 100 * 101 / 2 + 4 * 300 * (100 + 301 / 2)
    attention_flops = 12 * shape.num_hidden_layers * query_width * num_pairs
    product_flops = dense_flops - attention_flops
    adapter_flops = 6 * factor_size * 1300
    assert rank_1_flops - attention_flops - adapter_flops == pytest.approx(product_flops * 4 / 6)


@pytest.mark.parametrize(
    ("kind", "dtype", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.0),
        ("NVIDIA H100 PCIe", "bfloat16", 756.0),
        ("NVIDIA H100 NVL", "bfloat16", 835.0),
        ("TPU v5 lite", "bfloat16", 197.0),
        ("TPU v5p", "bfloat16", 459.0),
        ("NVIDIA H100 80GB HBM3", "float32", None),
        ("cpu", "bfloat16", None),
    ],
)
def test_peak_flops_use_the_longest_device_prefix(kind, dtype, peak):
    assert peak_tflops(SimpleNamespace(device_kind=kind), dtype) == peak


def test_compute_timing_fields_divides_work_by_seconds(monkeypatch):
    seconds = {"rollout": 2.0, "update": 0.5}
    monkeypatch.setattr(throughput, "peak_tflops", lambda *_: 0.004)
    config, work = load(TINY, ["model.mesh={fsdp: 2}"]), UpdateWork(1000, 1e9)
    fields = compute_timing_fields(work, seconds, config)
    assert fields["tokens_per_second"] == 500.0
    assert fields["mfu"] == pytest.approx(1e9 / 0.5 / (0.004e12 * 2))
    assert 0.01 < fields["host_gib"] < 1000
    monkeypatch.undo()
    cpu_fields = compute_timing_fields(work, {"rollout": 2.0}, load(TINY))
    assert "mfu" not in cpu_fields
    prefetch_config = load(TINY, ["sampling.engine=jax", "grpo.prefetch=1"])
    assert "tokens_per_second" not in compute_timing_fields(work, seconds, prefetch_config)
    record = TimingRecord(phase="train", stage=1, update=1, step=1, seconds=seconds, **fields)
    assert TimingRecord.model_validate(record.model_dump()) == record
