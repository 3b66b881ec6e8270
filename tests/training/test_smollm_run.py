"""SmolLM2-135M-Instruct through three rounds of the loop, by the documented command."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from jaxlake.command_line.entry import main
from tests.paths import ROOT
from tests.training.analysis.pages import Page
from training.run.directory import RunDirectory

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(5400)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """What `make smollm` leaves after it was killed in an update and in a design, and resumed."""
    folder = tmp_path_factory.mktemp("smollm") / "run"
    script = ["tools/smollm.py", "runs/models/SmolLM2-135M-Instruct"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, *script], cwd=ROOT, check=True, timeout=600, env=environment)
    for point in ("update", "design"):
        arguments = ["-m", "tests.training.fake_run", "configs/smollm.yaml", str(folder), point]
        process = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, timeout=3000, env=environment, check=False
        )
        assert process.returncode == -signal.SIGKILL
    command = ["make", "smollm", f"SMOLLM_DIR={folder}"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=3000, env=os.environ)
    return RunDirectory(folder)


def test_smollm_run_finishes_three_stages(run: RunDirectory):
    summary = run.summary.read()
    assert [stage.stage for stage in summary.stages] == [0, 1, 2, 3]
    assert len(summary.decisions) == 3
    assert main(["audit", str(run.path)]) == 0


def test_smollm_updates_change_only_adapters(run: RunDirectory):
    updates = run.updates()
    assert len(updates) == 12
    assert max(update.grad_norm for update in updates) > 0
    adapters = [load_file(find_adapters(run.stage(stage).path)) for stage in (0, 3)]
    assert sorted(adapters[0]) == sorted(adapters[1])
    assert any(not np.array_equal(adapters[0][name], adapters[1][name]) for name in adapters[0])
    weights = [load_file(run.stage(stage).policy / "model.safetensors") for stage in (0, 3)]
    embeddings = [tensors["model.embed_tokens.weight"] for tensors in weights]
    np.testing.assert_array_equal(*embeddings)
    kernels = [tensors["model.layers.0.mlp.up_proj.weight"] for tensors in weights]
    assert not np.array_equal(*kernels)


def test_smollm_engineer_reasons_and_answers(run: RunDirectory):
    page = Page((run.path / "report.html").read_text(encoding="utf-8"))
    for stage in (1, 2, 3):
        answers = run.stage(stage).answers.read()
        assert answers[-1].kind in ("accepted", "repaired", "unchanged")
        assert run.stage(stage).decision.read().engineer == "checkpoint"
        assert "1. Diagnosis" in run.stage(stage).context.read()
        for answer in answers:
            assert answer.reasoning.strip()
            assert " ".join(answer.reasoning.split()) in page.text
            assert answer.text is not None
            assert " ".join(answer.text.split()) in page.text


def find_adapters(stage: Path) -> Path:
    settings = json.loads((stage / "adapters" / "adapter_config.json").read_text())
    assert settings["r"] == 16
    return stage / "adapters" / "adapter_model.safetensors"
