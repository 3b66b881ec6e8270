"""Sets made in parts: no board twice, no trace of who made what, and no part left out."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from benchmarks.oracles import least_sum_of_costs
from jaxlake import format_grid
from jaxlake.datasets import (
    DatasetError,
    load_shards,
    merge_parts,
    part_folder,
    read_manifest,
    read_shards,
    write_shards,
)
from jaxlake.datasets.manifest import write_manifest
from jaxlake.generator import lake_params, part_of
from tests.jaxlake import one_of_many
from tests.jaxlake.datasets import killed_writer
from tests.jaxlake.solver.boards import instances, row_of

PARTS = 2


def contents(directory):
    files = (path for path in Path(directory).rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def folder(index, parts=PARTS):
    return part_folder((index, parts))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Both parts of a set of three shards, the second one made first."""
    directory = tmp_path_factory.mktemp("sets") / "made"
    for index in reversed(range(PARTS)):
        killed_writer.write(directory, part=(index, PARTS))
    return directory


@pytest.fixture(scope="module")
def merged(made, tmp_path_factory):
    directory = tmp_path_factory.mktemp("sets") / "merged"
    shutil.copytree(made, directory)
    merge_parts(directory)
    return directory


@pytest.fixture
def copy(made, tmp_path):
    directory = tmp_path / "copy"
    shutil.copytree(made, directory)
    return directory


def change_manifest(path, change):
    """Rewrite a manifest's request and shards as `change` says."""
    value = json.loads((path / "manifest.json").read_text())
    change(value)
    (path / "manifest.json").write_text(json.dumps(value))


def test_a_merged_set_has_no_board_twice_and_all_its_quotas(merged):
    loaded = load_shards(merged)
    grids = [tuple(format_grid(row_of(loaded.instances, i))) for i in range(len(loaded.cell))]
    assert len(set(grids)) == len(grids) == read_manifest(merged).rows
    waits = np.asarray(loaded.solutions.needs_wait)
    assert (np.sum(~waits[loaded.cell == 1]), np.sum(waits[loaded.cell == 1])) == (36, 12)


def test_a_part_has_as_many_boards_of_a_small_kind_as_are_asked_for_or_as_it_has(made):
    available = np.zeros((PARTS, 2), int)
    for cells in itertools.permutations("SsGg"):
        grid = [" ".join(cells[:2]), " ".join(cells[2:])]
        if (optimum := least_sum_of_costs(grid)) is not None:
            part = int(part_of(instances([grid], 2, 2), PARTS)[0])
            available[part, int(optimum[1])] += 1
    for index in range(PARTS):
        cell = read_manifest(made / folder(index)).cells[0]
        asked = [cell["requested_no_wait"], cell["requested_wait"]]
        found = [cell["made_no_wait"], cell["made_wait"]]
        assert found == np.minimum(asked, available[index]).tolist()
    assert found == available[index].tolist()


def test_a_merged_manifest_adds_up_what_the_parts_say(merged):
    whole = read_manifest(merged)
    parts = [read_manifest(merged / folder(index)) for index in range(PARTS)]
    assert whole.complete
    assert (whole.num_shards, [part.num_shards for part in parts]) == (3, [1, 2])
    assert (whole.count, [part.count for part in parts]) == (96, [32, 64])
    assert whole.rows == sum(part.rows for part in parts)
    for name, kind in (("requested", 48), ("made", None), ("shortfall", None)):
        for wait in ("wait", "no_wait"):
            of_parts = [[cell[f"{name}_{wait}"] for cell in part.cells] for part in parts]
            of_whole = [cell[f"{name}_{wait}"] for cell in whole.cells]
            assert np.sum(of_parts, axis=0).tolist() == of_whole
        if kind:
            assert [c["requested_wait"] + c["requested_no_wait"] for c in whole.cells] == [kind] * 2
    assert [shard.file for shard in whole.shards] == [
        f"{folder(0)}/shard-000000.parquet",
        f"{folder(1)}/shard-000001.parquet",
        f"{folder(1)}/shard-000002.parquet",
    ]


def test_shards_of_a_merged_set_are_those_of_its_parts_each_with_its_own_boards(merged):
    of_parts = [
        boards for index in range(PARTS) for boards, _ in read_shards(merged / folder(index))
    ]
    for (whole, _), part in zip(read_shards(merged), of_parts, strict=True):
        assert jax.tree.all(jax.tree.map(np.array_equal, whole, part))
    belongs = [set(part_of(boards, PARTS).tolist()) for boards in of_parts]
    assert belongs == [{0}, {1}, {1}]


def test_merging_again_and_making_a_part_again_changes_nothing(merged, made, tmp_path):
    before = contents(merged)
    assert merge_parts(merged, verify=True).complete
    for index in range(PARTS):
        killed_writer.write(merged, part=(index, PARTS))
    assert contents(merged) == before
    assert before.keys() - contents(made).keys() == {"manifest.json"}
    # Folders that come from elsewhere, one by one.
    for index in range(PARTS):
        shutil.copytree(made / folder(index), tmp_path / folder(index))
    merge_parts(tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.slow
def test_processes_that_run_at_once_make_the_parts_that_one_makes_in_turn(made, tmp_path):
    one_of_many.run_all("part", [tmp_path] * PARTS)
    assert contents(tmp_path) == contents(made)


@pytest.mark.slow
def test_a_killed_part_goes_on_to_the_same_bytes(made, tmp_path):
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    directory = tmp_path / "killed"
    # The third rename puts the first shard's manifest in place, the fourth the second shard.
    command = [sys.executable, killed_writer.__file__, str(directory), "4", "after", "1", "2"]
    end = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert end.returncode == -signal.SIGKILL, end.stderr.decode()
    assert len(read_manifest(directory / folder(1)).shards) == 1
    assert "part-00001-of-00002/shard-000002.parquet" in contents(directory)
    with pytest.raises(DatasetError, match="part-00000-of-00002: is missing; 1 of 2 parts"):
        merge_parts(directory)
    shutil.copytree(made / folder(0), directory / folder(0))
    with pytest.raises(DatasetError, match="1 of 2 shards are there"):
        merge_parts(directory)
    killed_writer.write(directory, part=(1, PARTS))
    assert contents(directory) == contents(made)


@pytest.mark.parametrize("left", [0, 1])
def test_a_part_goes_on_from_any_shard(copy, made, left):
    own = copy / folder(1)
    manifest = read_manifest(own)
    write_manifest(own, replace(manifest, shards=manifest.shards[:left]))
    (own / f".shard-{left + 1:06d}.parquet.4711.tmp").write_bytes(b"PK")
    killed_writer.write(copy, part=(1, PARTS))
    assert contents(copy) == contents(made)


def test_a_set_without_one_of_its_parts_is_not_merged(copy):
    shutil.rmtree(copy / folder(1))
    with pytest.raises(DatasetError, match=r"part-00001-of-00002: is missing; 1 of 2 parts are"):
        merge_parts(copy)
    shutil.rmtree(copy / folder(0))
    with pytest.raises(DatasetError, match="has no part of a set, such as part-00000-of-00002"):
        merge_parts(copy)
    assert contents(copy) == {}


def test_a_set_without_one_of_its_files_is_not_merged(copy):
    (copy / folder(1) / "shard-000002.parquet").unlink()
    with pytest.raises(DatasetError, match=r"shard-000002.parquet: is missing, but the manifest"):
        merge_parts(copy)
    assert not (copy / "manifest.json").exists()


def test_parts_of_two_requests_versions_or_divisions_are_not_merged(copy, made):
    def other_key(value):
        value["request"]["key_data"][-1] += 1

    for change, said in (
        (other_key, r"part-00001-of-00002/manifest.json: belongs to another set: key_data"),
        (lambda value: value["request"].update(part=0), "another set: part: it has 0, got 1"),
        (lambda value: value.update(jaxlake="0.0.0"), r"jaxlake: it has '0\.0\.0'"),
    ):
        change_manifest(copy / folder(1), change)
        with pytest.raises(DatasetError, match=said):
            merge_parts(copy)
        shutil.copytree(made, copy, dirs_exist_ok=True)
    shutil.copytree(copy / folder(1), copy / folder(1, 3))
    with pytest.raises(DatasetError, match=r"has parts of \[2, 3\] parts, one number is allowed"):
        merge_parts(copy)
    assert not (copy / "manifest.json").exists()


def test_verifying_finds_damage_and_boards_of_another_part(copy, made):
    path = copy / folder(1) / "shard-000001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DatasetError, match=r"shard-000001.parquet: damaged or truncated"):
        merge_parts(copy, verify=True)

    # A whole shard of part 1, put with all its hashes where part 0 has one.
    foreign = (made / folder(1) / "shard-000001.parquet").read_bytes()
    path.write_bytes(foreign)
    (copy / folder(0) / "shard-000000.parquet").write_bytes(foreign)
    shard = read_manifest(copy / folder(1)).shards[0]
    manifest = read_manifest(copy / folder(0))
    shards = (replace(shard, file="shard-000000.parquet"),)
    write_manifest(copy / folder(0), replace(manifest, shards=shards))
    with pytest.raises(DatasetError, match=f"{shard.rows} of its boards belong to other parts"):
        merge_parts(copy, verify=True)
    assert not (copy / "manifest.json").exists()


def test_a_part_is_not_made_beside_those_of_another_set(copy, merged, made, tmp_path):
    before = contents(copy)
    for changes, said in (
        ({"part": (0, 3)}, "part-00000-of-00002: belongs to another set: 3 parts are asked for"),
        ({"part": (0, 2), "horizon": 17}, "horizon: it has 16, got 17"),
    ):
        with pytest.raises(DatasetError, match=said):
            killed_writer.write(copy, **changes)
    shutil.rmtree(copy / folder(0))
    with pytest.raises(
        DatasetError, match=r"part-00001-of-00002/manifest.json: belongs to another"
    ):
        killed_writer.write(copy, part=(0, 2), max_candidates=9)
    assert not (copy / folder(0)).exists()
    assert contents(copy).items() <= before.items()

    shutil.copy(merged / "manifest.json", tmp_path)
    with pytest.raises(DatasetError, match="another set: parts: it has 2, got 1"):
        killed_writer.write(tmp_path)
    with pytest.raises(DatasetError, match="another set: parts: it has 2, got 3"):
        killed_writer.write(tmp_path, part=(0, 3))
    with pytest.raises(DatasetError, match=r"has 'part-0000.-of-00002' but no manifest.json"):
        killed_writer.write(made)


def test_parts_that_there_can_not_be_are_named(tmp_path):
    options = killed_writer.OPTIONS
    for part, said in (
        ((0, 4), "part: got 4 parts, the set has 3 shards to share out"),
        ((2, 2), "part: got 2 of 2, 0 to 1 are allowed"),
        ((0, 0), "part: got 0 of 0, 1 to 65536 parts are allowed"),
    ):
        with pytest.raises(ValueError, match=said):
            write_shards(
                tmp_path / "x", jax.random.key(0), lake_params(3), 96, part=part, **options
            )
    assert not (tmp_path / "x").exists()
