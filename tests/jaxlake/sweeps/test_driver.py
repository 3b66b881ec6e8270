"""Sweeps on disk: equal files after interruptions, in parts, and from several processes."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import fsspec
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from jaxlake.errors import UserError
from jaxlake.policies import RandomPolicy
from jaxlake.statistics.summaries import COUNTERS
from jaxlake.sweeps import SweepError, SweepSpec, read, run
from jaxlake.sweeps.folder import SweepFolder
from tests.hostile import allow_only, alter_json, damage_bytes
from tests.jaxlake import one_of_many
from tests.jaxlake.sweeps import small_sweep
from tests.jaxlake.sweeps.small_sweep import NUM_CHUNKS, make_spec
from tests.paths import ROOT


def read_files(directory):
    files = (path for path in Path(directory).rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.fixture
def program_options(monkeypatch):
    """Replace the lake by a counting program, and record the options of each program."""
    program_options = []

    def chunk_program(options, devices):
        program_options.append(options)
        return small_sweep.make_counting_program(options, devices)

    monkeypatch.setattr("jaxlake.sweeps.driver.chunk_program", chunk_program)
    return program_options


@pytest.fixture
def sweep_folder(program_options, tmp_path):
    directory = tmp_path / "finished"
    assert run(make_spec(), directory)
    return directory


def test_run_writes_one_row_per_configuration_and_policy(sweep_folder):
    columns = read(sweep_folder)
    assert columns["configuration"].tolist() == [number for number in range(11) for _ in range(2)]
    assert columns["policy"].tolist() == ["random", "shortest_path"] * 11
    knobs = make_spec().columns(0, 11)
    for name, values in knobs.items():
        assert columns[name].tolist() == np.repeat(values, 2).tolist()
    for index, name in enumerate(COUNTERS):
        expected = [
            1000 * number + 100 * policy + index for number in range(11) for policy in range(2)
        ]
        assert columns[name].tolist() == expected


def test_pandas_reads_the_folder_of_rows(sweep_folder):
    frame, columns = pd.read_parquet(sweep_folder / "rows"), read(sweep_folder)
    assert list(frame.columns) == list(columns)
    for name, values in columns.items():
        assert frame[name].tolist() == values.tolist()


def test_manifest_lists_the_sweep_and_all_files(sweep_folder):
    manifest = json.loads((sweep_folder / "manifest.json").read_text())
    assert manifest["spec"] == make_spec().record
    assert (manifest["configurations"], manifest["rows"]) == (11, 22)
    files = {f"rows/rows-{chunk:06d}.parquet" for chunk in range(NUM_CHUNKS)}
    assert set(manifest["files"]) == files
    assert set(read_files(sweep_folder)) == files | {"manifest.json"}


@pytest.mark.parametrize("rename_number", range(1, NUM_CHUNKS + 2))  # the last file is the manifest
def test_interrupted_run_resumes_to_the_same_bytes(
    rename_number, sweep_folder, program_options, tmp_path, monkeypatch
):
    targets, rename = [], os.replace

    def replace_or_interrupt(source, target):
        targets.append(target)
        if len(targets) == rename_number:
            shutil.copy(source, Path(source).with_name(f".{Path(target).name}.1.tmp"))  # as a kill
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace_or_interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(make_spec(), tmp_path / "killed")
    monkeypatch.setattr(os, "replace", rename)
    reports, num_programs = [], len(program_options)
    assert run(make_spec(), tmp_path / "killed", progress=reports.append)
    assert reports[0].chunks == rename_number - 1
    assert read_files(tmp_path / "killed") == read_files(sweep_folder)
    assert len(program_options) == num_programs + (rename_number <= NUM_CHUNKS)


def test_parts_in_any_order_equal_one_run(sweep_folder, tmp_path):
    for index in (2, 0, 1):
        assert run(make_spec(), tmp_path / "parts", part=(index, 3)) == (index == 1)
    assert read_files(tmp_path / "parts") == read_files(sweep_folder)


def test_run_writes_the_same_files_to_an_object_store(sweep_folder, tmp_path):
    url, filesystem = f"memory://{tmp_path}/stored", fsspec.filesystem("memory")
    for part in ((1, 2), (0, 2)):
        run(make_spec(), url, part=part)
    names = filesystem.find(f"{tmp_path}/stored")
    stored_files = {name.partition("/stored/")[2]: filesystem.cat_file(name) for name in names}
    assert stored_files == read_files(sweep_folder)
    assert read(url)["policy"].tolist() == read(sweep_folder)["policy"].tolist()


def test_finished_sweep_is_not_rewritten(sweep_folder, program_options):
    times = {path: path.stat().st_mtime_ns for path in sweep_folder.rglob("*")}
    assert run(make_spec(), sweep_folder)
    assert len(program_options) == 1
    assert {path: path.stat().st_mtime_ns for path in sweep_folder.rglob("*")} == times


DAMAGES = {
    "cut short": lambda content: content[:-20],
    "a value": lambda content: content[:99] + bytes([content[99] ^ 1]) + content[100:],
    "a header": lambda content: content[:999] + bytes([content[999] ^ 1]) + content[1000:],
    "first bytes": lambda content: b"XXXX" + content[4:],
    "empty": lambda content: b"",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_file_is_recomputed(damage, sweep_folder):
    files, path = read_files(sweep_folder), sweep_folder / "rows" / "rows-000002.parquet"
    path.write_bytes(damage(path.read_bytes()))
    assert run(make_spec(), sweep_folder)
    assert read_files(sweep_folder) == files


def test_read_names_a_damaged_file(sweep_folder):
    (sweep_folder / "rows" / "rows-000002.parquet").write_bytes(b"PAR1")
    with pytest.raises(SweepError, match=r"rows-000002\.parquet: is damaged"):
        read(sweep_folder)


def test_sweep_folder_rejects_another_specification(sweep_folder, tmp_path):
    files = read_files(sweep_folder)
    changes = {
        "boards: the folder has 4, this sweep has 5": {"boards": 5},
        "samples.hole_ratio: .*; samples.size: the folder has": {
            "samples": {"count": 11, "size": 5}
        },
        r"policies: .*'shortest_path'\], this sweep has \['random'\]": {"policies": ["random"]},
        "grid.size: the folder has None, .*samples.count: the folder has 11, this sweep has None": {
            "samples": None,
            "grid": {"size": 4},
        },
    }
    for message, change in changes.items():
        with pytest.raises(SweepError, match=f"belongs to another sweep: .*{message}"):
            run(make_spec(**change), sweep_folder)
    assert read_files(sweep_folder) == files
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(SweepError, match=r"has 'notes.txt' but no manifest\.json"):
        run(make_spec(), tmp_path / "other")


def test_run_rejects_boards_beyond_the_free_memory(monkeypatch, tmp_path):
    monkeypatch.setattr("jaxlake.runtime.memory.free_memory", lambda device: 1 << 30)
    large_spec = SweepSpec(["random"], grid={"size": 32, "num_agents": 5}, boards=1 << 20)
    with pytest.raises(SweepError, match=r"GB of memory are free; .* smaller chunk"):
        run(large_spec, tmp_path)
    assert not read_files(tmp_path)


def test_run_names_swapped_arguments(tmp_path):
    with pytest.raises(SweepError, match="spec must be a SweepSpec, got str"):
        run("folder", make_spec())


@dataclass(frozen=True, kw_only=True, eq=False)
class Scorer(RandomPolicy):
    """A random policy with weights that it ignores."""

    weights: jax.Array


def test_sweep_folder_rejects_other_policy_weights(program_options, tmp_path):
    def make_scorer_spec(weight):
        policy = Scorer(weights=jnp.full(3, weight))
        return SweepSpec({"mine": policy}, grid={"size": 3}, boards=2)

    assert run(make_scorer_spec(1.0), tmp_path)
    assert run(make_scorer_spec(1.0), tmp_path)
    with pytest.raises(
        SweepError, match=r"policy_digests\.mine: the folder has .*, this sweep has "
    ):
        run(make_scorer_spec(2.0), tmp_path)


def test_rows_of_another_sweep_are_rejected(sweep_folder, tmp_path):
    run(make_spec(seed=1), tmp_path / "other")
    shutil.copy(tmp_path / "other" / "rows" / "rows-000001.parquet", sweep_folder / "rows")
    with pytest.raises(SweepError, match=r"rows-000001\.parquet: does not belong to the sweep"):
        run(make_spec(), sweep_folder)


FIRST_FILE, LAST_FILE = "rows/rows-000000.parquet", "rows/rows-000003.parquet"


def alter_manifest(directory, change):
    """Change the manifest of a sweep."""
    manifest = json.loads((directory / "manifest.json").read_text())
    change(manifest)
    (directory / "manifest.json").write_text(json.dumps(manifest))


CHANGES = {
    "deleted": lambda sweep: (sweep / LAST_FILE).unlink(),
    "edited": lambda sweep: (
        pd.read_parquet(sweep / LAST_FILE).assign(valid=9).to_parquet(sweep / LAST_FILE)
    ),
    "replaced": lambda sweep: shutil.copy(sweep / FIRST_FILE, sweep / LAST_FILE),
    "renamed": lambda sweep: (sweep / LAST_FILE).rename(sweep / "rows/rows-000009.parquet"),
    "ratio": lambda sweep: alter_manifest(
        sweep, lambda manifest: manifest["spec"]["samples"].update(hole_ratio=0.5)
    ),
    "list": lambda sweep: alter_manifest(sweep, lambda manifest: manifest.update(files=[])),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("has_file_list", [True, False])
def test_read_reports_changed_files_and_manifests(change, has_file_list, sweep_folder):
    if not has_file_list:  # as in an unfinished sweep
        alter_manifest(sweep_folder, lambda manifest: manifest.update(files={}))
    CHANGES[change](sweep_folder)
    if change == "deleted" and not has_file_list:
        assert len(read(sweep_folder)["policy"]) == 18
        return
    with pytest.raises(SweepError, match=r"manifest\.json: |rows-00000\d\.parquet: "):
        read(sweep_folder)


def test_damaged_sweep_is_rejected_or_reads_equal(sweep_folder):
    rng, files, expected = random.Random(49), read_files(sweep_folder), read(sweep_folder)
    manifest = json.loads(files["manifest.json"])
    for trial in range(60):
        for name, content in files.items():
            (sweep_folder / name).write_bytes(content)
        if trial % 3 == 0:
            (sweep_folder / "manifest.json").write_text(json.dumps(alter_json(manifest, rng)))
        else:
            name = rng.choice(sorted(files))
            (sweep_folder / name).write_bytes(damage_bytes(files[name], rng))
        with allow_only(SweepError):
            for name, values in read(sweep_folder).items():
                np.testing.assert_array_equal(values, expected[name])


def test_link_out_of_a_sweep_is_rejected(sweep_folder, tmp_path):
    (tmp_path / "mine").write_text("mine")
    (sweep_folder / LAST_FILE).unlink()
    (sweep_folder / LAST_FILE).symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match=r"rows-000003\.parquet: is a link to .*mine, outside"):
        run(make_spec(), sweep_folder)
    assert (tmp_path / "mine").read_text() == "mine"


def test_create_or_verify_keeps_files_of_another_writer(tmp_path):
    temporary_file = tmp_path / ".manifest.json.999.tmp"
    temporary_file.touch()
    SweepFolder(tmp_path, make_spec()).create_or_verify()
    assert set(read_files(tmp_path)) == {"manifest.json", temporary_file.name}


@pytest.mark.parametrize("part", [(-1, 2), (2, 2), (0, 0)])
def test_run_rejects_invalid_part(part, tmp_path):
    with pytest.raises(SweepError, match=re.escape(f"0 <= i < n, got {part}")):
        run(make_spec(), tmp_path, part=part)


def test_read_rejects_a_folder_without_rows(program_options, tmp_path):
    with pytest.raises(SweepError, match=r"manifest\.json: is missing"):
        read(tmp_path)
    run(make_spec(), tmp_path / "begun", part=(3, 4))
    assert read(tmp_path / "begun")["configuration"].tolist() == [9, 9, 10, 10]
    (tmp_path / "begun" / "rows" / "rows-000003.parquet").unlink()
    with pytest.raises(SweepError, match="has no rows yet"):
        read(tmp_path / "begun")


@pytest.mark.slow
def test_killed_and_shared_sweeps_equal_one_run(tmp_path):
    single_run, killed_run, shared_run = (tmp_path / name for name in ("one", "killed", "shared"))
    assert run(make_spec(tables=True), single_run)
    files = read_files(single_run)
    assert len(files) == 1 + 2 * NUM_CHUNKS
    columns = read(single_run)
    assert (columns["boards"] == 4).all()
    assert 0 < columns["valid"].sum() < columns["boards"].sum()
    with np.load(single_run / "tables" / "tables-000003.npz") as tables:
        assert tables["configuration"].tolist() == [9, 10]
        valid = tables["failures"].sum(axis=(2, 3, 4, 5))[..., 0]
        assert valid.reshape(-1).tolist() == columns["valid"][-4:].tolist()

    for number, moment in (("3", "after"), ("2", "before")):
        command = [sys.executable, "-m", small_sweep.__name__, "kill", killed_run, number, moment]
        process = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True)
        assert process.returncode == -signal.SIGKILL, process.stderr.decode()
    assert any(name.endswith(".tmp") for name in read_files(killed_run))
    assert run(make_spec(tables=True), killed_run)
    assert read_files(killed_run) == files

    one_of_many.run_all([shared_run, shared_run], module=small_sweep.__name__, num_local_devices=2)
    assert read_files(shared_run) == files
