"""Models other than the policy, each behind vLLM's own server in a process group of its own.

`OtherModels` keeps one server at a time and asks it through the client that asks any endpoint
(`engineer.engineers.chat_client`). Once the server has ended its memory is free again.

The process, `python -m training.rollout.model_server`, is vLLM's OpenAI-compatible server with the
settings of the run. It ends with its standard input, and so with whoever started it.
"""

from __future__ import annotations

import atexit
import http.client
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
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engineer import EngineerError, Spent
from engineer.engineers.language_model import GeneratedText
from engineer.space import AnswerForm
from training.errors import UserError
from training.policy import huggingface
from training.policy.tokenizer import load_tokenizer
from training.rollout.vllm_sampler import engine_arguments, prepare_environment, sampling_seeds
from training.schema import EngineerChoice, Sampling

COMMAND = (sys.executable, "-m", "training.rollout.model_server")
"""Starts the server; its arguments are the model's folder, a port and `Sampling` as JSON."""

_HOST = "127.0.0.1"
_SECONDS_TO_END = 20.0
# A model's folder may ask for other defaults of sampling; the policy's sampler has none either.
_NO_TRUNCATION = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}


@dataclass(frozen=True)
class Question:
    """What is asked of a model."""

    text: str
    chat: bool | None = None  # wrap it in the tokenizer's chat template; None: if there is one
    thinking: bool = False  # passed to the template as `enable_thinking`
    seed: int = 0
    form: AnswerForm | None = None  # what the answer must follow; None: free text
    token_limit: int | None = None  # may still be spent; None: as many as the engineer's answers


class OtherModels(AbstractContextManager["OtherModels"]):
    """Asks models beside the policy; the server of the last one is kept for the next question.

    Use it as a context manager, which ends the server.
    """

    def __init__(self, settings: Sampling, choice: EngineerChoice) -> None:
        """Remember the settings of the engines and of the answers; nothing is started yet."""
        self._settings = settings
        self._choice = choice
        self._server: ModelServer | None = None

    def __exit__(self, *exception: object) -> None:
        self.close()

    def ask(self, model: str, question: Question) -> GeneratedText:
        """Let a model (hub name or folder) answer; it is loaded unless it answered last.

        Raises:
            EngineerError: The model could not be loaded, or did not answer in time. All the tokens
                that it was allowed count as spent then.
        """
        if self._server is None or self._server.model != model:
            self.close()
            self._server = ModelServer(model, self._settings, self._choice.load_seconds)
        try:
            return self._server.answer(question, self._choice)
        except BaseException:
            # The server may be broken, or still at this answer when the next question comes.
            self._server.kill()
            self._server = None
            raise

    def close(self) -> None:
        """End the server, if there is one."""
        if self._server is not None:
            self._server.close()
            self._server = None


class ModelServer:
    """A vLLM server on a port of this machine, which has loaded one model."""

    def __init__(self, model: str, settings: Sampling, load_seconds: float) -> None:
        """Start the server and wait until it answers, which a download does not count for.

        Raises:
            EngineerError: There is no such model, or it was not loaded within `load_seconds`.
        """
        self.model = model
        try:
            folder = huggingface.resolve(model)
            self._tokenizer = load_tokenizer(folder)
        except (UserError, OSError, ValueError) as error:
            raise EngineerError(f"{model}: {error}") from None
        self._folder = str(folder)
        with socket.socket() as free:
            free.bind((_HOST, 0))
            self._port: int = free.getsockname()[1]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `kill`)
        self._process = subprocess.Popen(
            [*COMMAND, self._folder, str(self._port), settings.model_dump_json()],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            # In-process engines set this; a server must have its engine in a process of its own.
            env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
            start_new_session=True,  # vLLM starts others, which have to end with it
        )
        atexit.register(self.kill)
        try:
            self._wait_until_loaded(load_seconds)
        except BaseException:
            self.kill()
            raise

    def answer(self, question: Question, choice: EngineerChoice) -> GeneratedText:
        """Ask the model; an `EngineerError` says that it did not answer, and what that cost."""
        from engineer.engineers.chat_client import ChatClient  # imports openai

        chat = bool(self._tokenizer.chat_template) if question.chat is None else question.chat
        limit = choice.token_limit(question.form is not None, question.token_limit)
        fields: dict[str, Any] = {
            "temperature": choice.temperature,
            "seed": sampling_seeds(question.seed, 1)[0],
            "stop_token_ids": [self._tokenizer.eos_token_id],
            **_NO_TRUNCATION,
        }
        if isinstance(question.form, str):
            fields["structured_outputs"] = {"regex": question.form}
        elif question.form is not None:
            schema = {"name": "answer", "schema": question.form}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        if chat:
            fields["chat_template_kwargs"] = {"enable_thinking": question.thinking}
        else:
            fields["add_special_tokens"] = False
        client = ChatClient(
            f"http://{_HOST}:{self._port}/v1",
            self._folder,
            timeout=choice.timeout_seconds,
            retries=0,
            proxies=False,
        )
        try:
            return client.complete(question.text, max_tokens=limit, chat=chat, **fields)
        except EngineerError as error:
            problem = self._end() or str(error).partition(f"{_HOST}:{self._port}: ")[2]
            spent = Spent(engineer_tokens=limit)  # all that the answer could have had
            raise EngineerError(f"{self.model}: {problem}", spent) from None

    def close(self) -> None:
        """Let the server end by itself, and kill what is left of it after a while."""
        try:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_SECONDS_TO_END)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the server and all that it started."""
        atexit.unregister(self.kill)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def _wait_until_loaded(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._healthy():
            if problem := self._end():
                raise EngineerError(f"{self.model}: {problem}")
            if time.monotonic() > deadline:
                raise EngineerError(
                    f"{self.model}: is not loaded within engineer.load_seconds = {seconds:g}"
                )
            time.sleep(0.1)

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection(_HOST, self._port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _end(self) -> str:
        """The exit status and the last error that was logged; empty while the server runs."""
        with suppress(subprocess.TimeoutExpired):
            status = self._process.wait(0.5)
            self._log.seek(0)
            lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
            errors = [line for line in lines if "Error" in line] or lines or ["no message"]
            return f"exit status {status}: {errors[-1]}"
        return ""


def main(folder: str, port: str, sampling: str) -> None:
    """Become vLLM's server for the model in a folder."""

    def end_with_input() -> None:
        sys.stdin.read()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_input, daemon=True).start()
    settings = Sampling.model_validate_json(sampling)
    prepare_environment(settings)
    arguments = engine_arguments(Path(folder), settings, seed=0) | {"host": _HOST, "port": port}
    sys.argv = ["vllm", *_flags(arguments)]
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)


def _flags(arguments: dict[str, Any]) -> list[str]:
    flags = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return flags


if __name__ == "__main__":
    main(*sys.argv[1:])
