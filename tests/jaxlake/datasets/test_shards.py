"""Sets on disk: whole, without doubles, the same after any interruption, and checked when read."""

import fcntl
import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import jax
import numpy as np
import pytest

from benchmarks.oracles import check, least_makespan, least_sum_of_costs
from jaxlake import format_grid
from jaxlake.datasets import DatasetError, load_shards, read_manifest, read_shards, write_shards
from jaxlake.datasets.apportionment import webster
from jaxlake.datasets.manifest import Manifest, write_manifest
from jaxlake.generator import generate, lake_params
from tests.jaxlake.datasets import killed_writer
from tests.jaxlake.solver.boards import assert_same, row_of


def contents(directory):
    return {path.name: path.read_bytes() for path in Path(directory).iterdir()}


def grids(instances):
    return [tuple(format_grid(row_of(instances, i))) for i in range(len(instances.size))]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A complete set of three shards, in which boards ran out."""
    directory = tmp_path_factory.mktemp("sets") / "finished"
    killed_writer.write(directory)
    return directory


@pytest.fixture
def copy(finished, tmp_path):
    directory = tmp_path / "copy"
    shutil.copytree(finished, directory)
    return directory


@pytest.mark.slow
def test_a_set_of_one_shard_loads_as_generate_gives_it(tmp_path):
    # The third cell has no share; it makes the shapes those of the other tests, compiled once.
    kinds = {"size": [3, 4, 2], "hole_ratio": [0.2, 0.3, 1.0], "wait_ratio": [0.5, 0.25, 0.0]}
    shares = [1, 3, 0]
    two = {name: values[:2] for name, values in kinds.items()}
    params = lake_params(**two, data_ratio=shares[:2])
    write_shards(tmp_path, jax.random.key(5), params, 32, **killed_writer.OPTIONS)
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(5), 0), 0)
    options = {k: v for k, v in killed_writer.OPTIONS.items() if k != "shard_size"}
    made = generate(key, lake_params(**kinds, data_ratio=shares), 32, **options)
    assert bool(np.all(made.filled))
    cells = {name: leaf[:2] for name, leaf in vars(made).items() if np.shape(leaf) == (3,)}
    assert len(cells) == 9
    assert_same(load_shards(tmp_path), jax.device_get(replace(made, **cells)))


def test_shards_and_load_hold_the_same_boards(finished):
    instances, solutions = jax.tree.map(
        lambda *leaves: np.concatenate(leaves), *list(read_shards(finished))
    )
    loaded = load_shards(finished)
    order = np.argsort(instances.size, kind="stable")
    assert_same((loaded.instances, loaded.solutions), row_of((instances, solutions), order))
    assert loaded.cell.tolist() == sorted(loaded.cell.tolist())
    assert np.all(loaded.filled)
    assert np.array_equal(np.array([2, 4])[loaded.cell], loaded.instances.size)


def test_plans_and_optima_on_disk_belong_to_their_boards(finished):
    for instances, solutions in read_shards(finished):
        for index, grid in enumerate(grids(instances)):
            solution = row_of(solutions, index)
            if index % 5 == 0:
                cost = least_sum_of_costs(list(grid))
                assert cost == (solution.sum_of_costs, solution.needs_wait)
                assert least_makespan(list(grid)) == solution.makespan
            for plan in (solution.plan, solution.makespan_plan):
                assert plan.shape == (16, 2)
            by_sum = check(list(grid), solution.plan.tolist())
            by_makespan = check(list(grid), solution.makespan_plan.tolist())
            assert by_sum.sum_of_costs == solution.sum_of_costs
            assert by_makespan.makespan == solution.makespan


def test_no_board_comes_twice_in_a_set_though_shards_draw_it_again(finished):
    every = list(itertools.chain.from_iterable(grids(i) for i, _ in read_shards(finished)))
    assert len(every) == len(set(every)) == read_manifest(finished).rows
    assert sum(cell["duplicates"] for cell in read_manifest(finished).cells) > 0


def test_a_small_kind_is_exhausted_to_its_last_board_and_the_rest_is_reported(finished):
    solvable = {
        tuple(" ".join(cells[i : i + 2]) for i in (0, 2))
        for cells in itertools.permutations("SsGg")
        if least_sum_of_costs([" ".join(cells[:2]), " ".join(cells[2:])]) is not None
    }
    loaded = load_shards(finished)
    on_disk = {grid for grid in grids(loaded.instances) if len(grid) == 2}
    assert on_disk == solvable
    cell = read_manifest(finished).cells[0]
    assert cell["requested_wait"] + cell["requested_no_wait"] == 48
    assert cell["made_wait"] + cell["made_no_wait"] == len(solvable)
    assert cell["shortfall_wait"] + cell["shortfall_no_wait"] == 48 - len(solvable)
    # A kind that there is none of is tried in one shard, for one budget. The other one runs out
    # in a later shard, which may spend a first call's budget on it and twice that on more calls.
    assert cell["candidates"] < 4 * killed_writer.OPTIONS["max_candidates"]


@pytest.mark.slow
def test_shards_after_the_last_board_are_empty_and_can_be_read(tmp_path):
    # On 2x2 there are 24 boards, none of which needs a wait, all of them in the first two shards.
    options = killed_writer.OPTIONS | {"max_candidates": 512, "shard_size": 16}
    manifest = write_shards(tmp_path, jax.random.key(1), lake_params(2, 0.0, 0.0), 64, **options)
    assert [shard.rows for shard in manifest.shards][-1] == 0
    assert len(load_shards(tmp_path).cell) == manifest.rows > 0
    assert [len(boards.size) for boards, _ in read_shards(tmp_path)][-1] == 0


def test_quotas_are_met_exactly_and_every_shard_has_its_share_of_each_kind(finished):
    cell = read_manifest(finished).cells[1]
    assert (cell["made_no_wait"], cell["made_wait"]) == (36, 12)
    loaded = load_shards(finished)
    assert np.sum(loaded.solutions.needs_wait[loaded.cell == 1]) == 12
    asked = [np.array(shard.asked)[1] for shard in read_manifest(finished).shards]
    assert np.array_equal(np.sum(asked, axis=0), [36, 12])
    assert all(np.max(np.abs(part - [12, 4])) <= 1 for part in asked)


def seat_by_seat(weights, seats):
    shares = [0] * len(weights)
    for _ in range(seats):
        live = [i for i, weight in enumerate(weights) if weight]
        best = min(live, key=lambda i: (Fraction(2 * shares[i] + 1, weights[i]), i))
        shares[best] += 1
    return shares


def test_shares_are_those_of_seats_given_one_by_one():
    rng = random.Random(3)
    for _ in range(60):
        weights = [rng.choice([0, 1, 2, 7, 30]) for _ in range(rng.randint(1, 8))] + [5]
        for seats in {0, 1, sum(weights), rng.randint(0, sum(weights))}:
            shares = webster(np.array(weights), seats)
            assert shares.tolist() == seat_by_seat(weights, seats)
        assert webster(np.array(weights), sum(weights)).tolist() == weights


def test_a_set_is_the_same_whatever_random_bits_the_process_is_set_to(finished, tmp_path):
    with jax.threefry_partitionable(False):
        killed_writer.write(tmp_path / "other")
    assert contents(tmp_path / "other") == contents(finished)


@pytest.mark.slow
def test_a_killed_writer_goes_on_to_the_same_bytes(finished, tmp_path):
    directory = tmp_path / "killed"
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    # The second rename puts the first shard in place; the resumed run's third one is a shard's.
    for number, moment, left in ((2, "before", 0), (3, "after", 1)):
        command = [sys.executable, killed_writer.__file__, str(directory), str(number), moment]
        end = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert end.returncode == -signal.SIGKILL, end.stderr.decode()
        assert len(read_manifest(directory).shards) == left
        if moment == "before":
            assert any(name.startswith(".shard-000000.parquet.") for name in contents(directory))
            assert "shard-000000.parquet" not in contents(directory)
        else:
            assert "shard-000001.parquet" in contents(directory)
    killed_writer.write(directory)
    assert contents(directory) == contents(finished)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_any_state_that_a_kill_can_leave_is_taken_up(copy, finished, left):
    manifest = read_manifest(copy)
    write_manifest(copy, Manifest(manifest.request, manifest.shards[:left], manifest.jaxlake))
    (copy / ".manifest.json.4711.tmp").write_bytes(b"{")
    (copy / f".shard-{left:06d}.parquet.4711.tmp").write_bytes(b"PK")
    killed_writer.write(copy)
    assert contents(copy) == contents(finished)


def test_a_kill_before_the_first_manifest_leaves_a_folder_that_can_be_used(finished, tmp_path):
    (tmp_path / ".manifest.json.4711.tmp").write_bytes(b"{")
    killed_writer.write(tmp_path)
    assert contents(tmp_path) == contents(finished)


def test_a_finished_set_is_checked_and_left_as_it_is(copy, finished):
    before = {path.name: path.stat().st_mtime_ns for path in copy.iterdir()}
    assert killed_writer.write(copy).complete
    assert {path.name: path.stat().st_mtime_ns for path in copy.iterdir()} == before


def test_progress_is_told_at_the_start_and_after_each_shard(tmp_path, finished):
    told = []
    killed_writer.write(tmp_path, progress=told.append)
    assert [(p.shards, p.handled) for p in told] == [(0, 0), (1, 32), (2, 64), (3, 96)]
    assert told[-1].rows == read_manifest(finished).rows


DAMAGES = {
    "cut short": lambda content: content[:-20],
    "one bit changed": lambda content: content[:99] + bytes([content[99] ^ 1]) + content[100:],
    "missing": None,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_shard_is_named_and_shards_before_it_can_be_read(copy, damage):
    path = copy / "shard-000001.parquet"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    what = "damaged or truncated" if damage else "is missing, but the manifest names it"
    said = f"shard-000001.parquet: {what}"
    shards = read_shards(copy)
    next(shards)
    for read, source in ((load_shards, copy), (next, shards), (killed_writer.write, copy)):
        with pytest.raises(DatasetError, match=said):
            read(source)


def test_truncation_is_noticed_without_verifying(copy):
    path = copy / "shard-000002.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DatasetError, match=r"shard-000002\.parquet: not a Parquet file"):
        list(read_shards(copy, verify=False))


def test_a_shard_of_other_arrays_is_noticed_by_their_hash(copy):
    """A file that was made anew with its hash in the manifest, but not the arrays' hash."""
    manifest = read_manifest(copy)
    value = json.loads((copy / "manifest.json").read_text())
    content = (copy / "shard-000000.parquet").read_bytes()
    (copy / "shard-000001.parquet").write_bytes(content)
    value["shards"][1]["sha256"] = hashlib.sha256(content).hexdigest()
    value["shards"][1]["rows"] = manifest.shards[0].rows
    (copy / "manifest.json").write_text(json.dumps(value))
    with pytest.raises(DatasetError, match=r"shard-000001\.parquet: SHA-256 of its arrays"):
        load_shards(copy)


def test_counts_of_a_set_beyond_32_bits_are_loaded_as_the_largest_number(copy):
    manifest = read_manifest(copy)
    drawn = {"candidates": [2**30, 7], "duplicates": [5, 2**31]}
    shards = (replace(shard, counters=shard.counters | drawn) for shard in manifest.shards)
    write_manifest(copy, replace(manifest, shards=tuple(shards)))
    loaded = load_shards(copy)
    assert loaded.candidates.tolist() == [2**31 - 1, 21]
    assert loaded.duplicates.tolist() == [15, 2**31 - 1]


def test_an_unfinished_set_is_not_read_as_if_it_were_whole(copy):
    manifest = read_manifest(copy)
    write_manifest(copy, Manifest(manifest.request, manifest.shards[:2], manifest.jaxlake))
    with pytest.raises(DatasetError, match="2 of 3 shards are there"):
        load_shards(copy)


def test_a_folder_belongs_to_one_request_and_one_version(copy, finished):
    for name, value, had in (("horizon", 17, 16), ("max_candidates", 9, 2048)):
        said = f"belongs to another set: {name}: it has {had}, got {value}"
        with pytest.raises(DatasetError, match=said):
            killed_writer.write(copy, **{name: value})
    assert contents(copy) == contents(finished)
    manifest = read_manifest(copy)
    write_manifest(copy, Manifest(manifest.request, manifest.shards, "0.0.0"))
    with pytest.raises(DatasetError, match=r"jaxlake: it has '0\.0\.0'"):
        killed_writer.write(copy)


def test_a_folder_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("text")
    with pytest.raises(DatasetError, match=r"has 'thesis.tex' but no manifest.json"):
        killed_writer.write(tmp_path)


def test_two_processes_do_not_write_to_one_folder(copy):
    folder = os.open(copy, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with pytest.raises(DatasetError, match="another process is writing there"):
            killed_writer.write(copy)
    finally:
        os.close(folder)
    assert killed_writer.write(copy).complete


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "manifest.json: not JSON"),
        ("[]", "manifest.json: format: 'jaxlake-shards' is needed"),
        ('{"format": "jaxlake-shards", "format_version": 1}', "format_version: got 1, 2 is read"),
        ('{"format": "jaxlake-shards", "format_version": 2}', "a field is missing or unknown"),
    ],
)
def test_a_wrong_manifest_is_one_clear_message(tmp_path, text, said):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DatasetError, match=said):
        load_shards(tmp_path)
    with pytest.raises(DatasetError, match=said):
        killed_writer.write(tmp_path)


def test_arguments_out_of_range_are_named(tmp_path):
    wrong = [("count", 0), ("count", 1 << 31), ("shard_size", 1 << 17), ("max_candidates", 0)]
    for name, value in wrong:
        arguments = {"count": 8, "shard_size": 8} | {name: value}
        with pytest.raises(ValueError, match=f"{name}: got {value}"):
            write_shards(tmp_path / "set", jax.random.key(0), lake_params(3), **arguments)
    nan = replace(lake_params(3), hole_ratio=np.float32([np.nan]))
    with pytest.raises(ValueError, match=r"params.hole_ratio: got \[nan\], finite numbers"):
        write_shards(tmp_path / "set", jax.random.key(0), nan, count=8, shard_size=8)
    assert not (tmp_path / "set").exists()


@pytest.mark.slow
def test_memory_grows_by_the_digests_of_boards_and_not_by_the_boards(tmp_path):
    """Peaks of 4 and of 20 shards: what NumPy and Python allocate, and what JAX keeps."""
    peaks, kept = [], []
    key, params, options = jax.random.key(1), lake_params(4, 0.2, 0.25), {"shard_size": 256}
    for shards in (2, 4, 20):
        held: list[int] = []

        def told(_, held=held):
            held.append(sum(array.nbytes for array in jax.live_arrays()))

        tracemalloc.start()
        directory, count = tmp_path / str(shards), 256 * shards
        write_shards(directory, key, params, count, max_size=4, progress=told, **options)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        kept.append(held[-1])
    boards = load_shards(tmp_path / "20")
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(boards)) * 16 / 20
    # 16 bytes a board for digests and twice as many while they are merged, 4 KiB for each shard's
    # record in the manifest. The first run's peak has what Python loads once.
    assert peaks[2] - peaks[1] < 48 * 16 * 256 + 16 * 4096 < size / 4
    assert kept[2] <= kept[1]
