"""One vLLM server over HTTP: what is asked of it, and when it counts as gone.

Completions go by the OpenAI-compatible protocol, all else by what vLLM's servers offer with
VLLM_SERVER_DEV_MODE=1.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import numpy as np

from training.errors import UserError
from training.sampling.sampler import Completion, Tokens
from training.sampling.servers.process import ServerProcess
from training.schema import Sampling, Servers
from training.weight_transfer.checksums import SyncError

_SECONDS_TO_CONNECT = 30.0
_SECONDS_BETWEEN_CHECKS = 5.0
_LONGEST_QUOTE = 300  # characters of what a server says about an error


class ServerGoneError(Exception):
    """A server can't be reached, says that its engine has died, or is silent for too long."""


def open_client(settings: Servers) -> httpx2.AsyncClient:
    """Return a client for requests to any number of servers; use it as a context manager.

    Connections aren't kept: a server that closes an idle one just when the next request comes would
    look as if it were gone.
    """
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(settings.answer_seconds, connect=_SECONDS_TO_CONNECT),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        trust_env=False,  # no proxy stands between a trainer and its servers
    )


async def together(*work: Coroutine[Any, Any, Any]) -> None:
    """Wait for all coroutines; the first that fails cancels the others, and its error is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


@dataclass(eq=False)
class VllmServer:
    """A server by its address; `process` is there if this run started it."""

    address: str
    process: ServerProcess | None = None

    async def get(self, client: httpx2.AsyncClient, path: str) -> Any:
        """Return what GET answers, read as JSON; raises as `post`."""
        return await self._ask(client, "GET", path)

    async def post(self, client: httpx2.AsyncClient, path: str, body: Any = None) -> Any:
        """Return what POST answers, read as JSON; None if it is empty.

        Raises:
            ServerGoneError: The server can't be reached, or its engine has died.
            UserError: The server refuses, or says what is no JSON.
        """
        return await self._ask(client, "POST", path, body)

    async def _ask(
        self, client: httpx2.AsyncClient, method: str, path: str, body: Any = None
    ) -> Any:
        try:
            response = await client.request(method, self.address + path, json=body)
        except httpx2.TransportError as error:
            raise ServerGoneError(f"{method} {path}: {_described(error)}") from error
        if response.status_code >= 500 and await self.problem(client) is not None:
            raise ServerGoneError(f"{method} {path}: its engine has died")
        if response.status_code != 200:
            said = " ".join(response.text.split())[:_LONGEST_QUOTE]
            raise UserError(
                f"{self.address}: {method} {path}: HTTP {response.status_code} {said}".strip()
            )
        try:
            return response.json() if response.content else None
        except ValueError:
            raise UserError(f"{self.address}: {method} {path}: the answer is no JSON") from None

    async def problem(self, client: httpx2.AsyncClient, seconds: float = 10.0) -> str | None:
        """Ask whether its engine lives; None if the server says so within some seconds."""
        try:
            response = await client.get(f"{self.address}/health", timeout=seconds)
        except httpx2.TransportError as error:
            return _described(error)
        return None if response.status_code == 200 else f"HTTP {response.status_code}"

    async def watch(self, client: httpx2.AsyncClient, seconds: float) -> None:
        """Ask for its health again and again; never returns.

        Raises:
            ServerGoneError: A check failed, or was not answered within so many seconds.
        """
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_CHECKS)
            if (problem := await self.problem(client, seconds)) is not None:
                raise ServerGoneError(f"GET /health: {problem}")

    async def version(self, client: httpx2.AsyncClient) -> str:
        """Ask which weights the server says that it holds."""
        info = await self.get(client, "/weight_info")
        return str(info.get("weight_version") if isinstance(info, dict) else info)

    async def require_version(self, client: httpx2.AsyncClient, expected: str) -> None:
        """Raise a `SyncError` if the server holds other weights than these."""
        if (found := await self.version(client)) != expected:
            raise SyncError(
                f"{self.address}: answers with the weights of version {found}, expected is "
                f"{expected}, which it was given: it was started anew, or somebody else gave it "
                "others. The run goes on from its last checkpoint with the same command"
            )

    async def wait_until_ready(self, client: httpx2.AsyncClient, deadline: float) -> None:
        """Wait for a server that is being started.

        Raises:
            UserError: It has ended, is no vLLM server, or isn't there at the deadline, a time of
                `time.monotonic`.
        """
        problem = "no answer"
        while True:
            try:
                response = await client.get(f"{self.address}/health", timeout=5.0)
                if response.status_code == 200:
                    return
                problem = f"HTTP {response.status_code}"
                if 400 <= response.status_code < 500:
                    raise UserError(
                        f"sampling.servers: {self.address} is no vLLM server: GET /health gives "
                        f"{problem}"
                    )
            except httpx2.TransportError as error:
                problem = _described(error)
            except httpx2.InvalidURL as error:
                raise UserError(f"sampling.servers.addresses: {self.address}: {error}") from None
            if self.process is not None and (end := self.process.end()):
                raise UserError(f"sampling.servers: a vLLM server can't start: {end}")
            if time.monotonic() > deadline:
                raise UserError(
                    f"sampling.servers: {self.address} is not ready within "
                    f"sampling.servers.start_seconds: GET /health: {problem}"
                )
            await asyncio.sleep(0.5)

    async def require_settings(self, client: httpx2.AsyncClient, settings: Sampling) -> None:
        """See that a server that was started by others can do what the run needs.

        Raises:
            UserError: Something is missing or other than the run's; the message says what.
        """
        models = await self._of_vllm(client, "/v1/models", "is it a vLLM server?")
        dev_mode = "start it with VLLM_SERVER_DEV_MODE=1"
        await self._of_vllm(client, "/weight_info", dev_mode)
        info = await self._of_vllm(client, "/server_info?config_format=json", dev_mode)
        try:
            room = int(models["data"][0]["max_model_len"])
            model = info["vllm_config"]["model_config"]
            found = {"dtype": str(model["dtype"]).removeprefix("torch.")}
            found["logprobs-mode"] = str(model["logprobs_mode"])
        except (LookupError, TypeError, ValueError):
            raise UserError(
                f"{self.address}: doesn't say its settings as vLLM 0.32 does; allowed is that "
                "version or a later one that does"
            ) from None
        if room < settings.max_model_len:
            raise UserError(
                f"{self.address}: takes {room} tokens; start it with at least "
                f"--max-model-len {settings.max_model_len}, sampling.max_model_len of the run"
            )
        needed = {"dtype": settings.dtype, "logprobs-mode": "processed_logprobs"}
        for name, value in needed.items():
            if found[name] != value:
                raise UserError(
                    f"{self.address}: has {name} {found[name]}; start it with --{name} {value}"
                )

    async def _of_vllm(self, client: httpx2.AsyncClient, path: str, advice: str) -> Any:
        try:
            return await self.get(client, path)
        except UserError as error:
            raise UserError(f"{error}; {advice}") from None
        except ServerGoneError as error:
            raise UserError(f"{self.address}: {error}") from None


def read_completions(answer: Any, prompt: Tokens, n: int) -> list[Completion]:
    """Read what /v1/completions says about one prompt with `return_token_ids` and `logprobs` 0.

    Raises:
        UserError: It isn't n whole answers to this prompt.
    """
    try:
        choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
        completions = [_read_choice(choice, prompt) for choice in choices]
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"/v1/completions: the answer lacks token ids or log-probabilities ({error}); allowed "
            "is vLLM as of 0.32"
        ) from None
    if len(completions) != n:
        raise UserError(f"/v1/completions: {len(completions)} answers came, asked was for {n}")
    return completions


def _read_choice(choice: Any, prompt: Tokens) -> Completion:
    if list(choice["prompt_token_ids"]) != list(prompt):
        raise ValueError("another prompt was answered")
    if (reason := choice["finish_reason"]) not in ("stop", "length"):
        raise ValueError(f"finish_reason {reason}")
    tokens = tuple(int(token) for token in choice["token_ids"])
    logprobs = np.array(choice["logprobs"]["token_logprobs"], np.float32)
    if logprobs.shape != (len(tokens),):
        raise ValueError(f"{len(tokens)} tokens, log-probabilities of shape {logprobs.shape}")
    return Completion(tokens, logprobs, truncated=reason == "length")


def read_score(answer: Any, sequence: Tokens) -> np.ndarray:
    """Read the log-probabilities of a sequence of two or more tokens, nats; see `Sampler.score`.

    The prompt was all but the last token, whose log-probability was asked for as the next one.
    Raises as `read_completions`.
    """
    try:
        (choice,) = answer["choices"]
        tables = choice["prompt_logprobs"][1:]
        inner = zip(sequence[1:-1], tables, strict=True)
        values = [table[str(token)]["logprob"] for token, table in inner]
        values.append(choice["logprobs"]["top_logprobs"][0][f"token_id:{sequence[-1]}"])
        return np.array([0.0, *values], np.float32)
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"/v1/completions: the answer lacks prompt_logprobs ({error}); allowed is vLLM as of "
            "0.32"
        ) from None


def deal(places: Sequence[int], servers: int) -> list[list[int]]:
    """Divide places over servers, in turn, so that no two shares differ by more than one."""
    return [list(places[first::servers]) for first in range(servers)]


def _described(error: Exception) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())[:_LONGEST_QUOTE].rstrip(".")
