"""The studies whose answers are kept: numbers are recomputed, and the page holds what they say."""

import gzip
import json
import re
from pathlib import Path

import pytest

from benchmarks.recomputed_study import disagreements_with_answers
from benchmarks.recomputed_study.__main__ import main as recompute
from benchmarks.study_contrasts import Answers, contrast, read_pieces, regret
from tests.paths import ROOT

RESULTS = ROOT / "benchmarks/results"
STUDY_3 = RESULTS / "study-3-engineers"
PIECES = {
    "study-2-headroom": [RESULTS / "study-2-headroom/outcomes.json.gz"],
    "study-2-headroom/again": [RESULTS / "study-2-headroom/again.outcomes.json.gz"],
    **{
        f"study-3-engineers/piece-{number}": [STUDY_3 / f"piece-{number}.outcomes.json.gz"]
        for number in range(1, 9)
    },
    "study-4-ablation": [RESULTS / "study-4-ablation/outcomes.json.gz"],
    "study-5-sizes": [RESULTS / "study-5-sizes/outcomes.json.gz"],
}
# Their `fixed` answered as that of piece 3 did, which holds its answers.
for name in ("study-3-engineers/piece-4", "study-3-engineers/piece-5"):
    PIECES[name].append(STUDY_3 / "piece-3.outcomes.json.gz")


def results_of(name: str) -> Path:
    """The numbers of a piece: `again.results.json.gz`, or `results.json.gz` in its folder."""
    folder = RESULTS / name
    return folder / "results.json.gz" if folder.is_dir() else Path(f"{folder}.results.json.gz")


def test_every_file_of_answers_is_checked():
    assert {file for files in PIECES.values() for file in files} == {
        *RESULTS.glob("study-*/*outcomes.json.gz")
    }
    assert {results_of(name) for name in PIECES} == {*RESULTS.glob("study-*/*results.json.gz")}


@pytest.mark.parametrize("name", ["study-2-headroom/again", "study-3-engineers/piece-5"])
def test_the_numbers_of_a_kept_study_follow_from_its_answers(name: str):
    compared, found = disagreements_with_answers(PIECES[name], results_of(name), resamples=50)
    assert found == []
    assert compared > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", PIECES)
def test_all_numbers_of_kept_studies_follow_from_their_answers(name: str):
    """So many resamples that both sides of the intervals' ends are checked."""
    compared, found = disagreements_with_answers(PIECES[name], results_of(name), resamples=1000)
    assert found == []
    assert compared > 1000


def test_what_differs_from_the_answers_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    name = "study-3-engineers/piece-5"
    told = json.loads(gzip.decompress(results_of(name).read_bytes()))
    told["engineers"]["base"]["runs"]["2"]["stages"][3]["valid"] += 1
    told["engineers"]["base"]["difference"]["valid"]["value"] += 1e-6
    wrong = tmp_path / "results.json"
    wrong.write_text(json.dumps(told))
    files = [*map(str, PIECES[name]), "--resamples", "20"]
    assert recompute([*files, "--results", str(wrong)]) == 1
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.endswith("2 disagreements")
    assert {line.split(":")[0] for line in lines} == {
        "engineers.base.runs.2.stages[3].valid",
        "engineers.base.difference.valid.value",
    }
    assert recompute([files[0], "--results", str(wrong)]) == 1
    assert "fixed/1: its answers are in none of the files" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        recompute(files)
    assert "--results: is missing" in capsys.readouterr().err


NUMBER = r"[+-]?\d+(?:\.\d+)?"


def numbers(text: str) -> list[float]:
    return [float(word) for word in re.findall(NUMBER, text)]


def near(values: list[float]) -> object:
    """Equal but for the rounding to one digit."""
    return pytest.approx(values, abs=0.0501)


def sections() -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, words of the command that joins files of answers, and rows of tables, by section."""
    found = []
    page = (ROOT / "docs/findings.md").read_text(encoding="utf-8")
    for part in re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]:
        command = re.search(r"^python -m benchmarks\.study_contrasts (.*?)^```$", part, re.S | re.M)
        if command:
            words = command[1].replace("\\\n", " ").split()
            for table in re.findall(r"(?:^\|.*\n)+", part, flags=re.MULTILINE):
                lines = [line.split("|")[1:-1] for line in table.splitlines()]
                rows = [[cell.strip() for cell in line] for line in lines]
                found.append((part.splitlines()[0], words, rows))
    return found


def points_of(
    runs: list[Answers], first: str, second: str
) -> tuple[list[float], list[float], float]:
    """Difference with its interval, the interval over seeds, and what seeds find: in points."""
    one = contrast(runs, first, second)
    difference = [one.difference.value, one.difference.low, one.difference.high]
    return (
        [100 * value for value in difference],
        [100 * value for value in one.over_seeds],
        100 * one.detectable,
    )


def check_arm(runs: list[Answers], arm: str, row: dict[str, str], scale: list[str]) -> int:
    """Hold the cells of an arm to its answers, and count those that were."""
    held, difference = 0, None
    for head, cell in row.items():
        names = re.findall(r"`(\w+)`", head)
        if not cell or head == "arm":
            continue
        held += 1
        if head.startswith("valid after"):
            own = [run.valid.mean(axis=1) for run in runs if run.engineer == arm]
            assert numbers(cell) == near([100 * sum(s) / len(own) for s in zip(*own, strict=True)])
        elif head.startswith("regret"):
            assert numbers(cell) == pytest.approx([regret(runs, arm, *scale)], abs=0.00501)
        elif "less it" in head or head.startswith("less "):
            pair = (names[0], arm) if "less it" in head else (arm, names[0])
            difference, over_seeds, found = points_of(runs, *pair)
            assert numbers(cell) == near(difference)
        elif head == "on these boards":
            assert numbers(cell) == near(over_seeds)
        else:
            assert head == "three seeds would find"
            assert numbers(cell) == near([found])
    return held


def test_the_tables_of_the_findings_hold_what_the_answers_say():
    """Every cell of every arm and every contrast, from the files that the command beside names."""
    held, pieces = 0, dict[str, list[Answers]]()
    for title, words, (heads, _, *rows) in sections():
        files = [word for word in words if word.endswith(".json.gz")]
        assert {RESULTS.parents[1] / file for file in files} <= {*RESULTS.glob("*/*.gz")}, title
        key = " ".join(files)
        if key not in pieces:
            pieces[key] = read_pieces([ROOT / file for file in files])
        runs = pieces[key]
        scale = words[words.index("--scale") + 1 :][:2] if "--scale" in words else []
        for cells in rows:
            row = dict(zip(heads, cells, strict=True))
            if heads[0] == "arm":
                for arm in re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", cells[0])):
                    held += check_arm(runs, arm, row, scale)
            elif heads[0].startswith("contrast"):
                pair = re.match(r"`(\w+)` less `(\w+)`", cells[0])
                assert pair, cells
                difference, over_seeds, _ = points_of(runs, *pair.groups())
                assert numbers(" ".join(cells[1:3])) == near(difference), cells
                assert len(cells) < 4 or numbers(cells[3]) == near(over_seeds), cells
                held += len(cells) - 1
    assert held > 150
