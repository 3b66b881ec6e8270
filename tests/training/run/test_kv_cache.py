"""vLLM's cache as a dry run counts it, beside vLLM's own count."""

import pytest

from tests.paths import ROOT
from training.run import kv_cache
from training.run.dry_run import parameters, shape_of
from training.run.kv_cache import bytes_per_token, kv_caches
from training.schema import load

PAPER = ROOT / "configs/paper.yaml"


@pytest.fixture(autouse=True)
def nothing_is_said(monkeypatch):
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    monkeypatch.setattr(kv_cache, "accelerator_gib", lambda: None)


@pytest.mark.parametrize("workers", [1, 4, 16])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_token_takes_what_a_page_of_vllm_does(workers, dtype):
    pytest.importorskip("vllm")
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    config = load(PAPER, [f"sampling.dtype={dtype}", f"sampling.tensor_parallel_size={workers}"])
    shape = shape_of(config)
    page = FullAttentionSpec(
        block_size=16,
        num_kv_heads=max(1, 8 // workers),  # as ModelConfig.get_num_kv_heads divides them
        head_size=128,
        dtype=getattr(torch, dtype),
    ).page_size_bytes
    assert 16 * bytes_per_token(config.sampling, shape) == 36 * page


def test_the_cache_of_cpus_is_what_is_set_and_the_users_word_wins(monkeypatch):
    config = load(PAPER, ["sampling.cpu_kv_cache_gib=3", "sampling.max_model_len=9700"])
    shape = shape_of(config)
    each = 32 * bytes_per_token(config.sampling, shape)
    for gib in (3, 7):
        on_cpus, _ = kv_caches(config.sampling, shape, 10**9)
        blocks = gib * 2**30 // each
        assert (on_cpus.gib, on_cpus.at_most) == (gib, False)
        assert on_cpus.sequences == pytest.approx(blocks / 304)  # 9,700 tokens are 303.1 blocks
        assert on_cpus.tokens == int(blocks / 304 * 9700)
        monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "7")


def test_weights_are_taken_from_the_share_of_an_accelerator(monkeypatch):
    config = load(PAPER)
    shape = shape_of(config)
    weights = 2 * parameters(shape) // 8
    _, common = kv_caches(config.sampling, shape, weights)
    assert common.at_most
    assert common.gib == pytest.approx(80 * 0.4 - weights / 2**30)
    monkeypatch.setattr(kv_cache, "accelerator_gib", lambda: 24.0)
    _, own = kv_caches(config.sampling, shape, weights)
    assert own.gib == pytest.approx(24 * 0.4 - weights / 2**30)
    assert "this machine's accelerators of 24 GiB" in own.where
    monkeypatch.setattr(kv_cache, "accelerator_gib", lambda: 1.0)
    _, none = kv_caches(config.sampling, shape, weights)
    assert (none.gib, none.tokens, none.sequences) == (0, 0, 0)
