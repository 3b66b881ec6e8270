"""The numbers on DesignBench's page come from its committed results."""

import json

from engineer.bench.scores import difference, read_results, verdict
from engineer.bench.version import SIZES
from engineer.engineers.catalogue import SCRIPTED
from tests.paths import ROOT

PAGE = (ROOT / "docs/how_to/designbench.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks/results"


def test_designbench_page_shows_the_committed_results():
    results = read_results(RESULTS / "designbench-v1.json")
    rows = {
        line.split("|")[1].strip(" `"): line for line in PAGE.splitlines() if line.startswith("| `")
    }
    assert set(rows) == {*SCRIPTED, "jaxlake-base"}
    for name, row in rows.items():
        own = {groups: results.entry(name, groups) for groups in SIZES}
        others = [(groups, "fixed") for groups in SIZES if name != "fixed"]
        others += [(4, "easy_to_hard")] if name != "easy_to_hard" else []
        others += [(4, f"{prefix}:{name}") for prefix in ("shuffled", "simulated")]
        for groups, other in others:
            entry = results.entry(other, groups)
            if entry is not None:
                assert str(difference(own[groups], entry)).replace(" ", "") in row
        reads = [verdict(results, own[groups]) for groups in SIZES]
        words = {"reads": "yes", "does not read": "no"}
        expected = "blind" if reads[0] == "blind" else ", ".join(words[one] for one in reads)
        assert row.endswith(f"| {expected} |")


def test_designbench_page_shows_the_committed_correlations():
    content = json.loads((RESULTS / "designbench-validity.json").read_text())
    correlations = [f"{value:.2f}" for value in content["rank_correlation_held_out"].values()]
    assert all(value in PAGE for value in correlations)
