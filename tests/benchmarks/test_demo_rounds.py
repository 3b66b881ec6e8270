"""Rounds from timings: parts are summed by stage, what compiled is left out, the rest is scaled."""

import json
from pathlib import Path

import pytest

from benchmarks.demo_rounds import UPDATES, main, rounds_of, times_more


def _line(phase: str, stage: int, **seconds: float) -> dict[str, object]:
    return {"phase": phase, "stage": stage, "step": 1, "seconds": seconds}


LINES = [
    _line("validate", 0, validate=50.0),
    _line("train", 1, rollout=2.0, update=30.0, sync=1.0),
    _line("train", 1, rollout=2.0, update=3.0, sync=1.0),
    _line("train", 1, rollout=2.0, update=5.0, sync=1.0),
    _line("train", 1, rollout=2.0, update=4.0, sync=1.0),
    _line("validate", 1, validate=6.0),
    _line("reading", 2, reading=7.0),
]


def test_rounds_are_summed_and_what_compiled_counts_as_the_median():
    first, second = rounds_of(LINES).values()
    assert first == {"rollout": 8.0, "sync": 4.0, "validate": 6.0, "update": 4.5 + 3 + 5 + 4}
    assert second == {"reading": 7.0}


def test_printed_rounds_are_scaled_by_the_measured_updates(tmp_path: Path, capsys):
    (tmp_path / "timings.jsonl").write_text("".join(json.dumps(one) + "\n" for one in LINES))
    assert main([str(tmp_path)]) == 0
    factor = times_more(json.loads(UPDATES.read_text())["updates"])
    assert factor > 2
    heads, row, other = capsys.readouterr().out.splitlines()[1:]
    shown = dict(zip(heads.split(), map(float, row.split()), strict=True))
    assert shown["stage"] == 1
    assert shown["round"] == 34.5
    assert shown["plain"] == pytest.approx(34.5 + (factor - 1) * 16.5, abs=0.06)
    assert shown["times"] == pytest.approx(shown["plain"] / 34.5, abs=0.006)
    assert other.split()[-1] == "1.00"


def test_what_is_no_run_is_named(tmp_path: Path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "timings.jsonl" in capsys.readouterr().err
    (tmp_path / "timings.jsonl").write_text("{}\n")
    assert main([str(tmp_path)]) == 2
    (tmp_path / "timings.jsonl").write_text(json.dumps(LINES[0]) + "\n")
    assert main([str(tmp_path)]) == 2
    assert "a round is needed" in capsys.readouterr().err
