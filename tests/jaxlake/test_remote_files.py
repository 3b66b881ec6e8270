"""URLs of object stores where supported, and one-line errors elsewhere."""

import sys
from pathlib import Path

import fsspec
import pytest

from jaxlake import files
from jaxlake.remote_files import RemotePath, as_path


@pytest.fixture
def url(tmp_path):
    return f"memory://{tmp_path}"


@pytest.mark.parametrize("package", ["gcsfs", "fsspec"])
def test_as_path_names_missing_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"^gs://bucket/set: .*{package}.*'jaxlake\[cloud\]'"):
        as_path("gs://bucket/set")


@pytest.mark.parametrize(
    ("location", "message"),
    [
        (Path("gs://bucket/set"), "gs:/bucket/set: a URL must be a string"),
        ("nix://bucket", "nix://bucket: the scheme 'nix' is unknown"),
    ],
)
def test_as_path_rejects_invalid_urls(location, message):
    with pytest.raises(ValueError, match=message):
        as_path(location)


def test_as_path_keeps_local_paths(tmp_path):
    assert as_path(f"file://{tmp_path}") == as_path(str(tmp_path)) == tmp_path
    assert as_path("runs/a:b") == Path("runs/a:b")


def test_remote_path_lists_and_reads_written_files(url):
    folder = as_path(url + "/")
    assert files.is_in_unused_folder(folder / "a")
    files.write_text_atomic(folder / "a", "é\n")
    files.write_bytes_atomic(folder / "inner" / "b", b"\r\x00")
    assert [path.name for path in folder.iterdir()] == ["a", "inner"]
    assert (folder / "a").read_text() == "é\n"
    with (folder / "inner" / "b").open() as file:
        assert file.read() == b"\r\x00"
    assert not files.is_in_unused_folder(folder / "a")
    assert not (folder / "c").exists()
    assert list((folder / "c").iterdir()) == []


def test_open_atomic_writes_no_remote_file_after_an_error(url):
    path = as_path(url) / "file"

    def write_half() -> None:
        with files.open_atomic(path) as file:
            file.write("new")
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert not path.exists()


def test_write_text_if_absent_keeps_the_first_remote_file(url):
    path = as_path(url) / "file"
    assert files.write_text_if_absent(path, "first")
    assert not files.write_text_if_absent(path, "second")
    assert path.read_text() == "first"


def test_remote_path_errors_name_the_url(url, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("no credentials")

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "exists", fail)
    with pytest.raises(OSError, match=f"{url}: RuntimeError: no credentials"):
        RemotePath(url).exists()
