"""Exclusive locks on folders."""

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
def lock_folder(folder: Path) -> Iterator[int]:
    """Lock a folder for this process and the processes that inherit the lock's descriptor.

    While the folder is locked, its file `.lock` contains the process id, the host and the start
    time.

    Yields:
        The file descriptor of the lock.

    Raises:
        UserError: Another process holds the lock; the message names the process.
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
                f"{folder}: is in use by {_describe_holder(file)} or one of its child processes; "
                "wait for it or end it"
            ) from error
        except OSError as error:
            raise UserError(f"{file}: can't be locked: {error.strerror}") from error
        start_time = datetime.now(UTC).isoformat(timespec="seconds")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": start_time}
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


def _describe_holder(file: Path) -> str:
    try:
        holder = json.loads(file.read_text(encoding="utf-8"))
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, LookupError, TypeError):
        return "another process"
