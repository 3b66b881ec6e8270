"""Model folders are flushed to disk before they are renamed into place."""

import errno
import os
from pathlib import Path

import pytest

from training.policy.model_folders import replace_folder


def write_folder(folder: Path, text: str) -> None:
    with replace_folder(folder) as partial_folder:
        (partial_folder / "below").mkdir()
        for name in ("weights", "below/config"):
            (partial_folder / name).write_text(text)


def test_replace_folder_syncs_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, rename = os.fsync, os.replace
    synced_inodes: set[int] = set()
    unsynced_inodes: list[set[int]] = []

    def record_fsync(descriptor: int) -> None:
        sync(descriptor)
        synced_inodes.add(os.fstat(descriptor).st_ino)

    def check_replace(source: Path, target: Path) -> None:
        inodes = {path.stat().st_ino for path in (source, *source.rglob("*"))}
        assert len(inodes) == 4
        unsynced_inodes.append(inodes - synced_inodes)
        rename(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", check_replace)
    write_folder(tmp_path / "model", "old")
    write_folder(tmp_path / "model", "new")
    assert unsynced_inodes == [set()] * 3
    assert tmp_path.stat().st_ino in synced_inodes
    assert (tmp_path / "model/below/config").read_text() == "new"
    assert os.listdir(tmp_path) == ["model"]


def test_failed_sync_keeps_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    write_folder(tmp_path / "model", "old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"Input/output error: .*partial/"):
        write_folder(tmp_path / "model", "new")
    assert (tmp_path / "model/weights").read_text() == "old"
    assert os.listdir(tmp_path) == ["model"]
