"""Only one process at a time works in a folder; others get an error that names it."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT, TINY
from training import loop
from training.errors import UserError
from training.run.directory import RunDirectory
from training.run.lock import lock_folder
from training.schema import load

HOLDER_SCRIPT = """\
import signal, sys
from pathlib import Path
from training.run.lock import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    signal.pause()
"""


def test_lock_names_its_holder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER_SCRIPT, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        message = rf"in use by process {holder.pid} on {socket.gethostname()} since 20\d\d-.*T.*:"
        with pytest.raises(UserError, match=message), lock_folder(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
    with lock_folder(tmp_path):  # a killed process holds no lock
        assert f'"pid": {os.getpid()},' in (tmp_path / ".lock").read_text()


def test_run_rejects_a_directory_in_use(tmp_path: Path) -> None:
    config = load(TINY)
    directory = RunDirectory(tmp_path / "run")
    directory.claim(config)
    with (
        lock_folder(directory.path),
        pytest.raises(UserError, match=f"use by process {os.getpid()} on"),
    ):
        loop.run(config, directory.path)
    assert not directory.checkpoints.exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_run", lambda *_, **__: None)
        loop.run(config, directory.path)
