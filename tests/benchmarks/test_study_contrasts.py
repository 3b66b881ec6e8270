"""Contrasts join the pieces of a study and match the stored answers."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.study_contrasts import compute_regret, get_final_answers, main, read_pieces
from tests.paths import ROOT
from training.analysis.study.contrasts import contrast

NUM_BOARDS = 400


def _write_outcomes(
    path: Path, skills: dict[tuple[str, int], float], start_rate: float = 0.3, **changes: Any
) -> Path:
    """Write the outcomes of runs with the same board difficulties and the same start."""
    difficulties = np.random.default_rng(0).random(NUM_BOARDS)
    runs = []
    for (engineer, seed), skill in skills.items():
        noise = np.random.default_rng([seed, len(engineer)]).random(NUM_BOARDS)
        rows = [difficulties < start_rate, 0.7 * difficulties + 0.3 * noise < skill]
        valid = ["".join(map(str, row.astype(int).tolist())) for row in rows]
        runs.append({"engineer": engineer, "seed": seed, "valid": valid})
    boards = [{"grid": [str(number)]} for number in range(NUM_BOARDS)]
    content = {"boards": boards, "runs": runs} | changes
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    skills = {("reads", 1): 0.6, ("blind", 1): 0.5, ("blind", 2): 0.52, ("worst", 1): 0.35}
    return [
        _write_outcomes(tmp_path / "a.json.gz", skills),
        _write_outcomes(tmp_path / "b.json.gz", {("reads", 2): 0.66, ("reads", 3): 0.62}),
    ]


def test_report_shows_both_paired_intervals(paths: list[Path], capsys: pytest.CaptureFixture[str]):
    runs = read_pieces(paths)
    expected = contrast(get_final_answers(runs, "reads"), get_final_answers(runs, "blind"))
    options = ["--contrast", "reads", "blind", "--contrast", "reads", "worst"]
    assert main([*map(str, paths), *options, "--scale", "worst", "reads"]) == 0
    output = capsys.readouterr().out
    line_1, line_2 = (line for line in output.splitlines() if line.startswith("  reads - "))
    low, high = (f"{100 * bound:+.1f}" for bound in expected.over_seeds)
    bootstrap = f"[{100 * expected.difference.low:+.1f}, {100 * expected.difference.high:+.1f}]"
    assert f"{bootstrap}, seeds [{low}, {high}], 2 seeds" in line_1
    assert "seeds unknown, 1 seeds" in line_2
    regret_rows = [line.split() for line in output.split("Regret")[1].splitlines()[1:]]
    assert [words[0] for words in regret_rows] == ["reads", "blind", "worst"]
    assert [words[1] for words in regret_rows if words[0] != "blind"] == ["0.00", "1.00"]


def test_contrasts_reject_different_base_models():
    folder = ROOT / "benchmarks/results/study-3-engineers"
    piece_1, piece_3, piece_6 = (folder / f"piece-{n}.outcomes.json.gz" for n in (1, 3, 6))
    with pytest.raises(ValueError, match="began with another model"):
        read_pieces([piece_1, piece_3])
    assert sum(map(len, read_pieces([piece_3, piece_6]).values())) == 33


def test_regret_uses_common_seeds(tmp_path: Path):
    """Seed 2 is easier for all, but `half` only has seed 1."""
    skills = {("best", 1): 0.6, ("best", 2): 0.8, ("worst", 1): 0.3, ("worst", 2): 0.5}
    skills |= {("half", 1): 0.45, ("alone", 7): 0.5}
    runs = read_pieces([_write_outcomes(tmp_path / "a.json.gz", skills)])
    best, worst, half = (
        get_final_answers(runs, name)[1].mean() for name in ("best", "worst", "half")
    )
    half_regret = compute_regret(runs, "half", "worst", "best")
    assert half_regret == pytest.approx((best - half) / (best - worst))
    assert np.isnan(compute_regret(runs, "alone", "worst", "best"))
