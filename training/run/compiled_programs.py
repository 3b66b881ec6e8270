"""Where a run keeps what JAX compiled for it: in its own directory, and in the user's cache, too.

A run that goes on, also where its directory was moved, finds its programs there; another run finds
them in the user's cache. Files of both are links to one content where the file system allows it.

JAX writes its files in place, and never again: what a full disk or a killed process has cut would
be read in vain, with a warning, by every later run. Such files are removed here.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from jaxlake.command_line.compilation_cache import CACHE, compilation_cache_folder, machine_digest
from training.processes import alone, is_first, wait_for_all

MOST_BYTES = 256 * 2**20
"""Of the user's cache at most so much is brought into a run's directory: what is newest."""

_JAXS = "-cache"  # ends the names of JAX's files
_SETTLED = 60.0  # seconds after which nobody writes to a file of the user's cache any more
_UNFINISHED = ".tmp"


@contextmanager
def programs_kept(folder: Path) -> Iterator[None]:
    """Let JAX keep what it compiles in the block in a run's folder, one for each kind of processor.

    The folder begins with what is newest in the user's cache, up to `MOST_BYTES`, and what was
    compiled is handed to the user's cache at the end. A folder that the user has named stays where
    it is. Of several processes only the first writes, and all of them read.
    """
    user, own = _users_cache(), folder / machine_digest()
    if user is not None and is_first():
        with suppress(OSError):  # no room, or no permission: the rest is compiled
            own.mkdir(parents=True, exist_ok=True)
            for file in list(own.iterdir()):  # to which nobody else writes
                if not _is_whole(file):
                    file.unlink()
            _bring(user, own, most_bytes=MOST_BYTES, before=time.time() - _SETTLED)
    if not alone():
        wait_for_all("compiled programs")
    if user is None or not own.is_dir():
        yield
        return
    _use(own)
    try:
        yield
    finally:
        _use(user)
        if is_first():
            with suppress(OSError):
                _bring(own, user)


def _users_cache() -> Path | None:
    """Return the folder that the command line has chosen; None: the user has, or there is none."""
    environment = {name: value for name, value in os.environ.items() if name != CACHE}
    chosen = compilation_cache_folder(environment)
    return chosen if chosen is not None and os.environ.get(CACHE) == str(chosen) else None


def _use(folder: Path) -> None:
    compilation_cache.reset_cache()  # JAX looks at the setting once only
    jax.config.update("jax_compilation_cache_dir", str(folder))


def _bring(
    source: Path, target: Path, *, most_bytes: float = math.inf, before: float = math.inf
) -> None:
    """Link the files of a folder into another one, those that were written last.

    Where that is another disk, those are copied that were written before a time. Files that are cut
    stay behind, and are removed if nobody writes to them any more.
    """
    files = [(entry.stat(), entry) for entry in os.scandir(source) if entry.is_file()]
    for status, entry in sorted(files, key=lambda one: -one[0].st_mtime_ns):
        most_bytes -= status.st_size
        if most_bytes < 0:
            return
        place = target / entry.name
        if place.exists() or entry.name.endswith(_UNFINISHED):
            continue
        if not _is_whole(Path(entry.path)):
            if status.st_mtime < time.time() - _SETTLED:
                os.unlink(entry.path)
            continue
        try:
            os.link(entry.path, place)
        except FileExistsError:  # another run was faster
            continue
        except OSError:  # another disk, or one without links
            if status.st_mtime > before:
                continue
            partial = place.with_name(f".{place.name}.{os.getpid()}{_UNFINISHED}")
            shutil.copy2(entry.path, partial)
            os.replace(partial, place)


def _is_whole(file: Path) -> bool:
    """Whether JAX can read a file of its own; True of other files."""
    if not file.name.endswith(_JAXS):
        return True
    try:
        from jax._src.compilation_cache import decompress_executable
    except ImportError:  # it is JAX's own, and may go
        return True
    try:
        decompress_executable(file.read_bytes())
    except Exception:  # which one depends on the library that compresses
        return False
    return True
