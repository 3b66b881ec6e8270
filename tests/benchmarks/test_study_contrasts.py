"""Contrasts from outcomes: pieces are joined, and the numbers are those of the answers."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.study_contrasts import contrast, main, rate, read_pieces

BOARDS = 400


def _write(path: Path, skills: dict[tuple[str, int], float], **changes: Any) -> Path:
    """Write answers: boards have a common difficulty, so that runs agree about them."""
    hard = np.random.default_rng(0).random(BOARDS)
    runs = []
    for (engineer, seed), skill in skills.items():
        noise = np.random.default_rng([seed, len(engineer)]).random(BOARDS)
        rows = [(0.7 * hard + 0.3 * noise < level).astype(int) for level in (0.3, skill)]
        valid = ["".join(map(str, row.tolist())) for row in rows]
        runs.append({"engineer": engineer, "seed": seed, "valid": valid})
    boards = [{"grid": [str(number)]} for number in range(BOARDS)]
    content = {"boards": boards, "runs": runs} | changes
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


@pytest.fixture
def pieces(tmp_path: Path) -> list[Path]:
    first = {("reads", 1): 0.6, ("blind", 1): 0.5, ("blind", 2): 0.52, ("worst", 1): 0.35}
    return [
        _write(tmp_path / "a.json.gz", first),
        _write(tmp_path / "b.json.gz", {("reads", 2): 0.66, ("reads", 3): 0.62}),
    ]


def test_pieces_are_joined_and_seeds_are_paired(pieces: list[Path]):
    runs = read_pieces(pieces)
    answers = {(run.engineer, run.seed): run.valid[-1].mean() for run in runs}
    assert rate(runs, "reads").value == pytest.approx(
        np.mean([answers["reads", seed] for seed in (1, 2, 3)])
    )
    one = contrast(runs, "reads", "blind")
    differences = [answers["reads", seed] - answers["blind", seed] for seed in (1, 2)]
    assert one.seeds == (1, 2)
    assert one.difference.value == pytest.approx(np.mean(differences))
    assert one.deviation == pytest.approx(np.std(differences, ddof=1))
    assert one.detectable == pytest.approx(2.802 * one.deviation / 2**0.5, rel=1e-3)
    assert one.difference.beyond == 1
    assert contrast(runs, "blind", "reads").difference.value == -one.difference.value


def test_the_report_names_every_engineer(pieces: list[Path], capsys: pytest.CaptureFixture[str]):
    names = ["--contrast", "reads", "blind", "--scale", "worst", "reads"]
    assert main([*map(str, pieces), *names]) == 0
    printed = capsys.readouterr().out
    assert "reads - blind: +" in printed
    assert "2 seeds" in printed
    regret = printed.split("Regret")[1].splitlines()[1:]
    assert [line.split()[0] for line in regret] == ["reads", "blind", "worst"]
    assert [float(line.split()[1]) for line in regret if "blind" not in line] == [0.0, 1.0]


def test_what_does_not_fit_is_named(
    pieces: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main([str(pieces[0]), str(pieces[0])]) == 2
    assert "reads, seed 1: is in two files" in capsys.readouterr().err
    other = _write(tmp_path / "c.json.gz", {("reads", 9): 0.6}, boards=[{"grid": ["x"]}] * BOARDS)
    assert main([str(pieces[0]), str(other)]) == 2
    assert "its boards are not those of" in capsys.readouterr().err
    assert main([str(pieces[0]), "--contrast", "reads", "nobody"]) == 2
    assert "nobody: is no engineer here; there are blind, reads, worst" in capsys.readouterr().err
    pieces[0].write_bytes(b"no gzip")
    assert main([str(pieces[0])]) == 2
    assert "can't be read as outcomes" in capsys.readouterr().err
