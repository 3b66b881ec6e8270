"""Board sets on disk: distinct, optimal, reproducible after interruptions, and checked."""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import fsspec
import jax
import numpy as np
import pytest

import jaxlake
from benchmarks.oracles import check_plan, least_makespan, least_sum_of_costs
from jaxlake import format_grid
from jaxlake.datasets import (
    DatasetError,
    load_set,
    make_set,
    missing_parts,
    read_counts,
    read_parts,
)
from jaxlake.errors import UserError
from jaxlake.generator import generate, lake_params, part_of
from tests.hostile import allow_only, alter_json, damage_bytes
from tests.jaxlake.datasets import small_set
from tests.jaxlake.solver.boards import assert_same, select_rows

NUM_PARTS = 3


def read_files(directory):
    return {path.name: path.read_bytes() for path in Path(directory).iterdir()}


def format_boards(lakes):
    return [
        tuple(format_grid(select_rows(lakes.instances, i))) for i in range(len(lakes.component))
    ]


@pytest.fixture(scope="module")
def board_set(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sets") / "finished"
    small_set.make(directory)
    return directory


@pytest.fixture
def set_copy(board_set, tmp_path):
    return Path(shutil.copytree(board_set, tmp_path / "copy"))


def test_one_part_set_loads_as_generated(tmp_path):
    params = lake_params([3, 4], [0.2, 0.3], [0.5, 0.25], data_ratio=[1, 3])
    options = small_set.OPTIONS | {"part_size": 40}
    make_set(tmp_path, jax.random.key(5), params, 32, **options)
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(5), 0), 0)
    del options["part_size"]
    expected = jax.device_get(generate(key, params, 32, **options))
    assert expected.filled.all()
    actual = load_set(tmp_path)
    assert_same((actual.instances, actual.solutions), (expected.instances, expected.solutions))
    assert actual.component.tolist() == expected.component.tolist()
    assert read_counts(tmp_path)["candidates"].tolist() == expected.candidates.tolist()


def test_load_returns_the_filled_boards_of_save(board_set, tmp_path):
    lakes = load_set(board_set)
    filled = np.arange(len(lakes.component)) % 3 > 0
    jaxlake.save(replace(lakes, filled=filled), tmp_path / "lakes")
    loaded_lakes = jaxlake.load(tmp_path / "lakes")
    assert_same(
        (loaded_lakes.instances, loaded_lakes.solutions, loaded_lakes.component),
        jax.tree.map(
            lambda leaf: leaf[filled], (lakes.instances, lakes.solutions, lakes.component)
        ),
    )
    assert loaded_lakes.filled.all()
    assert_same(loaded_lakes.candidates, lakes.candidates)
    boards = replace(lakes.instances, starts=lakes.instances.starts[:, :1])
    jaxlake.save(replace(lakes, instances=boards), tmp_path / "lakes")
    with pytest.raises(DatasetError, match=r"lakes: is damaged: .* got int8 \(\d+, 1, 2\)"):
        jaxlake.load(tmp_path / "lakes")
    (tmp_path / "text").write_text("no boards")
    with pytest.raises(DatasetError, match="not a file of boards: it is not a"):
        jaxlake.load(tmp_path / "text")
    with pytest.raises(DatasetError, match="must be a file of boards, got a folder"):
        jaxlake.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*absent'"):
        jaxlake.save(lakes, tmp_path / "absent" / "lakes")
    with pytest.raises(TypeError, match="lakes must be the output of generate, got Instance"):
        jaxlake.save(lakes.instances, tmp_path / "boards")
    batch = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), lakes)
    with pytest.raises(ValueError, match=r"lakes must be one set .* got \(2, "):
        jaxlake.save(batch, tmp_path / "boards")
    with pytest.raises(TypeError, match="path must be a string or a path, got int"):
        jaxlake.save(lakes, 5)


def test_boards_are_distinct_within_their_parts(board_set):
    parts = list(read_parts(board_set))
    for index, part in enumerate(parts):
        assert set(part_of(part.instances, NUM_PARTS).tolist()) == {index}
    boards = list(itertools.chain.from_iterable(map(format_boards, parts)))
    assert len(boards) == len(set(boards)) == len(load_set(board_set).component)


def test_stored_plans_and_optima_match_their_boards(board_set):
    for part in read_parts(board_set):
        for index, grid in enumerate(format_boards(part)):
            solution = select_rows(part.solutions, index)
            cost = least_sum_of_costs(list(grid))
            assert cost == (solution.sum_of_costs, solution.needs_wait)
            assert least_makespan(list(grid)) == solution.makespan
            assert (
                check_plan(list(grid), solution.plan.tolist()).sum_of_costs == solution.sum_of_costs
            )
            assert (
                check_plan(list(grid), solution.makespan_plan.tolist()).makespan
                == solution.makespan
            )


def test_set_does_not_depend_on_workers_or_process_settings(board_set, tmp_path):
    with jax.threefry_partitionable(False):
        small_set.make(tmp_path / "other", worker=(1, 2))
        assert missing_parts(tmp_path / "other") == [0, 2]
        with pytest.raises(DatasetError, match=r"2 of 3 parts are missing, .* part-00000\.npz"):
            load_set(tmp_path / "other")
        small_set.make(tmp_path / "other", worker=(0, 2))
    assert read_files(tmp_path / "other") == read_files(board_set)


@pytest.mark.slow
@pytest.mark.parametrize(("rename_number", "moment"), [(1, "before"), (1, "after"), (2, "before")])
def test_killed_writer_resumes_to_the_same_bytes(rename_number, moment, board_set, tmp_path):
    directory = tmp_path / "killed"
    command = [sys.executable, small_set.__file__, str(directory), str(rename_number), moment]
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    process = subprocess.run(command, env=environment, capture_output=True)
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()
    num_complete = rename_number if moment == "after" else rename_number - 1
    assert missing_parts(directory) == list(range(num_complete, NUM_PARTS))
    assert any(name.endswith(".tmp") for name in read_files(directory)) == (moment == "before")
    small_set.make(directory)
    assert read_files(directory) == read_files(board_set)


def test_finished_set_is_not_rewritten(set_copy):
    times = {path.name: path.stat().st_mtime_ns for path in set_copy.iterdir()}
    progress = []
    small_set.make(set_copy, progress=lambda *counts: progress.append(counts))
    assert progress == [(NUM_PARTS, NUM_PARTS)]
    assert {path.name: path.stat().st_mtime_ns for path in set_copy.iterdir()} == times


def test_remote_set_has_equal_bytes_and_resumes(board_set, tmp_path):
    store = fsspec.filesystem("memory")
    url = f"memory://{tmp_path}"
    for part in range(NUM_PARTS):
        small_set.make(url, worker=(part, NUM_PARTS))
        assert missing_parts(url) == list(range(part + 1, NUM_PARTS))
    files = {file.rpartition("/")[2]: store.cat(file) for file in store.ls(url, detail=False)}
    assert files == read_files(board_set)
    assert_same(load_set(url), load_set(board_set))
    assert read_counts(url)["candidates"].tolist() == read_counts(board_set)["candidates"].tolist()
    with pytest.raises(DatasetError, match="horizon: the folder has 16, this set has 17"):
        small_set.make(url, horizon=17)
    store.pipe(f"{url}/part-00001.npz", files["part-00001.npz"][:-20])
    with pytest.raises(DatasetError, match=r"memory:.*part-00001\.npz: is damaged"):
        load_set(url)
    with pytest.raises(DatasetError, match="but no manifest"):
        small_set.make(f"memory://{tmp_path.parent}")


DAMAGES = {
    "cut short": lambda content: content[:-20],
    "one bit": lambda content: content[:999] + bytes([content[999] ^ 1]) + content[1000:],
    "empty": lambda content: b"",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_part_is_named_after_earlier_parts(set_copy, damage):
    path = set_copy / "part-00001.npz"
    path.write_bytes(damage(path.read_bytes()))
    parts = read_parts(set_copy)
    next(parts)
    with pytest.raises(DatasetError, match=r"part-00001\.npz: is damaged"):
        next(parts)


def test_part_of_another_request_is_rejected(set_copy, tmp_path):
    small_set.make(tmp_path / "other", max_candidates=1024)
    shutil.copy(tmp_path / "other" / "part-00001.npz", set_copy)
    for read_set in (load_set, read_counts, small_set.make):
        with pytest.raises(DatasetError, match=r"part-00001\.npz: belongs to another set"):
            read_set(set_copy)


def test_link_out_of_a_set_is_rejected(set_copy, tmp_path):
    (tmp_path / "mine").write_text("mine")
    (set_copy / "part-00001.npz").unlink()
    (set_copy / "part-00001.npz").symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match=r"part-00001\.npz: is a link to .*mine, outside"):
        small_set.make(set_copy)
    assert (tmp_path / "mine").read_text() == "mine"


def test_set_folder_rejects_another_request(set_copy, board_set):
    for name, value, stored_value in (("horizon", 17, 16), ("max_candidates", 9, 2048)):
        with pytest.raises(
            DatasetError, match=f"{name}: the folder has {stored_value}, this set has {value}"
        ):
            small_set.make(set_copy, **{name: value})
    assert read_files(set_copy) == read_files(board_set)
    manifest = json.loads((set_copy / "manifest.json").read_text())
    manifest["params"]["hole_ratio"][0] = 0.5
    (set_copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DatasetError, match="another set than manifest"):
        load_set(set_copy)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "format must be 'jaxlake-boards-1'"),
        ('{"format": "jaxlake-boards-1", "counts": 8.5}', "a field is missing"),
        ('{"format": "jaxlake-boards-1", "count": 8, "part_size": 4}', "a field is missing"),
    ],
)
def test_invalid_manifest_is_rejected(tmp_path, text, message):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DatasetError, match=rf"manifest\.json: {message}"):
        load_set(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 8.5}, "count must be a whole number of at least 1, got 8.5"),
        ({"count": 2**32, "part_size": 1}, r"count must be in \[1, 65536\] .* got 4294967296"),
        ({"horizon": True}, "horizon must be a whole number from 1 to 4096, got True"),
        ({"params": {"size": [3]}}, "a field is missing"),
        ({"params": "\x1b[2J"}, "a field is missing"),
        ({"max_candidates": float("inf")}, "Out of range float"),
    ],
)
def test_changed_manifest_is_rejected(change, message, set_copy):
    path = set_copy / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    for read_set in (load_set, read_counts):
        with pytest.raises(DatasetError, match=rf"manifest\.json: {message}"):
            read_set(set_copy)


def test_exchanged_parts_are_rejected(set_copy):
    shutil.copy(set_copy / "part-00000.npz", set_copy / "part-00001.npz")
    with pytest.raises(DatasetError, match=r"part-00001\.npz: its boards belong to another part"):
        load_set(set_copy)


@pytest.mark.parametrize(
    ("name", "value"),
    [("instances.starts", 9), ("instances.size", 7), ("solutions.plan", None), ("cell", 1.5)],
)
def test_invalid_boards_are_rejected(name, value, set_copy):
    path = set_copy / "part-00000.npz"
    arrays = dict(np.load(path))
    arrays[name] = arrays[name][:1] if value is None else np.full_like(arrays[name], value)
    if name == "cell":
        arrays[name] = arrays[name].astype(float)
    np.savez(path, **arrays)
    with pytest.raises(DatasetError, match=r"part-00000\.npz: "):
        load_set(set_copy)


def test_damaged_set_is_rejected_or_reads_equal(set_copy, board_set):
    rng, expected = random.Random(49), load_set(board_set)
    manifest = json.loads((board_set / "manifest.json").read_text())
    for trial in range(60):
        for file in board_set.iterdir():
            shutil.copy(file, set_copy)
        if trial % 2:
            (set_copy / "manifest.json").write_text(json.dumps(alter_json(manifest, rng)))
        else:
            file = rng.choice(sorted(set_copy.iterdir()))
            file.write_bytes(damage_bytes(file.read_bytes(), rng))
        with allow_only(DatasetError):
            read_counts(set_copy)
            assert_same(load_set(set_copy), expected)
