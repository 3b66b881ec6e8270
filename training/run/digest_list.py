"""`SHA256SUMS` of a run: the digest of each file that the run wrote, in order of writing.

The format is compatible with `sha256sum --check SHA256SUMS`. A digest is written before its file
and removed after it, so after a kill only the last file in the list may be missing.
"""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from jaxlake.files import require_inside, write_text_atomic
from training.errors import UserError
from training.run.digests import DIGESTS_FILE, file_digest

_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


class DigestList:
    """The digests of a run's files. If `SHA256SUMS` does not exist, nothing is compared."""

    def __init__(self, root: Path) -> None:
        """Define the list of the run in `root`, without reading or writing it."""
        self.root = root
        self.file = root / DIGESTS_FILE
        self._was_read = False

    def entries(self) -> dict[str, str] | None:
        """Return the digests by file name, in order, or None if the list doesn't exist.

        Raises:
            UserError: The list can't be read, or it has disappeared since it was last read.
        """
        require_inside(self.file, self.root)
        try:
            lines = self.file.read_bytes().decode("utf-8").split("\n")
        except FileNotFoundError:
            self.require_present()
            return None
        except OSError as error:
            raise UserError(f"{self.file}: can't be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{self.file}: is not UTF-8 text: {error}") from error
        self._was_read = True
        entries: dict[str, str] = {}
        for number, line in enumerate(lines[:-1], start=1):
            match = _LINE.fullmatch(line)
            if match is None or match[2] in entries:
                raise UserError(f"{self.file}:{number}: must be a digest and the name of a file")
            entries[match[2]] = match[1]
        if lines[-1]:
            raise UserError(f"{self.file}:{len(lines)}: the line is incomplete")
        return entries

    def require_present(self) -> None:
        """Raise a `UserError` if the list has disappeared since it was last read."""
        if self._was_read and not self.file.exists():
            raise UserError(
                f"{self.root}: was moved or removed while it was in use. Move it back, or pass its "
                "new path; the same command resumes the run"
            )

    def check(self, path: Path, content: bytes, *, optional: bool = False) -> None:
        """Raise a `UserError` if a file's content differs from its digest.

        If `optional`, the file may lack a digest.
        """
        entries = self.entries()
        if entries is not None:
            self._compare(path, hashlib.sha256(content).hexdigest(), entries, optional=optional)

    def require_unlisted(self, path: Path) -> None:
        """Raise a `UserError` if a missing file is in the list.

        The last file in the list may be missing, because its digest is written first.
        """
        entries = self.entries() or {}
        name = self.name(path)
        if name in entries and name != next(reversed(entries)):
            raise UserError(f"{path}: is missing but listed in {DIGESTS_FILE}; restore the file")

    def record(self, path: Path, digest: str) -> None:
        """Add the digest of a file that is about to be written."""
        entries = self.entries()
        if entries is not None:
            self._write(self._drop_entry(entries, path) | {self.name(path): digest})

    def record_folder(self, folder: Path) -> None:
        """Add the digests of all files in a new folder."""
        if (entries := self.entries()) is not None:
            paths = sorted(path for path in folder.glob("[!.]*") if path.is_file())
            self._write(entries | {self.name(path): self._digest(path) for path in paths})

    def has_folder(self, folder: Path) -> bool:
        """Return whether the list contains files of a folder or doesn't exist."""
        entries = self.entries()
        return entries is None or any(Path(name).parent.name == folder.name for name in entries)

    def prepare_removal(self, path: Path) -> None:
        """Move a file to the end of the list, so that it may be missing."""
        entries = self.entries() or {}
        if (digest := entries.get(self.name(path))) is not None:
            self._write(self._drop_entry(entries, path) | {self.name(path): digest})

    def forget(self, path: Path) -> None:
        """Drop the digest of a file that is about to change, such as a log."""
        entries = self.entries()
        if entries and self.name(path) in entries:
            self._write(self._drop_entry(entries, path))

    def create(self, paths: Iterable[Path]) -> None:
        """Write the digests of existing files."""
        self._write({self.name(path): self._digest(path) for path in paths})
        self._was_read = True

    def require_intact(self, entries: dict[str, str], paths: Iterable[Path]) -> None:
        """Compare all files in `entries` with their digests; `paths` must be in `entries`.

        Raises:
            UserError: A file is missing, has changed, or is not in the list.
        """
        for path in paths:
            if self.name(path) not in entries:
                self._compare(path, "", entries)
        for name in entries:
            path = self.root / name
            require_inside(path, self.root)
            if path.exists():
                self._compare(path, self._digest(path), entries)
            else:
                self.require_unlisted(path)

    def _compare(
        self, path: Path, digest: str, entries: dict[str, str], *, optional: bool = False
    ) -> None:
        expected_digest = entries.get(self.name(path))
        if expected_digest is None and not optional:
            raise UserError(
                f"{path}: has no digest in {DIGESTS_FILE}, so the run did not write it; restore "
                f"{self.file}, or remove the file"
            )
        if expected_digest is not None and digest != expected_digest:
            raise UserError(
                f"{path}: differs from its digest in {DIGESTS_FILE}; restore the file, or remove "
                "the run's directory to start again"
            )

    def _drop_entry(self, entries: dict[str, str], path: Path) -> dict[str, str]:
        """Return the entries without a file's, and without the last if its file is missing."""
        last_name = next(reversed(entries), None)
        excluded_names = {self.name(path)}
        if last_name is not None and not (self.root / last_name).exists():
            excluded_names.add(last_name)
        return {name: digest for name, digest in entries.items() if name not in excluded_names}

    def _digest(self, path: Path) -> str:
        try:
            return file_digest(path)
        except OSError as error:
            raise UserError(f"{path}: can't be read: {error.strerror}") from error

    def name(self, path: Path) -> str:
        """Return the name of a file in the list."""
        return path.relative_to(self.root).as_posix()

    def _write(self, entries: dict[str, str]) -> None:
        text = "".join(f"{digest}  {name}\n" for name, digest in entries.items())
        try:
            write_text_atomic(self.file, text)
        except OSError as error:
            raise UserError(f"{self.file}: can't be written: {error.strerror}") from error
