"""Board sets and sweeps accept URLs; other path arguments reject them."""

import argparse
import re
import sys

import fsspec
import pytest

from jaxlake.command_line.arguments import any_path
from jaxlake.command_line.entry import make_parser
from tests.jaxlake.datasets import small_set

METAVARS = {"ANSWERS", "CONFIG", "DIR", "FILE", "FOLDER", "PATH", "RESULTS"}
METAVARS |= {"RUN", "SOURCE", "SPEC", "STUDY", "TARGET"}


def iter_arguments(parser, command=()):
    """Yield (command, action) for each argument of all commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, subparser in action.choices.items():
                yield from iter_arguments(subparser, (*command, name))
        else:
            yield " ".join(command), action


def test_paths_take_urls_for_sets_and_sweeps_only():
    pairs = [(c, a) for c, a in iter_arguments(make_parser(complete=True)) if a.metavar in METAVARS]
    assert len(pairs) > 20
    for _, action in pairs:
        if action.type is not any_path:
            with pytest.raises(argparse.ArgumentTypeError, match="mount the bucket"):
                action.type("gs://bucket/folder")
    assert {command for command, action in pairs if action.type is any_path} == {
        "dataset make",
        "dataset info",
        "dataset convert",
        "sweep run",
        "sweep plot",
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("dataset info gs://bucket/set", "gs://bucket/set: .*'jaxlake\\[cloud\\]'"),
        (
            "run configs/miniature.yaml --run-dir gs://bucket/run",
            "--run-dir: must be a local path, got the URL gs://bucket/run;",
        ),
        (
            "solve - --output s3://bucket/file",
            "--output: must be a local path, got the URL s3://bucket/file;",
        ),
    ],
)
def test_invalid_urls_end_with_status_2(words, message, cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    monkeypatch.chdir(tmp_path)
    result = cli(*words.split())
    assert result.status == 2
    assert re.search(message, result.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_dataset_commands_read_a_remote_set(cli, tmp_path):
    small_set.make(tmp_path / "set")
    url = f"memory://{tmp_path}/store"
    fsspec.filesystem("memory").put(f"{tmp_path}/set/", f"{url}/", recursive=True)
    local_result, remote_result = (
        cli("dataset", "info", location, "--verify") for location in (tmp_path / "set", url)
    )
    assert (remote_result.status, remote_result.out) == (0, local_result.out)
    for name, source in (("a.jsonl", tmp_path / "set"), ("b.jsonl", url)):
        assert cli("dataset", "convert", source, tmp_path / name).status == 0
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert cli("dataset", "convert", f"{url}/none", tmp_path / "c.jsonl").status == 2
