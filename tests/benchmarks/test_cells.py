"""The comparison in every cell: what is measured, what is summed up, and how it goes on."""

import json

import numpy as np
import pytest

from benchmarks.lake import cells
from benchmarks.lake.cells import Cell, all_cells, longest_share
from benchmarks.lake.random_boards import write_boards
from benchmarks.lake.workers import w9_cells
from benchmarks.lake.workers.lake_cells import effort
from jaxlake import Status


def test_there_are_as_many_cells_as_in_the_paper_and_those_of_two_agents():
    names = {cell.name for cell in all_cells()}
    two = {name for name in names if name.startswith("2ag_")}
    assert two == {f"2ag_10x10_hr0.{tenths}" for tenths in range(1, 6)}
    assert len(names - two) == 21 * 5


def test_a_cell_without_room_for_all_holes_can_be_drawn(tmp_path):
    crowded = Cell(3, 3, 0.5)
    assert crowded.drawn_ratio == 3 / 9
    write_boards(
        tmp_path / "b.npz", count=4, size=3, num_agents=3, hole_ratio=crowded.drawn_ratio, seed=0
    )
    assert np.load(tmp_path / "b.npz")["holes"].sum(axis=(1, 2)).tolist() == [3] * 4


def test_the_last_process_counts_with_the_fastest_of_the_chosen_boards():
    shares = [[(0, 1.0, 5), (2, 9.0, 7)], [(1, 2.0, 4), (3, 50.0, None)]]
    assert longest_share(shares, {0, 1, 2, 3}, 1.0) == 52.0
    assert longest_share(shares, {0, 1, 2}, 1.0) == 10.0
    assert longest_share(shares, {0, 1, 2}, 0.6) == 2.0
    assert longest_share(shares, set(), 1.0) == 0.0


ROW = {
    "cell": "3ag_4x4_hr0.3",
    "cores": 1,
    "boards": 8,
    "all_seconds": {"ours": [2.0, 1.0, 4.0], "peer": [6.0, 5.0, 9.0]},
    "shared_seconds": {"ours": [2.0], "peer": [3.0]},
    "easy_seconds": {"ours": [1.0], "peer": [2.5]},
    **{"ratio_all": 3.0, "ratio_shared": 1.5, "ratio_easy": 2.5},
    **{"unsolvable": 3, "unknown": 1, "gave_up": 2},
    **{"compared": 5, "different": 0},
}
RESULT = {
    **{"schema": cells.SCHEMA, "boards": 8, "repeats": 3, "max_time": 1.0, "commit": "c0ffee"},
    "machine": {"cpu": "a processor", "cores": 2, "load_before": 0.0},
    "rows": [ROW],
}


def test_the_table_shows_medians_and_stands_between_its_markers():
    assert cells.ratio(ROW["all_seconds"]) == 3.0
    assert cells.ratio({"ours": [0.0], "peer": [0.0]}) == 0.0
    times = "2, > 6 | > 3.00x | 2, 3 | 1.50x | 1, 2.5 | 2.50x"
    assert f"| 3ag_4x4_hr0.3 | 8 | {times} | 3 | 1 | 2 | 5 | 0 |" in cells.markdown(RESULT)
    text = cells.DOCUMENT.read_text(encoding="utf-8")
    written = cells.document(text, RESULT)
    assert "3ag_4x4_hr0.3" in written
    assert cells.document(written, RESULT) == written
    with pytest.raises(ValueError, match="cells: begin"):
        cells.document("no marker", RESULT)


def test_the_page_shows_the_committed_results():
    text, result = cells.DOCUMENT.read_text(encoding="utf-8"), json.loads(cells.RESULT.read_text())
    assert cells.document(text, result) == text


def test_a_run_goes_on_only_with_the_same_settings_and_measures_nothing_twice(tmp_path, capsys):
    file = tmp_path / "cells.json"
    file.write_text(json.dumps(RESULT))
    wanted = ["--json", str(file), "--only", ROW["cell"], "--cores", "1", "--repeats", "3"]
    assert cells.main([*wanted, "--boards", "8", "--resume"]) == 0
    assert json.loads(file.read_text()) == RESULT
    assert cells.main([*wanted, "--boards", "9", "--resume"]) == 0
    assert json.loads(file.read_text()) == RESULT
    with pytest.raises(SystemExit, match=r"max_time is 1.0, this run's is 0.5"):
        cells.main([*wanted, "--max-time", "0.5", "--resume"])
    with pytest.raises(SystemExit, match="is there; --resume goes on with it"):
        cells.main(wanted)
    assert json.loads(file.read_text()) == RESULT
    with pytest.raises(SystemExit, match="--only: got 'no such cell'"):
        cells.main([*wanted[:2], "--only", "no such cell"])


def test_only_the_cells_asked_for_are_measured_again_and_say_where(tmp_path, monkeypatch):
    file = tmp_path / "cells.json"
    other = {**ROW, "cell": "3ag_4x4_hr0.4"}
    file.write_text(json.dumps({**RESULT, "rows": [ROW, other]}))
    faster = {**ROW, "boards": 9, "unknown": 0}
    monkeypatch.setattr(cells, "measure", lambda *_: iter([faster]))
    monkeypatch.setattr(cells, "cpu_name", lambda: "another processor")
    wanted = ["--json", str(file), "--only", "3ag_4x4", "--cores", "1", "--repeats", "3"]
    assert cells.main([*wanted, "--boards", "9", "--again"]) == 0  # ended after the first of them
    written = json.loads(file.read_text())
    assert [row["cell"] for row in written["rows"]] == [other["cell"], ROW["cell"]]
    assert written["rows"][0] == other
    assert written["rows"][1].items() >= {**faster, "cpu": "another processor"}.items()
    assert f"1 at {written['rows'][1]['commit'][:12]} on another processor" in (
        cells.markdown(written)
    )


def test_times_of_the_processor_are_named_and_are_for_one_core_only(tmp_path, capsys):
    file = tmp_path / "cells.json"
    by_processor = {**ROW, "cell": "3ag_4x4_hr0.4", "clock": "processor"}
    result = {**RESULT, "rows": [ROW, by_processor]}
    file.write_text(json.dumps(result))
    options = ["--json", str(file), "--resume", "--clock", "processor"]
    with pytest.raises(SystemExit):
        cells.main(options)
    assert "--clock: got processor with --cores 1 2, it needs" in capsys.readouterr().err
    # Any of the parts chooses a cell.
    parts = ["--only", "no such cell", "3ag_4x4_hr0.4"]
    assert cells.main([*options, "--cores", "1", *parts]) == 0
    assert json.loads(file.read_text()) == result
    assert "1 at c0ffee by the processor's clock" in cells.markdown(result)


class _Peer:
    """Needs so many seconds of the processor, which others use half of the time."""

    def __init__(self, needed):
        self.needed, self.now = needed, 0.0

    def solve(self, index, limit):
        taken = min(self.needed, limit / 2)
        self.now += taken
        return "plan" if taken == self.needed else None

    def cost(self, index, paths):
        return paths and 7


@pytest.mark.parametrize(("needed", "found"), [(0.1, True), (0.8, True), (1.5, False)])
def test_the_peer_gets_its_time_of_the_processor_where_others_took_some(needed, found):
    solver = w9_cells.CellSolver()
    peer = _Peer(needed)
    solver.use(peer, range(1), 1.0, lambda: peer.now)
    (board,) = solver.solve_some([0])["boards"]
    assert board == [0, pytest.approx(needed if found else 1.0), 7 if found else None]


def test_boards_left_unknown_are_the_hardest_also_where_expansions_have_32_bits():
    status = np.array([Status.OPTIMAL, Status.UNKNOWN, Status.OPTIMAL], np.int8)
    hard = effort(status, np.array([7, 3, 2**31 - 1], np.int32))
    assert hard.argsort().tolist() == [0, 2, 1]
