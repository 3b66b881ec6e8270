"""A run's directory in a run of several processes.

The first process writes the run's files; the others work on copies. All processes share the
folders of weights.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jaxlake.files import remove_temporary_files_below
from training.errors import UserError
from training.processes import (
    broadcast_from_first,
    is_first,
    is_single_process,
    require_same,
    wait_for_all,
)
from training.run.directory import RunDirectory
from training.run.lock import lock_folder
from training.run.progress import console, status_console
from training.schema import RunConfig, dump

_WEIGHTS = ("checkpoints", "initial", "engine", "policy", "adapters")
_TRACKED = ("tensorboard", "wandb", "wandb.id", "profile")
_NOT_COPIED = (*_WEIGHTS, *_TRACKED, "report.html", ".*")


@contextmanager
def open_run(config: RunConfig, path: Path) -> Iterator[tuple[RunDirectory, bool]]:
    """Claim and lock a run's directory.

    Yields:
        The directory as this process sees it, and whether the run already existed.

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
            existed = directory.claim(config)
            stack.enter_context(lock_folder(path))
            remove_temporary_files_below(path)
            if directory.digest_list.entries() is not None:
                directory.require_intact()
                return existed
            directory.write_digest_list()
            if existed:
                console.print(
                    f"{directory.digest_list.file}: is missing; created from the run's current files.",
                    style="yellow",
                    soft_wrap=True,
                )
            return existed

        existed: bool = broadcast_from_first("the claim of the run's directory", claim)
        local_path = path if is_first() else _copy(path, stack)
        wait_for_all("the files of the run")  # they may change from here on
        yield RunDirectory(local_path, path), existed


def require_shareable(config: RunConfig) -> None:
    """Raise a `UserError` if several processes can't share a run of this configuration."""
    if config.grpo.prefetch:
        raise UserError(
            "grpo.prefetch: got 1, allowed is 0 where several processes run together: "
            "--set grpo.prefetch=0"
        )
    if address := config.sampling.server.address:
        raise UserError(
            f"sampling.server.address: got {address}, allowed is null where several "
            "processes run together: each would give the same server its weights"
        )


def _copy(path: Path, stack: ExitStack) -> Path:
    """Copy the small files of a run, and silence this process's output."""
    if not RunDirectory(path).config_file.exists():
        raise UserError(
            f"{path}: this process finds no run there; --run-dir must be on a file system that all "
            "hosts share"
        )
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jaxlake-"))) / "run"
    shutil.copytree(path, folder, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    for output in (console, status_console):
        stack.callback(setattr, output, "quiet", output.quiet)
        output.quiet = True
    return folder
