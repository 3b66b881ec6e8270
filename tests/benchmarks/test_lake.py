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
    (case,) = (case for case in cases(QUICK) if case.name == "solve-2-agents-30-holes")
    our_side = replace(case.ours, fields={"count": 64})
    small_case = replace(case, ours=our_side, boards=Boards(64, 2, 0.3, size=6))
    row = compare(small_case, seconds=0.05, num_repeats=2, num_devices=1)
    assert find_failure(row) is None
    for side in ("ours", "peer"):
        assert len(row[side]["rates"]) == 2
        assert min(row[side]["rates"]) <= row[side]["median"]
    assert row["ours"]["compile_seconds"] > 0
    assert row["agreement"]["compared"] > 32
    assert row["agreement"]["different"] == 0
    pairs = zip(row["ours"]["rates"], row["peer"]["rates"], strict=True)
    ratios = [a / b for a, b in pairs]
    assert (row["ratio"]["min"], row["ratio"]["max"]) == (min(ratios), max(ratios))


def test_row_with_one_wrong_optimum_has_no_times():
    our_costs = {"status": [0, 0, 1, 2], "costs": [5, 7, -1, -1]}
    agreement = compare_costs(our_costs, {"costs": [[0, 5], [1, None], [3, 9]]})
    counts = {"boards": 4, "seen_by_peer": 3, "compared": 1, "different": 0}
    assert agreement == counts | {"only_ours": 1, "only_peer": 1}
    for cost in ([0, 6], [2, 4]):
        row = {"name": "r", "ours": {}, "agreement": compare_costs(our_costs, {"costs": [cost]})}
        assert find_failure(row) == "r: 1 optima differ from the peer's"


def test_compare_names_a_missing_peer(monkeypatch, tmp_path):
    monkeypatch.setattr(comparison, "ROOT", tmp_path)
    (side,) = (case.ours for case in cases(QUICK) if case.name.startswith("solve-2"))
    side = replace(side, fields={"count": 8})
    case = Case("row", "board", side, Side("peer", "no_peer", "pogema"), Boards(8, 2, 0.2, size=4))
    row = compare(case, seconds=0.01, num_repeats=1, num_devices=1)
    assert "tools/peers.sh" in row["peer"]["error"]
    assert (row["ratio"], find_failure(row)) == (None, None)


@pytest.mark.slow
def test_command_writes_printed_rows(tmp_path, capsys):
    path = tmp_path / "deep" / "lake.json"
    arguments = ["--quick", "--only", "steps-pogema-same", "--seconds", "0.01", "--repeats", "1"]
    assert main(["--json", str(path), *arguments]) == 0
    result = json.loads(path.read_text())
    assert [row["name"] for row in result["rows"]] == ["steps-pogema-same-view"]
    assert f"{result['rows'][0]['ours']['median']:,.0f}" in capsys.readouterr().out


def test_committed_rows_match_benchmark_cases():
    result = json.loads((ROOT / "benchmarks/results/lake-cpu.json").read_text())
    assert not result["quick"]
    assert [row["name"] for row in result["rows"]] == [case.name for case in cases(FULL)]
    assert not any(find_failure(row) for row in result["rows"])
