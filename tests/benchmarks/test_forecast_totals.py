"""What a forecast adds up, and the tables of the page, which are those of the committed files."""

import json
import shutil

import pytest

from benchmarks.accelerators.__main__ import main
from benchmarks.accelerators.hlo import Body, read_program
from benchmarks.accelerators.loops import Loop
from benchmarks.accelerators.tables import header, row, table_of_measurements, table_of_shares
from benchmarks.accelerators.targets import machine_of
from benchmarks.accelerators.totals import forecast, shares, totals, tree_of
from tests.paths import ROOT

RESULTS = ROOT / "benchmarks" / "results"
H100 = machine_of("h100:1")
UNTIL_DATA_SAY = """
%fused (p: s32[8]) -> pred[] {
  %p = s32[8]{0} parameter(0)
  ROOT %r = pred[] constant(true)
}

%condition (p: (s32[], s32[8])) -> pred[] {
  %p = (s32[], s32[8]{0}) parameter(0)
  %x = s32[8]{0} get-tuple-element(%p), index=1
  ROOT %c = pred[] fusion(%x), kind=kLoop, calls=%fused
}

%body (p: (s32[], s32[8])) -> (s32[], s32[8]) {
  %p = (s32[], s32[8]{0}) parameter(0)
  %x = s32[8]{0} get-tuple-element(%p), index=1
  %y = s32[8]{0} copy(%x)
  ROOT %f = (s32[], s32[8]{0}) fusion(%y), kind=kLoop, calls=%fused
}

ENTRY %main (a: (s32[], s32[8])) -> (s32[], s32[8]) {
  %a = (s32[], s32[8]{0}) parameter(0)
  ROOT %w = (s32[], s32[8]{0}) while(%a), condition=%condition, body=%body, \
metadata={op_name="jit(f)/loop0_/while"}
}
"""


def _tree(launches=0, moved=0, conditions=0, loops=(), **more):
    body = {"rounds": None, "static": False, "launches": launches, "bytes": moved}
    return body | {"conditions": conditions, "loops": list(loops), **more}


@pytest.mark.parametrize("rounds", [0, 1, 10])
def test_a_loop_asks_once_more_than_it_has_rounds(rounds):
    tree = tree_of(read_program(UNTIL_DATA_SAY), [Loop(0, "collatz")], [rounds])
    total = totals(tree)
    assert total["conditions"] == rounds + 1
    assert total["launches"] == 2 * rounds + (rounds + 1)
    assert total["uncounted_loops"] == 0


def test_a_loop_within_a_loop_asks_once_more_each_time():
    inner = Body("loop", 1, test=Body("test", launches=5))
    outer = Body("loop", 0, loops=[inner], test=Body("test", launches=3))
    known = Body("loop", None, trips=4, launches=1)
    outer.loops.append(known)
    program = Body("program", loops=[outer])
    found = [Loop(0, "outer"), Loop(1, "inner")]
    total = totals(tree_of(program, found, [7, 100]))
    assert total["conditions"] == (7 + 1) + (100 + 7)
    assert total["launches"] == 3 * (7 + 1) + 5 * (100 + 7) + 7 * 4
    # Nobody counted: each makes one round each time, and the forecast is a lower bound.
    total = totals(tree_of(program, found, None))
    assert (total["conditions"], total["uncounted_loops"]) == (4, 2)


def test_a_forecast_adds_up_launches_or_memory_of_each_round_and_decisions():
    few, many = _tree(launches=10, moved=0), _tree(launches=1, moved=3.35e9)
    loop = many | {"rounds": 100, "static": True}
    record = {"tree": few | {"conditions": 2, "loops": [loop]}, "units": 50}
    seconds = 10 * 4e-6 + 100 * 1e-3 + 2 * 10e-6
    made = forecast(record, H100)
    assert made["forecast_seconds"] == pytest.approx(seconds)
    assert made["forecast_rate"] == pytest.approx(50 / seconds)
    # 1,000 launches of hardly any memory beside one of much: neither hides behind the other.
    record["tree"] = few | {"loops": [_tree(launches=1000) | {"rounds": 1, "static": True}, loop]}
    assert shares(record, H100).kernels == pytest.approx(1010 * 4e-6 + 100 * 1e-3)


def test_the_longest_program_of_a_kernel_is_waited_for():
    record = {"tree": _tree(), "units": 1, "kernel_operations": 528000}
    shared = shares(record, H100).seconds
    waited = shares(record | {"longest_program_operations": 528000}, H100)
    assert shared == pytest.approx(1000 * H100.operation)
    assert waited.seconds == pytest.approx(528 * shared, rel=0.01)


def _programs(name, target):
    return json.loads((RESULTS / name).read_text())["targets"][target]["programs"]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("forecast-h100.json", "h100:1"),
        ("forecast-h200.json", "h200:1"),
        ("forecast-v5e.json", "v5e:2x2"),
        ("forecast-v5e-solve.json", "v5e:2x2"),
    ],
)
def test_the_committed_forecasts_are_what_their_trees_add_up_to(name, target, tmp_path, capsys):
    for record in _programs(name, target):
        again = totals(record["tree"]) | forecast(record, machine_of(target))
        assert {key: record[key] for key in again} == again
    copy = tmp_path / name
    shutil.copyfile(RESULTS / name, copy)
    assert main(["--target", target, "--again", "--json", str(copy)]) == 0
    assert copy.read_text() == (RESULTS / name).read_text()
    assert row(_programs(name, target)[0]) in capsys.readouterr().out


def _shown(mark):
    page = (ROOT / "docs" / "forecasts.md").read_text(encoding="utf-8")
    return page.split(f"<!-- {mark}: begin -->\n")[1].split(f"<!-- {mark}: end -->")[0].splitlines()


def test_the_page_shows_the_committed_forecasts():
    records = _programs("forecast-h100.json", "h100:1")
    *_, names, line = header("h100:1")
    assert _shown("h100") == [names, line, *map(row, records)]
    assert _shown("h100 shares") == table_of_shares(records, H100)
    solve = _programs("forecast-v5e-solve.json", "v5e:2x2")
    rows = [row(record) for record in (*solve, *_programs("forecast-v5e.json", "v5e:2x2"))]
    assert _shown("v5e") == [names, line, *rows]


def test_the_page_shows_what_was_measured_and_by_how_much_forecasts_were_wrong():
    records = _programs("forecast-h200.json", "h200:1")
    assert _shown("h200 measured") == table_of_measurements(records)
    by_name = {record["program"]: record for record in records}
    # Kernels are those that the compiler counts; what is computed is the same on any machine.
    assert 0.9 < by_name["solve-2"]["measured"]["kernels"] / by_name["solve-2"]["launches"] < 1.1
    assert all(record["measured"]["answers"] for record in records)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--target", "v5e:2x2"], "--again: --json has no calls of this size for v5e:2x2"),
        (["--target", "h100:1", "--boards", "8"], "has no calls of this size for h100:1"),
        (["--target", "h100:1", "--only", "step"], "--only: --again takes all programs"),
    ],
)
def test_what_cannot_be_added_up_anew_is_said(arguments, said, capsys):
    file = RESULTS / "forecast-h100.json"
    before = file.read_text()
    assert main([*arguments, "--again", "--json", str(file)]) == 2
    assert said in capsys.readouterr().err
    assert file.read_text() == before


def test_operations_that_were_counted_with_other_costs_are_not_added_up(tmp_path, capsys):
    held = json.loads((RESULTS / "forecast-h100.json").read_text())
    held["targets"]["h100:1"]["assumptions"]["wait"] += 1
    file = tmp_path / "forecast.json"
    file.write_text(json.dumps(held))
    assert main(["--target", "h100:1", "--again", "--json", str(file)]) == 2
    assert "operations of h100:1 were counted with other costs" in capsys.readouterr().err
