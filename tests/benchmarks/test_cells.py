"""The committed cells appear on the page, and a measurement resumes."""

import json

import pytest

from benchmarks.lake import cells

ROW = {
    **{"cell": "3ag_4x4_hr0.3", "agents": 3, "cores": 1, "ratio": 1.5},
    **{"compared": 5, "different": 0},
}
RESULT = {"repeats": 3, "max_time": 0.3, "rows": [ROW]}


def test_page_shows_committed_cell_results():
    page = (cells.ROOT / "docs/performance.md").read_text(encoding="utf-8")
    for line in cells.format_table(json.loads(cells.RESULT.read_text())["rows"]):
        assert line in page


def test_cells_resume_only_with_equal_settings(tmp_path, monkeypatch):
    path = tmp_path / "cells.json"
    path.write_text(json.dumps(RESULT))
    new_row = ROW | {"cell": "3ag_4x4_hr0.4", "unknown": 0, "gave_up": 0}
    measured_names = []

    def measure(cells_to_measure, cores, options):
        measured_names.extend(cell.name for cell in cells_to_measure)
        return iter([new_row])

    monkeypatch.setattr(cells, "measure", measure)
    arguments = ["--json", str(path), "--only", "3ag_4x4_hr0.3", "3ag_4x4_hr0.4", "--cores", "1"]
    assert cells.main(arguments) == 0
    assert measured_names == [new_row["cell"]]
    assert json.loads(path.read_text())["rows"] == [ROW, new_row]
    with pytest.raises(SystemExit, match=r"max_time is 0.3, got 0.5"):
        cells.main([*arguments, "--max-time", "0.5"])
