"""The anatomy of a run runs from top to bottom, on a run without training."""

import json
import re
from pathlib import Path

import pytest

from tests.notebooks.executing import execute, outputs, pictures, printed
from tests.paths import ROOT
from tests.training.sample_run import write_run

NOTEBOOK = ROOT / "notebooks" / "anatomy_of_a_run.ipynb"


@pytest.mark.slow
def test_the_anatomy_says_what_the_files_of_the_run_say(tmp_path: Path):
    run = write_run(tmp_path / "run", {"kind": "checkpoint"})
    (run / "checkpoints/1").mkdir(parents=True)
    (run / "checkpoints/1/an-array").touch()
    executed = execute(NOTEBOOK, tmp_path, JAXLAKE_RUN=str(run))
    text = printed(executed)
    validation = json.loads((run / "stages/3/validation.json").read_text())
    valid = sum(row["valid"] for row in validation["rows"])
    count = sum(row["count"] for row in validation["rows"])
    shown = re.search(r"^stage 3: ([\d.]+)% valid", text, flags=re.MULTILINE)
    assert shown[1] == f"{100 * valid / count:.1f}"
    assert (run / "stages/1/context.txt").read_text() in text
    assert "stages/1/decision.json" in text
    assert "an-array" not in text
    assert pictures(executed) == 2
    assert any("<svg" in one.get("data", {}).get("text/html", "") for one in outputs(executed))
