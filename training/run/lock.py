"""A folder that one process at a time works in."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from training.errors import UserError

LOCK = ".lock"


@contextmanager
def hold(folder: Path) -> Iterator[int]:
    """Hold a folder for this process and those to which it hands the descriptor that it gets.

    While it is held, the folder's file `.lock` says by which process, on which host and since when.

    Raises:
        UserError: Another process holds the folder; the message names it.
    """
    file = folder / LOCK
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise UserError(f"{file}: can't be written: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"{folder}: is in use by {_holder(file)}, or by a process that this one has "
                "started; wait for it or end it"
            ) from error
        except OSError as error:
            raise UserError(f"{file}: can't be locked: {error.strerror}") from error
        since = datetime.now(UTC).isoformat(timespec="seconds")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(holder).encode() + b"\n", 0)
        except OSError as error:
            raise UserError(f"{file}: can't be written: {error.strerror}") from error
        try:
            yield descriptor
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _holder(file: Path) -> str:
    try:
        holder = json.loads(file.read_text(encoding="utf-8"))
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, LookupError, TypeError):
        return "another process"
