"""Lookup of model folders, locally or on the hub, and their atomic replacement."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.errors import did_you_mean
from training.policy.folder_checks import ADAPTER_FILE, require_safe_folder
from training.policy.folder_checks import ModelFolderError as ModelFolderError

PACKAGED_MODELS = {"jaxlake-base": Path(__file__).resolve().parents[1] / "base_model"}
"""Models packaged with this library, by their name in a configuration."""

CONFIG_FILE = "config.json"
# Tokenizer and generation files, which are copied unchanged.
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
    """Return the folder of a local model, or None for a name on the hub.

    The argument is a name of `PACKAGED_MODELS`, a folder, or the hub's `owner/name`.

    Raises:
        ModelFolderError: The argument is neither a folder nor a valid name.
    """
    if name_or_folder in PACKAGED_MODELS:
        return PACKAGED_MODELS[str(name_or_folder)]
    folder = Path(name_or_folder).expanduser()
    restore_folder(folder)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise ModelFolderError(f"model {str(folder)!r} must be a folder, got a file")
    if not isinstance(name_or_folder, str) or not _HUB_NAME.fullmatch(name_or_folder):
        raise ModelFolderError(
            f"model must be a folder with a {CONFIG_FILE} and safetensors, a model on the hub "
            f"(owner/name), or {', '.join(PACKAGED_MODELS)}, got {str(name_or_folder)!r}"
            + did_you_mean(name_or_folder, PACKAGED_MODELS)
        )
    return None


def require_model(name_or_folder: str | Path) -> None:
    """Raise a `ModelFolderError` if a name or folder is invalid, without contacting the hub."""
    folder = local_folder(name_or_folder)
    if folder is not None and not any((folder / x).exists() for x in (CONFIG_FILE, ADAPTER_FILE)):
        raise ModelFolderError(
            f"model must be a Hugging Face model folder, got {str(folder)!r} without {CONFIG_FILE}"
        )


def resolve_model(name_or_folder: str | Path) -> Path:
    """Return the local folder of a model; download it if it is not in the hub's cache.

    `local_folder` explains the argument.

    Raises:
        ModelFolderError: The model exists neither locally nor on the hub.
    """
    folder = local_folder(name_or_folder)
    if folder is not None:
        require_safe_folder(folder, complete=name_or_folder in PACKAGED_MODELS)
        return folder
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.safetensors", *TOKENIZER_FILES]
    try:
        # Some repositories contain a second copy of the weights in another format.
        folder = Path(
            snapshot_download(
                str(name_or_folder),
                allow_patterns=patterns,
                ignore_patterns=["consolidated*", "original/*"],
            )
        )
        require_safe_folder(folder)
        return folder
    except ModelFolderError:
        raise
    except (OSError, ValueError) as error:  # the hub's own errors and HTTP failures are OSErrors
        reason = str(error).strip().split("\n")[0]
        raise ModelFolderError(
            f"model {name_or_folder!r} is neither a local folder nor available on the hub: {reason}"
        ) from error


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that atomically replaces `folder` when the block ends.

    Until then, and if the block fails, an existing folder stays in place. If the process dies
    between the two renames, `restore_folder` brings the existing folder back. All files are synced
    to disk before the rename, so that a crash of the host leaves no truncated files.
    """
    new_folder, old_folder = _get_sibling(folder, "partial"), _get_sibling(folder, "old")
    restore_folder(folder)
    for path_to_remove in (new_folder, old_folder):
        shutil.rmtree(path_to_remove, ignore_errors=True)
    new_folder.mkdir(parents=True)
    try:
        yield new_folder
        for path in (*new_folder.rglob("*"), new_folder):
            _sync(path)
        if folder.exists():
            os.replace(folder, old_folder)
        os.replace(new_folder, folder)
    except BaseException:
        shutil.rmtree(new_folder, ignore_errors=True)
        restore_folder(folder)
        raise
    if old_folder.exists():
        _sync(folder.absolute().parent)  # sync the rename before the old files are removed
        shutil.rmtree(old_folder, ignore_errors=True)


def restore_folder(folder: Path) -> None:
    """Bring back the existing folder if `replace_folder` was killed between its two renames."""
    old_folder = _get_sibling(folder, "old")
    if old_folder.is_dir() and not folder.exists():
        os.replace(old_folder, folder)


def _sync(path: Path) -> None:
    """Sync a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def _get_sibling(folder: Path, suffix: str) -> Path:
    folder = folder.absolute()
    return folder.with_name(f".{folder.name}.{suffix}")
