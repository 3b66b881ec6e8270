"""The published results are complete, and impossible numbers are marked."""

import csv
from fractions import Fraction
from pathlib import Path

import jaxlake.datasets
from jaxlake.datasets import published_models, published_results
from jaxlake.datasets.paper_benchmark import V2
from jaxlake.datasets.printed_tables import FILE_NAME

TABLE_FILE = Path(jaxlake.datasets.__file__).with_name(FILE_NAME)


def test_published_models_have_all_cells_and_aggregates():
    keys = {(result.num_agents, result.model, result.size) for result in published_results()}
    models = published_models()
    assert len(models) == 7
    assert "Qwen3-4B (base)" in models
    cells = [*V2.cells, *((agents, None) for agents in (3, 4, 5))]
    assert keys == {(agents, model, size) for agents, size in cells for model in models}
    assert len(published_results()) == len(keys) == 168


def test_published_marks_match_exact_arithmetic():
    """Marked are rates that no count of 150 gives, and means that differ from the cells' mean."""
    rows = list(csv.DictReader(TABLE_FILE.read_text().splitlines()))
    expected = set()
    for field in ("valid", "optimal"):
        rates_by_row: dict[tuple[str, str], list[Fraction]] = {}
        for row in rows:
            published_rate = Fraction(row[f"{field}_pct"])
            if row["size"] == "all":
                continue
            rates = [Fraction(100 * k, 150) for k in range(151)]
            matches = [rate for rate in rates if abs(rate - published_rate) <= Fraction(1, 200)]
            if not matches:
                expected.add((row["num_agents"], row["model"], row["size"], field))
            rates_by_row.setdefault((row["num_agents"], row["model"]), []).append(
                matches[0] if matches else published_rate
            )
        for row in rows:
            cell_rates = rates_by_row[row["num_agents"], row["model"]]
            error = abs(sum(cell_rates) / len(cell_rates) - Fraction(row[f"{field}_pct"]))
            if row["size"] == "all" and error > Fraction(1, 200):
                expected.add((row["num_agents"], row["model"], "all", field))
    misprints = {
        (str(result.num_agents), result.model, str(result.size or "all"), field)
        for result in published_results()
        for field in result.misprinted
    }
    assert misprints == expected
    assert ("5", "Kimi-K2.5", "all", "valid") in misprints
