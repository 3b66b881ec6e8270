"""The benchmark compares equal work of both sides and reports failures."""

import json
from dataclasses import replace

import pytest

from benchmarks.lake import comparison
from benchmarks.lake.__main__ import main
from benchmarks.lake.cases import FULL, QUICK, Boards, Case, Side, cases
from benchmarks.lake.comparison import compare, compare_costs, find_failure
from benchmarks.lake.protocol import ROOT


def test_row_alternates_solvers_and_compares_optima():
    (row,) = (row for row in cases(QUICK) if row.name == "solve-2-agents-30-holes")
    ours = replace(row.ours, fields={"count": 64})
    small = replace(row, ours=ours, boards=Boards(64, 2, 0.3, size=6))
    measured = compare(small, seconds=0.05, repeats=2, devices=1)
    assert find_failure(measured) is None
    for side in ("ours", "peer"):
        assert len(measured[side]["rates"]) == 2
        assert min(measured[side]["rates"]) <= measured[side]["median"]
    assert measured["ours"]["compile_seconds"] > 0
    assert measured["agreement"]["compared"] > 32
    assert measured["agreement"]["different"] == 0
    pairs = zip(measured["ours"]["rates"], measured["peer"]["rates"], strict=True)
    ratios = [ours / peer for ours, peer in pairs]
    assert (measured["ratio"]["min"], measured["ratio"]["max"]) == (min(ratios), max(ratios))


def test_row_with_one_wrong_optimum_has_no_times():
    ours = {"status": [0, 0, 1, 2], "costs": [5, 7, -1, -1]}
    comparison = compare_costs(ours, {"costs": [[0, 5], [1, None], [3, 9]]})
    counts = {"boards": 4, "seen_by_peer": 3, "compared": 1, "different": 0}
    assert comparison == counts | {"only_ours": 1, "only_peer": 1}
    for wrong in ([0, 6], [2, 4]):
        row = {"name": "r", "ours": {}, "agreement": compare_costs(ours, {"costs": [wrong]})}
        assert find_failure(row) == "r: 1 optima differ from the peer's"


def test_missing_peer_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(comparison, "ROOT", tmp_path)
    (ours,) = (row.ours for row in cases(QUICK) if row.name.startswith("solve-2"))
    ours = replace(ours, fields={"count": 8})
    case = Case("row", "board", ours, Side("peer", "no_peer", "pogema"), Boards(8, 2, 0.2, size=4))
    row = compare(case, seconds=0.01, repeats=1, devices=1)
    assert "tools/peers.sh" in row["peer"]["error"]
    assert (row["ratio"], find_failure(row)) == (None, None)


@pytest.mark.slow
def test_command_writes_printed_rows(tmp_path, capsys):
    file = tmp_path / "deep" / "lake.json"
    arguments = ["--quick", "--only", "steps-pogema-same", "--seconds", "0.01", "--repeats", "1"]
    assert main(["--json", str(file), *arguments]) == 0
    result = json.loads(file.read_text())
    assert [row["name"] for row in result["rows"]] == ["steps-pogema-same-view"]
    assert f"{result['rows'][0]['ours']['median']:,.0f}" in capsys.readouterr().out


def test_committed_rows_match_benchmark_cases():
    result = json.loads((ROOT / "benchmarks/results/lake-cpu.json").read_text())
    assert not result["quick"]
    assert [row["name"] for row in result["rows"]] == [row.name for row in cases(FULL)]
    assert not any(find_failure(row) for row in result["rows"])
