"""Environment variables that libraries read."""

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from jaxlib.xla_client import generate_pjrt_gpu_plugin_options

from tests.paths import ROOT
from training.runtime import set_library_defaults


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("XLA_CLIENT_MEM_FRACTION", "0.5", 0.5),
        ("XLA_CLIENT_MEM_FRACTION", "", 0.95),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.4", 0.4),
    ],
)
def test_user_memory_fraction_is_kept(name, value, expected):
    """With both variables set, vLLM would find no GPU."""
    other_variables = {key: value for key, value in os.environ.items() if "MEM_FRACTION" not in key}
    with mock.patch.dict(os.environ, other_variables | {name: value}, clear=True):
        set_library_defaults()
        assert generate_pjrt_gpu_plugin_options()["memory_fraction"] == expected


# vLLM's kernels write `tl.dot(Q, K)` without a precision, as this one does.
PRODUCT_SCRIPT = """
import sys
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def product(left, right, result, N: tl.constexpr):
    indices = tl.arange(0, N)
    offsets = indices[:, None] * N + indices[None, :]
    tl.store(result + offsets, tl.dot(tl.load(left + offsets), tl.load(right + offsets)))


if sys.argv[1] == "jaxlake":
    from training.runtime import set_library_defaults

    set_library_defaults()
signature = {"left": "*fp32", "right": "*fp32", "result": "*fp32", "N": "constexpr"}
source = ASTSource(product, signature, {"N": 64})
print("tf32" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"])
"""


@pytest.mark.parametrize(("defaults", "uses_tf32"), [("triton", "True"), ("jaxlake", "False")])
def test_vllm_attention_keeps_float32_on_an_h100(defaults: str, uses_tf32: str, tmp_path: Path):
    """Compiled for one; that Triton would round them shows that the test can fail."""
    script = tmp_path / "product.py"
    script.write_text(PRODUCT_SCRIPT)
    other_variables = {
        key: value for key, value in os.environ.items() if key != "TRITON_F32_DEFAULT"
    }
    environment = other_variables | {
        "PYTHONPATH": str(ROOT),
        "TRITON_CACHE_DIR": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-W", "ignore", str(script), defaults]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == uses_tf32
