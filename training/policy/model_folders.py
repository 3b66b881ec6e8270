"""Model folders: where they are, here or on the hub, and how they are replaced as a whole."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.errors import did_you_mean
from training.policy.folder_checks import ModelFolderError as ModelFolderError
from training.policy.folder_checks import require_safe_folder

SHIPPED = {"jaxlake-base": Path(__file__).resolve().parents[1] / "base_model"}
"""Models that are packaged with this library, by the name that a configuration gives them."""

CONFIG_FILE = "config.json"
# The files of a tokenizer and of its use in generation, which are copied as they are.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def local_folder(name_or_folder: str | Path) -> Path | None:
    """Return the folder of a model that is on this machine; None: it is a name for the hub.

    A `ModelFolderError` says that it can be neither.
    """
    if name_or_folder in SHIPPED:
        return SHIPPED[str(name_or_folder)]
    folder = Path(name_or_folder).expanduser()
    restore(folder)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise ModelFolderError(f"model {str(folder)!r} is a file; allowed is a folder")
    if not isinstance(name_or_folder, str) or not _HUB_NAME.fullmatch(name_or_folder):
        raise ModelFolderError(
            f"model {str(name_or_folder)!r}: no such folder; allowed is a folder with a "
            f"{CONFIG_FILE} and safetensors, the hub's name of a model, owner/name, or "
            f"{', '.join(SHIPPED)}, which comes with this library"
            + did_you_mean(name_or_folder, SHIPPED)
        )
    return None


def require_model(name_or_folder: str | Path) -> None:
    """Raise a `ModelFolderError` if there can't be such a model; on the hub it is not looked up."""
    folder = local_folder(name_or_folder)
    if folder is not None and not (folder / CONFIG_FILE).exists():
        raise ModelFolderError(
            f"model {str(folder)!r}: has no {CONFIG_FILE}; allowed is a Hugging Face model folder"
        )


def resolve(name_or_folder: str | Path) -> Path:
    """Return the local folder of a model: one of `SHIPPED`, a folder, or the hub's copy.

    A name that has the hub's form `owner/name`, and is no folder here, is looked up on the hub (or
    in its local cache). A `ModelFolderError` says that there is neither.
    """
    folder = local_folder(name_or_folder)
    if folder is not None:
        require_safe_folder(folder, complete=name_or_folder in SHIPPED)
        return folder
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.safetensors", *TOKENIZER_FILES]
    try:
        # Some repositories hold the weights once more, in their makers' own format.
        return Path(
            snapshot_download(
                str(name_or_folder),
                allow_patterns=patterns,
                ignore_patterns=["consolidated*", "original/*"],
            )
        )
    except (OSError, ValueError) as error:  # the hub's own errors and HTTP failures are OSErrors
        reason = str(error).strip().split("\n")[0]
        raise ModelFolderError(
            f"model {name_or_folder!r}: no such folder here, and the hub did not give it: {reason}"
        ) from error


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Give an empty folder to write to, which takes this one's place when the block ends.

    An older folder of that name is kept until then, and stays if the block fails. If the process
    dies between the two renames, `restore` brings the older one back. What has the name is on the
    disk, so that a host that crashes leaves no shortened files there.
    """
    new, old = _sibling(folder, "partial"), _sibling(folder, "old")
    restore(folder)
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
        for path in (*new.rglob("*"), new):
            _sync(path)
        if folder.exists():
            os.replace(folder, old)
        os.replace(new, folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        restore(folder)
        raise
    if old.exists():
        _sync(folder.absolute().parent)  # the new name, before the older files are gone
        shutil.rmtree(old, ignore_errors=True)


def restore(folder: Path) -> None:
    """Undo the first rename of a `replaced` that was killed before its second."""
    old = _sibling(folder, "old")
    if old.is_dir() and not folder.exists():
        os.replace(old, folder)


def _sync(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def _sibling(folder: Path, suffix: str) -> Path:
    folder = folder.absolute()
    return folder.with_name(f".{folder.name}.{suffix}")
