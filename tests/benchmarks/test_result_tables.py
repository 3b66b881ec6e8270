"""The tables of benchmarks/results/README.md match the committed results."""

import re
from collections.abc import Iterator

import pytest

from benchmarks import study_contrasts
from tests.paths import ROOT

CONTRAST = re.compile(r"`(\w+)` minus `(\w+)`")


def read_sections() -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield the arguments of each section's command and the rows of its tables."""
    page = (ROOT / "benchmarks/results/README.md").read_text(encoding="utf-8")
    for part in re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]:
        match = re.search(r"^python -m benchmarks\.study_contrasts (.*?)^```$", part, re.S | re.M)
        if match:
            words = match[1].replace("\\\n", " ").split()
            rows = [line.split("|")[1:-1] for line in part.splitlines() if line.startswith("| `")]
            yield words, [[cell.strip() for cell in row] for row in rows]


@pytest.mark.slow
def test_result_tables_match_committed_results(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(ROOT)
    num_compared = 0
    for words, rows in read_sections():
        paths = [word for word in words if word.endswith(".json.gz")]
        pairs = [match.groups() for row in rows if (match := CONTRAST.match(row[0]))]
        options = [word for pair in pairs for word in ("--contrast", *pair)]
        assert study_contrasts.main([*paths, *options]) == 0
        lines = capsys.readouterr().out.replace("+0.0", "0.0").splitlines()
        for name, *cells in rows:
            if match := CONTRAST.match(name):
                start, numbers = (
                    "  {} - {}: ".format(*match.groups()),
                    " ".join(cells[:2]).replace("+0.0", "0.0"),
                )
            elif "→" in cells[0]:
                start, numbers = f"  {re.findall('`(.+?)`', name)[0]} ", cells[0].replace("→", "->")
            else:
                continue
            assert any(line.startswith(start) and numbers in line for line in lines), name
            num_compared += 1
    assert num_compared > 35
