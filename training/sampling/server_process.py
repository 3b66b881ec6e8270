"""vLLM's OpenAI-compatible server, in a separate process group on a local port.

The server ends when its standard input closes, and so when its parent process ends.
"""

import atexit
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2

from training.sampling.vllm_sampler import engine_arguments, prepare_environment
from training.schema import SamplingConfig

COMMAND = (sys.executable, "-m", "training.sampling.server_process")
"""Command that starts the server; see `main` for its arguments."""

HOST = "127.0.0.1"

# Overrides the sampling defaults of a model folder; the policy's sampler doesn't truncate either.
NO_TRUNCATION = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}

_TERMINATION_SECONDS = 20.0


class ServerProcess:
    """A vLLM server for one model folder, including its child processes."""

    def __init__(
        self,
        folder: str,
        settings: SamplingConfig,
        *,
        arguments: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the server and return immediately; see `wait_until_ready`.

        `arguments` are options of vLLM's server in addition to `engine_arguments`, by their names
        with underscores. `environment` is added to the variables of this process.
        """
        self.port = _find_free_port()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `kill`)
        self._process = subprocess.Popen(
            [
                *COMMAND,
                folder,
                str(self.port),
                settings.model_dump_json(),
                json.dumps(dict(arguments or {})),
            ],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            # In-process engines set this to 0; a server needs its engine in a separate process.
            env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1", **(environment or {})},
            start_new_session=True,  # so that vLLM's child processes end with it
        )
        atexit.register(self.kill)

    @property
    def address(self) -> str:
        """The server's address, such as http://127.0.0.1:8000."""
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the server's process and of its process group."""
        return self._process.pid

    def get_exit_message(self) -> str:
        """Return the exit status and the last logged error, or "" while the server runs."""
        with suppress(subprocess.TimeoutExpired):
            status = self._process.wait(0.5)
            if self._log.closed:
                return f"exit status {status}"
            self._log.seek(0)
            lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
            errors = [line for line in lines if "Error" in line] or lines or ["no message"]
            return f"exit status {status}: {errors[-1]}"
        return ""

    def close(self) -> None:
        """Terminate the server, and kill remaining processes after a timeout."""
        try:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_TERMINATION_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the server and its child processes."""
        atexit.unregister(self.kill)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()


def get_health_problem(address: str) -> str:
    """Return the problem of a server that does not answer or is unhealthy, else ""."""
    try:
        with httpx2.stream("GET", f"{address}/health", trust_env=False, timeout=30) as response:
            status = response.status_code  # the body is not read
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return f"GET {address}/health: {type(error).__name__} {error}".rstrip(" .")
    return "" if status == 200 else f"GET {address}/health: HTTP {status}"


def wait_until_ready(address: str, seconds: float, process: ServerProcess | None = None) -> str:
    """Wait until a server is healthy; return "" or the problem.

    The problem is the timeout after `seconds`, or the end of `process`, if this process started it.
    """
    deadline = time.monotonic() + seconds
    while problem := get_health_problem(address):
        if process is not None and (message := process.get_exit_message()):
            return message
        if time.monotonic() > deadline:
            return f"is not ready within {seconds:g} s: {problem}"
        time.sleep(0.2)
    return ""


def _find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def main(folder: str, port: str, sampling: str, options: str = "{}") -> None:
    """Run vLLM's server in this process.

    `sampling` is the section `sampling` as JSON, and `options` a JSON object of server options.
    """

    def end_with_input() -> None:
        sys.stdin.read()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_input, daemon=True).start()
    settings = SamplingConfig.model_validate_json(sampling)
    prepare_environment()
    arguments = engine_arguments(Path(folder), settings, seed=0) | {"host": HOST, "port": port}
    sys.argv = ["vllm", *_make_flags(arguments | json.loads(options))]
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)


def _make_flags(arguments: Mapping[str, Any]) -> list[str]:
    flags = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            text = json.dumps(value) if isinstance(value, dict) else str(value)
            flags += [f"--{flag}", ",".join(map(str, value)) if isinstance(value, list) else text]
    return flags


if __name__ == "__main__":
    main(*sys.argv[1:])
