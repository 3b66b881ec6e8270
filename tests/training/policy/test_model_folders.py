"""Model folders are flushed to disk before they are renamed into place."""

import errno
import os
from pathlib import Path

import pytest

from training.policy.model_folders import replace_folder


def write(folder: Path, text: str) -> None:
    with replace_folder(folder) as partial:
        (partial / "below").mkdir()
        for name in ("weights", "below/config"):
            (partial / name).write_text(text)


def test_replaced_syncs_before_renaming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, rename = os.fsync, os.replace
    synced: set[int] = set()
    not_synced: list[set[int]] = []

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    def replace(source: Path, target: Path) -> None:
        inodes = {path.stat().st_ino for path in (source, *source.rglob("*"))}
        assert len(inodes) == 4
        not_synced.append(inodes - synced)
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write(tmp_path / "model", "old")
    write(tmp_path / "model", "new")
    assert not_synced == [set()] * 3
    assert tmp_path.stat().st_ino in synced
    assert (tmp_path / "model/below/config").read_text() == "new"
    assert os.listdir(tmp_path) == ["model"]


def test_failed_sync_keeps_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    write(tmp_path / "model", "old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"Input/output error: .*partial/"):
        write(tmp_path / "model", "new")
    assert (tmp_path / "model/weights").read_text() == "old"
    assert os.listdir(tmp_path) == ["model"]
