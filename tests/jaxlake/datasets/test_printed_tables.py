"""The published results are complete; impossible numbers are marked."""

import csv
from fractions import Fraction
from pathlib import Path

import jaxlake.datasets
from jaxlake.datasets import published_models, published_results
from jaxlake.datasets.paper_benchmark import V2
from jaxlake.datasets.printed_tables import FILE_NAME

FILE = Path(jaxlake.datasets.__file__).with_name(FILE_NAME)


def test_published_models_have_all_cells_and_aggregates():
    places = {(one.num_agents, one.model, one.size) for one in published_results()}
    models = published_models()
    assert len(models) == 7
    assert "Qwen3-4B (base)" in models
    cells = [*V2.cells, *((agents, None) for agents in (3, 4, 5))]
    assert places == {(agents, model, size) for agents, size in cells for model in models}
    assert len(published_results()) == len(places) == 168


def test_published_marks_match_exact_arithmetic():
    """Counts of 150 are recovered as fractions; the means of counts are compared with a mean."""
    rows = list(csv.DictReader(FILE.read_text().splitlines()))
    expected = set()
    for field in ("valid", "optimal"):
        cells: dict[tuple[str, str], list[Fraction]] = {}
        for row in rows:
            printed = Fraction(row[f"{field}_pct"])
            if row["size"] == "all":
                continue
            counts = [Fraction(100 * k, 150) for k in range(151)]
            fits = [one for one in counts if abs(one - printed) <= Fraction(1, 200)]
            if not fits:
                expected.add((row["num_agents"], row["model"], row["size"], field))
            cells.setdefault((row["num_agents"], row["model"]), []).append(
                fits[0] if fits else printed
            )
        for row in rows:
            own = cells[row["num_agents"], row["model"]]
            wrong = abs(sum(own) / len(own) - Fraction(row[f"{field}_pct"])) > Fraction(1, 200)
            if row["size"] == "all" and wrong:
                expected.add((row["num_agents"], row["model"], "all", field))
    found = {
        (str(one.num_agents), one.model, str(one.size or "all"), field)
        for one in published_results()
        for field in one.misprinted
    }
    assert found == expected
    assert ("5", "Kimi-K2.5", "all", "valid") in found
