"""The benchmark measures the same work on both sides, and says what is missing."""

import json
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from benchmarks.lake import comparison, tables
from benchmarks.lake.__main__ import main
from benchmarks.lake.cases import CPU, GPU, QUICK, Case, Side, cases
from benchmarks.lake.comparison import Effort, agreement, compare, failure_of
from benchmarks.lake.curves import curves, limits
from benchmarks.lake.protocol import ROOT, Worker, WorkerError, repeat
from benchmarks.lake.random_boards import connected, write_boards


def _free_component(free: np.ndarray, start: tuple[int, int]) -> set[tuple[int, int]]:
    seen, queue = {start}, [start]
    for row, column in queue:
        for cell in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            if min(cell) >= 0 and max(cell) < len(free) and free[cell] and cell not in seen:
                seen.add(cell)
                queue.append(cell)
    return seen


@pytest.mark.parametrize(("size", "holes", "agents"), [(10, 0.3, 2), (6, 0.4, 4), (17, 0.2, 3)])
def test_boards_have_their_holes_distinct_ends_and_goals_in_reach(tmp_path, size, holes, agents):
    path = tmp_path / "boards.npz"
    write_boards(path, count=50, size=size, num_agents=agents, hole_ratio=holes, seed=3)
    boards = np.load(path)
    assert boards["holes"].shape == (50, size, size)
    assert (boards["holes"].sum((1, 2)) == int(holes * size * size + 1e-9)).all()
    for field, starts, goals in zip(
        *(boards[k] for k in ("holes", "starts", "goals")), strict=True
    ):
        ends = [tuple(map(int, cell)) for cell in (*starts, *goals)]
        assert len(set(ends)) == 2 * agents
        assert not any(field[cell] for cell in ends)
        for start, goal in zip(ends[:agents], ends[agents:], strict=True):
            assert goal in _free_component(~field, start)
    again = tmp_path / "again.npz"
    write_boards(again, count=50, size=size, num_agents=agents, hole_ratio=holes, seed=3)
    assert np.array_equal(np.load(again)["holes"], boards["holes"])


def test_boards_with_a_cut_off_agent_are_told_as_a_plain_search_tells_them():
    rng = np.random.default_rng(0)
    free = rng.random((300, 7, 7)) < 0.6
    places = rng.integers(0, 7, (300, 2, 2, 2))
    for board, ends in zip(free, places, strict=True):
        for row, column in ends.reshape(-1, 2):
            board[row, column] = True
    kept = connected(free, places[:, 0], places[:, 1])
    for board, ends, told in zip(free, places.tolist(), kept, strict=True):
        pairs = zip(*ends, strict=True)
        assert told == all(tuple(g) in _free_component(board, tuple(s)) for s, g in pairs)
    assert 0 < kept.sum() < 300


WORKER = """
import sys, time
from benchmarks.lake.protocol import repeat, serve
print("a library's chatter")
class Contest:
    def echo(self, **fields): return fields
    def fail(self): raise RuntimeError("three\\nlines\\nof it")
    def sleep(self, seconds): time.sleep(seconds)
    def die(self): sys.exit("cause of death")
serve(Contest())
"""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    (tmp_path / "some_worker.py").write_text(textwrap.dedent(WORKER))
    with Worker(Path(sys.executable), "some_worker", {"PYTHONPATH": str(tmp_path)}) as worker:
        yield worker


def test_a_worker_answers_and_survives_what_its_handlers_raise(worker):
    assert worker.ask("echo", 30, number=1.5, text="x") == {"number": 1.5, "text": "x"}
    with pytest.raises(WorkerError, match=r"some_worker: RuntimeError: three$"):
        worker.ask("fail", 30)
    assert worker.ask("echo", 30) == {}


def test_a_worker_that_dies_is_named_with_what_it_said(worker):
    with pytest.raises(WorkerError, match=r"some_worker: ended with status 1: .*cause of death"):
        worker.ask("die", 30)


def test_a_worker_that_hangs_is_given_up(worker):
    worker.ask("echo", 30)
    with pytest.raises(WorkerError, match=r"no answer to 'sleep' within 0\.5 s"):
        worker.ask("sleep", 0.5, seconds=60)


def test_repeat_counts_all_units_in_the_time_that_passed():
    calls = []
    measured = repeat(lambda: calls.append(1) or 7, 0.02)
    assert measured["units"] == 7 * len(calls)
    assert measured["seconds"] >= 0.02
    assert repeat(lambda: 1, 0)["units"] == 1


def test_names_are_unique_and_every_worker_module_exists():
    for sizes, on_gpu in ((CPU, False), (GPU, True), (QUICK, False)):
        rows = cases(sizes, on_gpu)
        lines = curves(False, on_gpu, 2)
        names = [item.name for item in rows] + [item.name for item in lines]
        assert len(names) == len(set(names))
        sides = [side for row in rows for side in (row.ours, row.peer) if side is not None]
        for side in (*sides, *(line.side for line in lines)):
            assert (ROOT / Path(*side.module.split("."))).with_suffix(".py").is_file()


def test_a_row_is_measured_in_turns_and_its_optima_are_compared():
    """On a small set of boards with two agents, whoever is faster."""
    row = next(row for row in cases(QUICK, False) if row.name == "solve-2-agents-30-holes")
    small = Case(**{**vars(row), "boards": row.boards.__class__(64, 2, 0.3, size=6)})
    small.ours.fields["count"] = 64
    measured = compare(small, Effort(seconds=0.05, repeats=2, devices=1), cores=1)
    assert failure_of(measured) is None
    for side in ("ours", "peer"):
        assert len(measured[side]["rates"]) == 2
        assert measured[side]["min"] <= measured[side]["median"] <= measured[side]["max"]
        assert measured[side]["peak_host_bytes"] > 1 << 20
    assert measured["ours"]["compile_seconds"] > 0
    assert measured["agreement"]["compared"] > 32
    assert measured["agreement"]["different"] == 0
    pairs = zip(measured["ours"]["rates"], measured["peer"]["rates"], strict=True)
    ratios = [ours / peer for ours, peer in pairs]
    assert (measured["ratio"]["min"], measured["ratio"]["max"]) == (min(ratios), max(ratios))
    assert measured["met"] == (measured["ratio"]["median"] >= 5)


def test_one_different_optimum_makes_a_row_worthless():
    ours = {"status": [0, 0, 1, 2], "costs": [5, 7, -1, -1]}
    same = agreement(ours, {"costs": [[0, 5], [1, None], [3, 9]]})
    counts = {"boards": 4, "seen_by_peer": 3, "compared": 1, "different": 0}
    assert same == counts | {"only_ours": 1, "only_peer": 1}
    for lie in ([0, 6], [2, 4]):
        told = agreement(ours, {"costs": [lie]})
        row = {"name": "r", "ours": {}, "agreement": told}
        assert failure_of(row) == "r: 1 optima differ from the peer's"


def test_a_missing_peer_is_named_with_its_cure_and_fails_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(comparison, "ROOT", tmp_path)
    ours = Side("ours", "benchmarks.lake.workers.machine_speed")
    for environment, cure in (("jax", "tools/peers.sh"), ("own", "pip install no-such-peer")):
        peer = Side("peer", "no_such_peer", environment, package="no-such-peer")
        if environment == "own":
            (tmp_path / "no_such_peer.py").write_text("import no_such_package")
            monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        case = Case("row", "board", "", ours=ours, peer=peer, goal=5)
        row = compare(case, Effort(seconds=0.01, repeats=0, devices=1), cores=1)
        assert row["peer"]["error"].startswith("not installed")
        assert cure in row["peer"]["error"]
        assert row["ratio"] is None
        assert row["met"] is None
        assert failure_of(row) is None


def _curve(rates, **extra):
    points = [
        {"x": b, "batch": b, "rate": r, "batch_seconds": b / r, **extra} for b, r in rates.items()
    ]
    return {"name": "some-batch", "points": points}


@pytest.mark.parametrize(
    ("bytes_per_unit", "limit"), [(1.0, "arithmetic"), (80.0, "memory traffic"), (None, "not told")]
)
def test_the_limit_follows_from_the_numbers(bytes_per_unit, limit):
    machine = {"copy_memory_bytes_per_second": 1e6}
    extra = {} if bytes_per_unit is None else {"bytes_per_unit": bytes_per_unit}
    # One unit takes a millisecond alone; a thousand take a hundred.
    record = limits([_curve({1: 1e3, 4: 3e3, 1000: 1e4}, **extra)], machine)[0]
    assert [p["limit"] for p in record["points"]][:2] == ["launches", "launches"]
    assert record["points"][2]["limit"].startswith(limit)
    assert record["points"][2]["fixed_share"] == pytest.approx(0.01)


@pytest.mark.parametrize(("faster", "limit"), [(1.1, "memory traffic"), (1.9, "arithmetic")])
def test_the_limit_of_a_search_follows_from_more_devices(faster, limit):
    devices = {
        "name": "solve-devices",
        "points": [{"x": 1, "rate": 10.0}, {"x": 4, "rate": 10.0 * faster**2}],
    }
    record = limits([_curve({1: 1e3, 1000: 1e4}), devices], {"copy_memory_bytes_per_second": 1})[0]
    assert record["devices_speedup"] == pytest.approx(faster)
    assert record["points"][-1]["limit"] == limit


@pytest.mark.slow
def test_the_command_writes_what_it_prints_and_the_table_can_be_made_of_it(tmp_path, capsys):
    file = tmp_path / "deep" / "lake.json"
    arguments = ["--quick", "--only", "steps-batch", "--seconds", "0.01", "--repeats", "1"]
    assert main(["--json", str(file), "--devices", "1", *arguments]) == 0
    result = json.loads(file.read_text())
    assert result["schema"] == 1
    assert result["machine"]["devices"] == 1
    assert result["rows"] == []
    points = result["curves"][0]["points"]
    assert [point["rate"] > 0 for point in points] == [True] * len(points)
    assert "limit of steps-batch: launches at batch" in capsys.readouterr().out
    assert tables.short(points[-1]["rate"]) in tables.markdown(result)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "no-such-row"], "--only: got 'no-such-row', allowed are parts of solve-2"),
        (["--seconds", "0"], "--seconds: got 0, 0.001 to 1000000.0 are allowed"),
        (["--devices", "4096"], "devices: got 4096, 1 to"),
    ],
)
def test_wrong_use_is_one_clear_message(arguments, said, capsys):
    try:
        status = main(["--quick", *arguments])
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert said in capsys.readouterr().err


def test_the_document_shows_the_committed_results():
    text = tables.DOCUMENT.read_text(encoding="utf-8")
    assert tables.document(text, tables.committed()) == text, (
        "python -m benchmarks.lake.tables --write"
    )


def test_committed_results_were_not_made_in_a_hurry():
    for result in tables.committed():
        assert not result["quick"]
        assert result["repeats"] >= 5
        assert not [failure_of(row) for row in result["rows"] if failure_of(row)]


@pytest.mark.parametrize(
    ("number", "said"),
    [(0.0123456, "0.0123"), (999.0, "999"), (12345, "12.3k"), (2.5e6, "2.5M"), (3e9, "3G")],
)
def test_numbers_are_short(number, said):
    assert tables.short(number) == said
