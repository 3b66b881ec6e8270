"""The numbers on the pages of DesignBench match its committed results."""

import json

from engineer.bench.scores import paired_difference, read_results, verdict
from engineer.bench.version import SIZES
from engineer.engineers.catalogue import SCRIPTED_ENGINEERS
from tests.paths import ROOT

PAGE = (ROOT / "docs/how_to/designbench.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks/results"


def test_designbench_page_shows_committed_results():
    results = read_results(RESULTS / "designbench-v1.json")
    rows = {
        line.split("|")[1].strip(" `"): line for line in PAGE.splitlines() if line.startswith("| `")
    }
    assert set(rows) == {*SCRIPTED_ENGINEERS, "jaxlake-base"}
    for name, row in rows.items():
        entries = {groups: results.entry(name, groups) for groups in SIZES}
        opponents = [(groups, "fixed") for groups in SIZES if name != "fixed"]
        opponents += [(4, "easy_to_hard")] if name != "easy_to_hard" else []
        opponents += [(4, f"{prefix}:{name}") for prefix in ("shuffled", "simulated")]
        for groups, opponent in opponents:
            opponent_entry = results.entry(opponent, groups)
            if opponent_entry is not None:
                assert (
                    str(paired_difference(entries[groups], opponent_entry)).replace(" ", "") in row
                )
        verdicts = {groups: verdict(results, entries[groups]) for groups in SIZES}
        reading_groups = [str(groups) for groups in SIZES if verdicts[groups] == "reads"]
        expected = ", ".join(reading_groups) if "blind" not in verdicts.values() else "blind"
        assert row.endswith(f"| {expected} |")


def test_engineers_page_shows_training_by_return():
    page = " ".join((ROOT / "docs/engineers.md").read_text(encoding="utf-8").split())
    v1, by_return = (
        read_results(RESULTS / f"designbench-{name}.json") for name in ("v1", "by-return")
    )
    name = "runs/by_return/model"
    entry, base_entry = by_return.entry(name, 4), v1.entry("jaxlake-base", 4)
    pairs = [
        (entry, by_return.entry(f"{prefix}:{name}", 4)) for prefix in ("shuffled", "simulated")
    ]
    pairs += [
        (by_return.entry(name, groups), v1.entry(opponent, groups))
        for groups in (2, 4)
        for opponent in ("rule", "learned")
    ]
    pairs += [(base_entry, v1.entry("simulated:jaxlake-base", 4))]
    for entry_1, entry_2 in pairs:
        assert str(paired_difference(entry_1, entry_2)).replace("±", "± ") in page


def test_designbench_page_shows_committed_correlations():
    content = json.loads((RESULTS / "designbench-validity.json").read_text())
    correlations = [f"{value:.2f}" for value in content["rank_correlation_held_out"].values()]
    assert all(value in PAGE for value in correlations)
