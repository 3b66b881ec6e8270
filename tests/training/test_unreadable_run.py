"""A run without any readable answer warns while it runs and at its end."""

from pathlib import Path

import pytest

from tests.paths import TINY
from tests.training import fake_run
from training import loop
from training.schema import load


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_run_warns_once_per_stage_of_unreadable_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(fake_run, "_write_plan", lambda rng, task: "I would rather not.")
    with fake_run.without_vllm():
        loop.run(load(TINY), tmp_path / "run")
    output, progress = capsys.readouterr()
    initial_prefix, *prefixes = [f"stage {stage}: " for stage in range(3)]
    assert f"{initial_prefix}0 of 63 validation answers are readable. Read a few" in output
    for prefix in prefixes:
        assert output.count(f"{prefix}in updates 1 to 4, 0% of the answers are readable.") == 1
    summary = output[output.index("Written by") :]
    assert "Stage 0: 0 of 63 validation answers are readable. Also in stages 1, 2." in summary
    assert output.count("are readable") == 4
    assert "valid 0%  readable 0%  entropy" in progress
