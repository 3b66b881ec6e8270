"""The published results are complete, and impossible numbers are marked."""

import csv
from fractions import Fraction
from pathlib import Path

import jaxlake.datasets
from jaxlake.datasets import published_models, published_results
from jaxlake.datasets.paper_benchmark import V2
from jaxlake.datasets.printed_tables import FILE_NAME

FILE = Path(jaxlake.datasets.__file__).with_name(FILE_NAME)


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
    rows = list(csv.DictReader(FILE.read_text().splitlines()))
    expected = set()
    for field in ("valid", "optimal"):
        cells: dict[tuple[str, str], list[Fraction]] = {}
        for row in rows:
            printed = Fraction(row[f"{field}_pct"])
            if row["size"] == "all":
                continue
            counts = [Fraction(100 * k, 150) for k in range(151)]
            matches = [share for share in counts if abs(share - printed) <= Fraction(1, 200)]
            if not matches:
                expected.add((row["num_agents"], row["model"], row["size"], field))
            cells.setdefault((row["num_agents"], row["model"]), []).append(
                matches[0] if matches else printed
            )
        for row in rows:
            rates = cells[row["num_agents"], row["model"]]
            wrong = abs(sum(rates) / len(rates) - Fraction(row[f"{field}_pct"])) > Fraction(1, 200)
            if row["size"] == "all" and wrong:
                expected.add((row["num_agents"], row["model"], "all", field))
    marked = {
        (str(share.num_agents), share.model, str(share.size or "all"), field)
        for share in published_results()
        for field in share.misprinted
    }
    assert marked == expected
    assert ("5", "Kimi-K2.5", "all", "valid") in marked
