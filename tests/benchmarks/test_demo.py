"""The check of the demo's programs sees products that a GPU would round."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks.demo.__main__ import main
from benchmarks.demo.programs import Call, calls
from benchmarks.demo.worker import compiled_products, examine, products
from tests.paths import ROOT
from training.policy.precision import products_of
from training.schema import load


def test_products_that_would_be_rounded_are_listed():
    factors = jnp.ones((8, 8)), jnp.ones((8, 8))
    narrow = [part.astype(jnp.bfloat16) for part in factors]

    def wide(left, right):
        with products_of(left.dtype):
            return left @ right

    assert [exact for _, exact in products(jax.jit(wide).lower(*factors).as_text())] == [True]
    plain = jax.jit(jnp.matmul)
    assert [exact for _, exact in products(plain.lower(*factors).as_text())] == [False]
    assert products(plain.lower(*narrow).as_text()) == []
    assert examine(Call("plain", plain, factors, True), "cpu")["inexact"]
    assert not examine(Call("plain", plain, factors, False), "cpu")["inexact"]
    assert not examine(Call("wide", jax.jit(wide), factors, True), "cpu")["inexact"]


@pytest.mark.parametrize(
    ("line", "exact"),
    [
        ("  %d = f32[8,8]{1,0} dot(%a, %b), operand_precision={highest,highest}", [True]),
        ("  %d = f32[8,8]{1,0} dot(%a, %b), lhs_contracting_dims={1}", [False]),
        ('  %g = (f32[8,8]{1,0}, s8[4]{0}) custom-call(%a), custom_call_target="__cublas$gemm", '
         'backend_config={"operand_precision":["HIGHEST","HIGHEST"]}', [True]),
        ('  %g = (f32[8,8]{1,0}, s8[4]{0}) custom-call(%a), custom_call_target="__cublas$gemm", '
         'backend_config={"operand_precision":["DEFAULT","DEFAULT"]}', [False]),
        ("  %d = bf16[8,8]{1,0} dot(%a, %b)", []),
    ],
)  # fmt: skip
def test_so_are_those_that_a_compiler_made_calls_of(line: str, exact: list[bool]):
    assert [found for _, found in compiled_products(line)] == exact


def test_the_demo_s_programs_have_the_shapes_of_the_miniature():
    config = load(ROOT / "configs/miniature.yaml")
    found = {call.name: call for call in calls(config, jax.devices()[0])}
    assert {"update of 4 rows", "update of 32 rows", "generate", "verify"} <= set(found)
    assert {"score after a sync", "tabulate", "sum of distances"} <= set(found)
    assert sum(name.startswith("checksum") for name in found) == 7
    batch = found["update of 32 rows"].arguments[1]
    assert batch.groups.prompt_ids.shape == (8, 1, 4, 120)
    assert batch.groups.input_ids.shape == (8, 1, 32, 40)


def test_a_target_without_a_compiler_is_named(capsys, monkeypatch, tmp_path):
    assert main(["--target", "a100:1"]) == 2
    assert "--target: got 'a100:1', allowed are h100:SHAPE" in capsys.readouterr().err
    monkeypatch.setattr("benchmarks.demo.__main__.ROOT", tmp_path)
    assert main(["--target", "h100:1"]) == 2
    assert ".venv-gpu is not there; `make accelerators` makes it" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".venv-gpu").exists(), reason="needs `make accelerators`")
def test_the_demo_s_update_compiles_for_a_gpu_and_is_exact(capsys):
    assert main(["--target", "h100:1", "--only", "update of 4", "score", "checksum"]) == 0
    assert capsys.readouterr().out.count("| none |") == 9
