"""The forecast of a large set adds up, and the page shows the committed one."""

import json

import pytest

from benchmarks.large_sets import Rates, cost, main, table
from tests.paths import ROOT

RESULTS = ROOT / "benchmarks" / "results"


def test_the_page_shows_the_committed_forecast():
    result = json.loads((RESULTS / "large-set-v5e.json").read_text())
    page = (ROOT / "docs" / "how_to" / "pods.md").read_text(encoding="utf-8")
    shown = page.split("<!-- forecast: begin -->\n")[1].split("<!-- forecast: end -->")[0]
    assert shown.splitlines() == table(result)
    forecast = json.loads((RESULTS / "forecast-v5e.json").read_text())["targets"]["v5e:2x2"]
    (program,) = (p for p in forecast["programs"] if p["program"] == result["program"])
    assert result["device_seconds"] == 1 / program["forecast_rate"]
    assert result["compile_seconds"] == program["compile_seconds"]
    assert result["uncounted_loops"] == program["uncounted_loops"]


def test_a_cost_is_shared_by_the_chips_but_for_compilation():
    rates = Rates(device_seconds=2e-6, host_seconds=1e-6, file_bytes=50.0)
    row = cost(rates, 1_000_000, 10, compile_seconds=30.0)
    assert row["seconds"] == pytest.approx(30.0 + 0.3)
    assert row["chip_hours"] == pytest.approx(10 * 30.3 / 3600)
    assert row["set_bytes"] == 50e6
    assert row["part_digest_bytes"] == 48 * 100_000


@pytest.mark.parametrize(
    ("forecast", "target", "said"),
    [
        ("nothing.json", "v5e:2x2", "nothing.json: not a forecast"),
        ("forecast-v5e.json", "h100:1", "--target: got 'h100:1'"),
    ],
)
def test_a_forecast_that_is_not_there_is_named(capsys, forecast, target, said):
    assert main(["--forecast", str(RESULTS / forecast), "--target", target]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("uncounted", "least"), [(0, ""), (1, "at least ")])
def test_a_cost_is_a_lower_bound_where_rounds_of_a_loop_were_not_counted(uncounted, least):
    result = json.loads((RESULTS / "large-set-v5e.json").read_text())
    head, *_, row = table(result | {"uncounted_loops": uncounted})
    assert f"forecast: {least}0.61 us of the device" in head
    assert row.startswith(f"| 256 | {least}2 s | 28 s | {least}4 min | {least}16.2 |")
