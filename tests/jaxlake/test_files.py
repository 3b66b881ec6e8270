"""Files are written atomically, and JSON lines are read with their positions."""

import errno
import os
import signal
import stat
import subprocess
import sys

import pytest

from jaxlake import files
from jaxlake.command_line.json_lines import open_output
from jaxlake.errors import UserError
from jaxlake.files import require_plain_files

KILL_PROGRAM = """\
import os, signal, sys
from pathlib import Path
from jaxlake.files import write_text_atomic
os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
write_text_atomic(Path(sys.argv[1]), "new")
"""


def test_failed_write_keeps_the_old_file_only(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def write_half() -> None:
        with files.open_atomic(path) as file:
            file.write("new")
            file.flush()
            assert path.read_text() == "old"
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("function_name", ["fsync", "replace"])
def test_error_without_a_name_names_the_file(function_name, tmp_path, monkeypatch):
    def raise_error(*arguments):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, function_name, raise_error)
    with pytest.raises(OSError, match=r"Operation not permitted: '.*/file'"):
        files.write_text_atomic(tmp_path / "file", "new")
    with (
        pytest.raises(UserError, match=r"/out: can't be written: Operation not permitted"),
        open_output(str(tmp_path / "out")) as out,
    ):
        out.write("new")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(("mode", "content"), [("w", "é\n"), ("wb", b"\r\x00")])
def test_pipe_is_not_replaced(tmp_path, mode, content):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with files.open_atomic(path, mode) as file:
            file.write(content)
        assert stat.S_ISFIFO(path.stat().st_mode)
        data = os.read(reader, 100)
    finally:
        os.close(reader)
    assert data == (content if isinstance(content, bytes) else content.encode())


def test_killed_writer_keeps_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    process = subprocess.run([sys.executable, "-c", KILL_PROGRAM, str(path)], timeout=100)
    assert process.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    (temporary_file,) = files.find_temporary_files(path)
    assert sorted(os.listdir(tmp_path)) == sorted(["file", temporary_file.name])
    assert not files.clear_unused_folder(path)
    path.unlink()
    assert files.clear_unused_folder(path)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "name", ["a", ".other.12.tmp", ".file.tmp", ".file.x.tmp", ".file.12.tmp.gz", "file.12.tmp"]
)
def test_clear_unused_folder_keeps_other_files(name, tmp_path):
    (tmp_path / name).write_text("mine")
    (tmp_path / ".file.77.tmp").write_text("left by a kill, or not")
    assert not files.clear_unused_folder(tmp_path / "file")
    assert len(os.listdir(tmp_path)) == 2


def test_read_json_lines_numbers_lines(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes('\ufeff{"a": "x\u2028y"}\r\n\n  \n[1]\n"no line feed"'.encode())
    expected = [(1, {"a": "x\u2028y"}), (4, [1]), (5, "no line feed")]
    assert list(files.read_json_lines(path)) == expected


@pytest.mark.parametrize("line", [b'{"a": 1', b"\xff", b"[" * 100_000])
def test_damaged_line_is_named_or_skipped(line, tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"1\n" + line + b"\n3\n")
    with pytest.raises(ValueError, match=r"lines\.jsonl:2: not JSON: "):
        list(files.read_json_lines(path))
    errors: dict[int, ValueError] = {}
    assert list(files.read_json_lines(path, errors)) == [(1, 1), (3, 3)]
    assert list(errors) == [2]


@pytest.mark.parametrize("line", ['{"a": 1, "b": 2, "a": 1}', '[{"b": {"a": 1, "\\u0061": 2}}]'])
def test_line_with_a_duplicate_key_is_rejected(line, tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text(f'{{"a": 1}}\n{line}\n')
    with pytest.raises(files.RepeatedKeyError, match=r"lines\.jsonl:2: the key 'a' is repeated"):
        list(files.read_json_lines(path))


def test_first_of_two_writers_creates_the_file(tmp_path, monkeypatch):
    path = tmp_path / "new" / "file"
    assert files.write_text_if_absent(path, "one") is True
    assert files.write_text_if_absent(path, "two") is False
    assert path.read_text() == "one"
    assert list(path.parent.iterdir()) == [path]

    def raise_error(*paths):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", raise_error)
    path.unlink()
    assert files.write_text_if_absent(path, "three") is True
    assert path.read_text() == "three"


def test_concurrently_removed_files_are_skipped(tmp_path, monkeypatch):
    entries = [(str(tmp_path), [], [".log.jsonl.7.tmp"])]
    monkeypatch.setattr(os, "walk", lambda root: entries)
    require_plain_files(tmp_path)
    os.mkfifo(tmp_path / ".log.jsonl.7.tmp")
    with pytest.raises(UserError, match="is a pipe"):
        require_plain_files(tmp_path)
