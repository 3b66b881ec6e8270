"""The forecast of a large set adds up, and the page shows the committed one."""

import json

import numpy as np
import pytest

from benchmarks.large_sets import Rates, cost, main, measure_duplicates, measure_host, table
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
    rates = Rates(**{name: result[name] for name in Rates.__annotations__})
    seconds = result["compile_seconds"]
    assert result["rows"] == [
        cost(rates, result["boards"], row["chips"], seconds) for row in result["rows"]
    ]


def test_looking_for_duplicates_takes_longer_in_a_larger_part_as_measured():
    result = json.loads((RESULTS / "large-set-v5e.json").read_text())
    rates = Rates(**{name: result[name] for name in Rates.__annotations__})
    measured = rates.duplicate_seconds
    assert len(measured) == 239  # shards of 65,536 of a billion boards on 64 chips
    assert -(-result["boards"] // 64 // 65_536) == len(measured)
    for shards in (1, 60, 239):
        assert rates.duplicates(shards) == measured[shards - 1]
    assert rates.duplicates(0.5) == measured[0]
    assert rates.duplicates(239) > 4 * measured[3]


def test_beyond_the_measured_part_duplicates_take_longer_by_as_much_with_each_doubling():
    measured = [0.0, 0.0, 0.0, 2e-6, *(1e-6 * np.log2(range(5, 17)))]
    rates = Rates(0.0, 0.0, measured, 0.0)
    assert rates.duplicates(16) == pytest.approx(4e-6)
    assert rates.duplicates(64) == pytest.approx(6e-6)


def test_what_duplicates_take_is_a_mean_of_all_shards():
    means = measure_duplicates(9, 64)
    assert len(means) == 9
    assert min(means) > 0


@pytest.mark.slow
def test_the_host_is_measured_without_the_device(monkeypatch):
    monkeypatch.setattr("benchmarks.large_sets.quotas.MAX_CAPACITY", 64)
    seconds, size = measure_host(2, 4 * 64)
    assert 0 < seconds < 0.01
    assert size > 0


def test_a_cost_is_shared_by_the_chips_but_for_compilation():
    duplicates = [1e-6, 4e-6, 4e-6, 4e-6, 4e-6, 4e-6]
    rates = Rates(2e-6, 1e-6, duplicates, file_bytes=50.0)
    row = cost(rates, 20 * 65_536, 10, compile_seconds=30.0)
    assert row["host_seconds"] == pytest.approx(131_072 * 5e-6)
    assert row["duplicate_seconds"] == pytest.approx(131_072 * 4e-6)
    assert row["seconds"] == pytest.approx(30.0 + 131_072 * 7e-6)
    assert row["chip_hours"] == pytest.approx(10 * row["seconds"] / 3600)
    assert row["set_bytes"] == 50 * 20 * 65_536
    assert row["part_digest_bytes"] == 48 * 131_072


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
    assert f"forecast: {least}0.60 us of the device" in head
    assert row.startswith(f"| 256 | {least}2 s | 38 s | 8 s | {least}3 min | {least}11.2 |")
