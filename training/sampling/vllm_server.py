"""A client for one vLLM server: completions, weights and health over HTTP.

Completions go by the OpenAI-compatible protocol, all else by what vLLM's servers offer with
VLLM_SERVER_DEV_MODE=1. Several replicas behind the address are vLLM's own affair
(`--data-parallel-size`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import httpx2
import openai

from training.errors import UserError
from training.sampling.server_process import ServerProcess, wait_until_ready
from training.sampling.vllm_sampler import LOGPROBS_MODE
from training.schema import Sampling
from training.weight_transfer.checksums import SyncError

T = TypeVar("T")

_REQUESTS_AT_ONCE = 256  # each is for all answers to a prompt
_RETRIES = 2  # of completions, which are the same each time
_SECONDS_TO_CONNECT = 30.0
_SECONDS_TO_ANSWER = 1800.0
_SECONDS_BETWEEN_CHECKS = 5.0
_SECONDS_OF_SILENCE = 60.0  # after which a server that answers no health check is gone
_LONGEST_QUOTE = 300  # characters of what a server says about an error


class VllmServer:
    """A server by its address, under the names that a `vllm.LLM` has for its methods.

    So transports of weights take it for an engine. Every call raises a `UserError` if the server
    refuses, can't be reached, or its engine has died.
    """

    def __init__(self, address: str, process: ServerProcess | None = None) -> None:
        """Name a server; `process` is there if this run started it."""
        self.address, self.process = address, process

    def wait_until_ready(self, seconds: float) -> None:
        """Wait for a server that is being started; a `UserError` says that it is not there."""
        if problem := wait_until_ready(self.address, seconds, self.process):
            raise UserError(f"sampling.server: {self.address}: {problem}")

    def require_settings(self, settings: Sampling) -> None:
        """Raise a `UserError` if a server that others started can't do what the run needs."""
        try:
            info = self.call("GET", "/server_info?config_format=json")
            model = info["vllm_config"]["model_config"]
            room = int(self.call("GET", "/v1/models")["data"][0]["max_model_len"])
        except (UserError, LookupError, TypeError, ValueError) as error:
            raise UserError(
                f"{self.address}: doesn't say its settings ({error}); allowed is vLLM as of 0.32, "
                "started with VLLM_SERVER_DEV_MODE=1"
            ) from None
        dtype, mode = str(model.get("dtype")).removeprefix("torch."), model.get("logprobs_mode")
        for name, found, needed, fits in (
            ("max-model-len", room, settings.max_model_len, room >= settings.max_model_len),
            ("dtype", dtype, settings.dtype, dtype == settings.dtype),
            ("logprobs-mode", mode, LOGPROBS_MODE, mode == LOGPROBS_MODE),
        ):
            if not fits:
                raise UserError(
                    f"{self.address}: has {name} {found}; start it with --{name} {needed}"
                )

    def answer(self, requests: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return what /v1/completions says to each request; they are asked at the same time."""

        async def all_answer(client: openai.AsyncOpenAI) -> list[Any]:
            limit = asyncio.Semaphore(_REQUESTS_AT_ONCE)
            retrying = client.with_options(max_retries=_RETRIES)

            async def one(request: Mapping[str, Any]) -> Any:
                async with limit:
                    return await self._ask(retrying, "POST", "/v1/completions", request)

            return await asyncio.gather(*map(one, requests))

        return self._while_alive(all_answer)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return what one request is answered, read as JSON; None if it is empty."""
        return self._while_alive(lambda client: self._ask(client, method, path, body))

    def require_version(self, expected: str) -> None:
        """Raise a `SyncError` if the server holds other weights than these."""
        found = str(self.call("GET", "/weight_info").get("weight_version"))
        if found != expected:
            raise SyncError(
                f"{self.address}: answers with the weights of version {found}, expected is "
                f"{expected}, which it was given: it was started anew, or somebody else gave it "
                "others. The run goes on from its last checkpoint with the same command"
            )

    def close(self) -> None:
        """End the server if it was started here."""
        if self.process is not None:
            self.process.close()

    def collective_rpc(self, method: str, kwargs: Mapping[str, Any]) -> None:
        """Call a method of every worker of every replica, as `vllm.LLM.collective_rpc` does."""
        self.call("POST", "/collective_rpc", {"method": method, "kwargs": dict(kwargs)})

    async def _ask(
        self, client: openai.AsyncOpenAI, method: str, path: str, body: Any = None
    ) -> Any:
        try:
            if method == "GET":
                response = await client.get(path, cast_to=httpx2.Response)
            else:
                response = await client.post(path, cast_to=httpx2.Response, body=body)
            return response.json() if response.content else None
        except openai.APIConnectionError as error:
            raise self._gone(f"{method} {path}: {_described(error.__cause__ or error)}") from error
        except openai.APIStatusError as error:
            if error.status_code >= 500 and await self._with_http(self._problem) is not None:
                raise self._gone(f"{method} {path}: its engine has died") from error
            said = " ".join(error.response.text.split())[:_LONGEST_QUOTE]
            raise UserError(
                f"{self.address}: {method} {path}: HTTP {error.status_code} {said}".strip()
            ) from None
        except ValueError:
            raise UserError(f"{self.address}: {method} {path}: the answer is no JSON") from None

    def _while_alive(self, work: Callable[[openai.AsyncOpenAI], Awaitable[T]]) -> T:
        """Do the work, unless the server's health checks fail meanwhile."""

        async def watched(http: httpx2.AsyncClient) -> T:
            client = openai.AsyncOpenAI(
                base_url=self.address, api_key="none", http_client=http, max_retries=0
            )
            task, watch = asyncio.ensure_future(work(client)), asyncio.create_task(self._end(http))
            try:
                await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    return task.result()
                raise self._gone(f"GET /health: {watch.result()}")
            finally:
                task.cancel()
                watch.cancel()

        return asyncio.run(self._with_http(watched))

    async def _with_http(self, work: Callable[[httpx2.AsyncClient], Awaitable[T]]) -> T:
        """Do the work with a client that keeps no connections.

        A server that closes an idle one just when the next request comes would look as if it were
        gone.
        """
        async with httpx2.AsyncClient(
            timeout=httpx2.Timeout(_SECONDS_TO_ANSWER, connect=_SECONDS_TO_CONNECT),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=False,  # no proxy stands between a trainer and its server
        ) as http:
            return await work(http)

    async def _end(self, http: httpx2.AsyncClient) -> str:
        """Ask for the server's health until it is gone, and return why."""
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_CHECKS)
            if (problem := await self._problem(http)) is not None:
                return problem

    async def _problem(self, http: httpx2.AsyncClient) -> str | None:
        """Ask whether its engine lives; None if the server says so in time."""
        try:
            response = await http.get(f"{self.address}/health", timeout=_SECONDS_OF_SILENCE)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return _described(error)
        return None if response.status_code == 200 else f"HTTP {response.status_code}"

    def _gone(self, reason: str) -> UserError:
        if self.process is not None and (end := self.process.end()):
            reason = f"{reason} ({end})"
        return UserError(
            f"the vLLM server at {self.address} is gone: {reason}. The run goes on from its last "
            "checkpoint with the same command"
        )


def _described(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())[:_LONGEST_QUOTE].rstrip(".")
