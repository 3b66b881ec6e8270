"""The directory of a run that several processes share.

Process 0 writes the run's files, and the other processes work on copies. All processes use the
same folders of weights.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jaxlake.files import remove_temporary_files_below
from training.errors import UserError
from training.processes import (
    call_in_first,
    is_first,
    is_single_process,
    require_same,
    wait_for_all,
)
from training.run.directory import RunDirectory
from training.run.lock import lock_folder
from training.run.progress import console, status_console
from training.schema import RunConfig, dump

_WEIGHT_FOLDERS = ("checkpoints", "initial", "engine", "policy", "adapters")
_TRACKER_FILES = ("tensorboard", "wandb", "wandb.id", "profile")
_NOT_COPIED = (*_WEIGHT_FOLDERS, *_TRACKER_FILES, "report.html", ".*")


@contextmanager
def open_run(config: RunConfig, path: Path) -> Iterator[tuple[RunDirectory, bool]]:
    """Claim and lock a run's directory.

    Yields:
        The directory or this process's copy of it, and whether the run already existed.

    Raises:
        UserError: See `RunDirectory.claim`, `lock_folder` and `require_shareable`.
        PeerError: Another process failed, or has another configuration.
    """
    require_same("the configuration", dump(config))
    if not is_single_process():
        require_shareable(config)
    with ExitStack() as stack:

        def claim() -> bool:
            directory = RunDirectory(path)
            is_resumed = directory.claim(config)
            stack.enter_context(lock_folder(path))
            remove_temporary_files_below(path)
            if directory.digests.entries() is not None:
                directory.require_intact()
                return is_resumed
            directory.write_digest_list()
            if is_resumed:
                console.print(
                    f"{directory.digests.file}: is missing; created from the run's current files.",
                    style="yellow",
                    soft_wrap=True,
                )
            return is_resumed

        is_resumed: bool = call_in_first("the claim of the run's directory", claim)
        local_path = path if is_first() else _copy_small_files(path, stack)
        wait_for_all("the files of the run")  # process 0 may now change them
        yield RunDirectory(local_path, path), is_resumed


def require_shareable(config: RunConfig) -> None:
    """Raise a `UserError` if several processes can't share a run of this configuration."""
    if config.grpo.prefetch:
        raise UserError(
            "grpo.prefetch must be 0 in a run of several processes, got 1: --set grpo.prefetch=0"
        )
    if address := config.sampling.server.address:
        raise UserError(
            "sampling.server.address must be null in a run of several processes, got "
            f"{address}: each process would send its weights to the same server"
        )


def _copy_small_files(path: Path, stack: ExitStack) -> Path:
    """Copy all files of a run except weights, and silence this process's output."""
    if not RunDirectory(path).config_file.exists():
        raise UserError(
            f"{path}: is missing on this host; --run-dir must be on a file system that all hosts "
            "share"
        )
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jaxlake-"))) / "run"
    shutil.copytree(path, folder, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    for output in (console, status_console):
        stack.callback(setattr, output, "quiet", output.quiet)
        output.quiet = True
    return folder
