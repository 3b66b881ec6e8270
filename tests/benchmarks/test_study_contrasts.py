"""Contrasts from outcomes: pieces are joined, and the numbers are those of the answers."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks.study_contrasts import Contrast, contrast, main, rate, read_pieces, regret
from tests.paths import ROOT
from training.analysis.study.bootstrap import Interval

BOARDS = 400


def _write(
    path: Path, skills: dict[tuple[str, int], float], start: float = 0.3, **changes: Any
) -> Path:
    """Write answers: boards have a common difficulty, so that runs agree about them.

    Before training all give the same answers, which follow from `start` alone.
    """
    hard = np.random.default_rng(0).random(BOARDS)
    runs = []
    for (engineer, seed), skill in skills.items():
        noise = np.random.default_rng([seed, len(engineer)]).random(BOARDS)
        rows = [hard < start, 0.7 * hard + 0.3 * noise < skill]
        valid = ["".join(map(str, row.astype(int).tolist())) for row in rows]
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
    assert one.difference.beyond == 1
    assert contrast(runs, "blind", "reads").difference.value == -one.difference.value


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_power_is_how_often_a_t_test_over_seeds_finds_the_difference(seeds: int):
    """Simulated studies, tested by SciPy's own paired test."""
    deviation = 0.01
    nothing = Interval(0.0, 0.0, 0.0, 0)
    one = Contrast("a", "b", tuple(range(seeds)), nothing, deviation)
    rng = np.random.default_rng(seeds)
    for difference in (one.detectable, 0.02):
        drawn = rng.normal(difference, deviation, (20_000, seeds))
        found = np.mean(stats.ttest_1samp(drawn, 0.0, axis=1).pvalue < 0.05)
        assert one.power(difference) == pytest.approx(found, abs=0.015)
    assert one.power(one.detectable) == pytest.approx(0.8)
    assert one.power(0.0) == pytest.approx(0.05, rel=1e-3)


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_the_interval_over_seeds_is_that_of_the_paired_t_test(seeds: int):
    """Its ends are those of SciPy."""
    differences = np.random.default_rng(seeds).normal(0.01, 0.01, seeds)
    mean, deviation = float(differences.mean()), float(differences.std(ddof=1))
    one = Contrast("a", "b", tuple(range(seeds)), Interval(mean, 0.0, 0.0, 0), deviation)
    expected = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    assert one.over_seeds == pytest.approx((expected.low, expected.high))
    assert np.isnan(one._replace(deviation=np.nan).over_seeds).all()
    assert one._replace(deviation=0.0).over_seeds == (mean, mean)


def test_the_report_shows_both_intervals_of_a_difference(
    pieces: list[Path], capsys: pytest.CaptureFixture[str]
):
    one = contrast(read_pieces(pieces), "reads", "blind")
    names = ["--contrast", "reads", "blind", "--contrast", "reads", "worst"]
    assert main([*map(str, pieces), *names]) == 0
    _, printed = capsys.readouterr().out.split("Differences")
    paired, single = (line for line in printed.splitlines() if line.startswith("  reads"))
    low, high = (f"{100 * end:+.1f}" for end in one.over_seeds)
    bootstrap = f"[{100 * one.difference.low:+.1f}, {100 * one.difference.high:+.1f}]"
    assert f"{bootstrap}, seeds [{low}, {high}], 2 seeds" in paired
    assert "seeds unknown, 1 seeds" in single


def test_without_spread_between_seeds_power_is_unknown(
    pieces: list[Path], capsys: pytest.CaptureFixture[str]
):
    runs = [run for run in read_pieces(pieces) if run.seed == 1]
    single = contrast(runs, "reads", "blind")
    assert np.isnan([single.deviation, single.detectable, single.power(0.02)]).all()
    same = contrast(read_pieces(pieces), "blind", "blind")
    assert same.deviation == 0.0
    assert np.isnan([same.detectable, same.power(0.02)]).all()
    assert main([*map(str, pieces), "--contrast", "blind", "blind"]) == 0
    assert "2 seeds, 0.0 apart, power unknown" in capsys.readouterr().out


def test_the_report_names_every_engineer(pieces: list[Path], capsys: pytest.CaptureFixture[str]):
    names = ["--contrast", "reads", "blind", "--scale", "worst", "reads"]
    assert main([*map(str, pieces), *names]) == 0
    printed = capsys.readouterr().out
    assert "reads - blind: +" in printed
    assert "2 seeds" in printed
    assert "how often 2 points are found" in printed
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
    with pytest.raises(SystemExit, match="2"):
        main([str(pieces[0]), "--detect", "nan"])
    assert "--detect: got nan" in capsys.readouterr().err
    pieces[0].write_bytes(b"no gzip")
    assert main([str(pieces[0])]) == 2
    assert "can't be read as outcomes" in capsys.readouterr().err


def test_runs_that_began_with_another_model_are_refused(
    pieces: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    other = _write(tmp_path / "other.json.gz", {("reads", 9): 0.6}, start=0.45)
    assert main([str(pieces[0]), str(other)]) == 2
    said = capsys.readouterr().err
    assert f"{other}: reads, seed 9: began with another model" in said
    assert "allowed are 5%" in said
    near = _write(tmp_path / "near.json.gz", {("reads", 9): 0.6}, start=0.31)
    assert main([str(pieces[0]), str(near)]) == 0  # as on another machine


def test_pieces_of_different_base_models_in_the_repository_are_refused():
    folder = ROOT / "benchmarks/results/study-3-engineers"
    earlier, shipped, again = (folder / f"piece-{n}.outcomes.json.gz" for n in (1, 3, 6))
    with pytest.raises(ValueError, match="began with another model"):
        read_pieces([earlier, shipped])
    assert len(read_pieces([shipped, again])) == 33


def test_regret_is_that_of_common_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Seed 2 is easier for all, and the engineer and one end of the scale have seed 1 alone."""
    skills = {("best", 1): 0.6, ("best", 2): 0.8, ("worst", 1): 0.3, ("worst", 2): 0.5}
    skills |= {("half", 1): 0.45, ("alone", 7): 0.5}
    file = _write(tmp_path / "a.json.gz", skills)
    runs = read_pieces([file])
    rates = {(run.engineer, run.seed): run.valid[-1].mean() for run in runs}
    best, worst, half = (rates[name, 1] for name in ("best", "worst", "half"))
    found = regret(runs, "half", "worst", "best")
    assert found == pytest.approx((best - half) / (best - worst))
    assert found == pytest.approx(0.5, abs=0.1)
    assert main([str(file), "--scale", "worst", "best"]) == 0
    printed = capsys.readouterr().out.split("Regret")[1]
    assert f"half   {found:.2f}" in printed
    assert "alone  unknown, no common seed" in printed
