"""A client for one vLLM server: completions and weights over HTTP.

The server needs VLLM_SERVER_DEV_MODE=1. vLLM balances the load of replicas itself.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import httpx2
import openai

from engineer.engineers.endpoint import read_error_message
from training.errors import UserError
from training.sampling.bounded_http import BoundedAsyncTransport
from training.sampling.server_process import ServerProcess, get_health_problem, wait_until_ready
from training.sampling.vllm_sampler import LOGPROBS_MODE
from training.schema import SamplingConfig
from training.weight_transfer.checksums import SyncError

T = TypeVar("T")

_MAX_CONCURRENT_REQUESTS = 256  # each asks for all answers to one prompt
_RETRIES = 2  # of completions, which are deterministic
_TIMEOUT = httpx2.Timeout(1800.0, connect=30.0)
# Connections to a lost host fail after a minute.
_KEEPALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)] + [
    (socket.IPPROTO_TCP, getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
]


class VllmServer:
    """A client for the server at an address.

    Every call raises a `UserError` if the server rejects it, can't be reached, or its engine has
    died.
    """

    def __init__(self, address: str, process: ServerProcess | None = None) -> None:
        """Create a client; `process` is given if this run started the server."""
        self.address, self.process = address, process

    def wait_until_ready(self, seconds: float) -> None:
        """Wait until the server is healthy; raise a `UserError` after `seconds`."""
        if problem := wait_until_ready(self.address, seconds, self.process):
            raise UserError(f"sampling.server: {self.address}: {problem}")

    def require_settings(self, settings: SamplingConfig) -> None:
        """Raise a `UserError` if the settings of an existing server don't fit the run."""
        try:
            info = self.call("GET", "/server_info?config_format=json")
            model = info["vllm_config"]["model_config"]
            max_len = int(self.call("GET", "/v1/models")["data"][0]["max_model_len"])
        except (UserError, LookupError, TypeError, ValueError) as error:
            raise UserError(
                f"{self.address}: doesn't report its settings ({error}); it must be vLLM 0.32 or "
                "later, started with VLLM_SERVER_DEV_MODE=1"
            ) from None
        dtype, mode = (str(model.get("dtype")).removeprefix("torch."), model.get("logprobs_mode"))
        for name, actual, required, is_valid in (
            ("max-model-len", max_len, settings.max_model_len, max_len >= settings.max_model_len),
            ("dtype", dtype, settings.dtype, dtype == settings.dtype),
            ("logprobs-mode", mode, LOGPROBS_MODE, mode == LOGPROBS_MODE),
        ):
            if not is_valid:
                raise UserError(
                    f"{self.address}: has {name} {actual}; start it with --{name} {required}"
                )

    def answer(self, requests: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Send requests to /v1/completions concurrently and return the responses in order."""

        async def ask_all(client: openai.AsyncOpenAI) -> list[Any]:
            semaphore = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)
            retrying_client = client.with_options(max_retries=_RETRIES)

            async def ask(request: Mapping[str, Any]) -> Any:
                async with semaphore:
                    return await self._ask(retrying_client, "POST", "/v1/completions", request)

            return await asyncio.gather(*map(ask, requests))

        return asyncio.run(self._use_client(ask_all))

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request and return the parsed JSON response, or None if it is empty."""
        return asyncio.run(self._use_client(lambda client: self._ask(client, method, path, body)))

    def require_version(self, expected: str) -> None:
        """Raise a `SyncError` if the server's weights have another version."""
        version = str(self.call("GET", "/weight_info").get("weight_version"))
        if version != expected:
            raise SyncError(
                f"{self.address}: the version of its weights must be {expected}, got {version}: "
                "the server was restarted, or another client replaced its weights. The same "
                "command resumes the run from its last checkpoint"
            )

    def close(self) -> None:
        """Stop the server if this run started it."""
        if self.process is not None:
            self.process.close()

    def collective_rpc(self, method: str, kwargs: Mapping[str, Any]) -> None:
        """Call a method on all workers of all replicas, as `vllm.LLM.collective_rpc` does."""
        self.call("POST", "/collective_rpc", {"method": method, "kwargs": dict(kwargs)})

    async def _use_client(self, work: Callable[[openai.AsyncOpenAI], Awaitable[T]]) -> T:
        # Keep no idle connections: if the server closed one while the next request is sent, that
        # request would fail. Don't use proxies between the trainer and its server.
        transport = BoundedAsyncTransport(
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
            socket_options=_KEEPALIVE,
        )
        async with httpx2.AsyncClient(
            transport=transport, timeout=_TIMEOUT, trust_env=False
        ) as http:
            client = openai.AsyncOpenAI(
                base_url=self.address, api_key="none", http_client=http, max_retries=0
            )
            return await work(client)

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
            cause = error.__cause__ or error
            raise self._connection_error(
                f"{method} {path}: {type(cause).__name__} {cause}"
            ) from error
        except openai.APIStatusError as error:
            if error.status_code >= 500 and get_health_problem(self.address):
                raise self._connection_error(f"{method} {path}: its engine has died") from error
            message = " ".join(read_error_message(error.response.content).split())
            raise UserError(
                f"{self.address}: {method} {path}: HTTP {error.status_code} {message:.300}".strip()
            ) from None
        except ValueError:
            raise UserError(f"{self.address}: {method} {path}: the answer is not JSON") from None

    def _connection_error(self, reason: str) -> UserError:
        if self.process is not None and (message := self.process.get_exit_message()):
            reason = f"{reason} ({message})"
        return UserError(
            f"the vLLM server at {self.address} is gone: {' '.join(reason.split()):.300}. The same "
            "command resumes the run from its last checkpoint"
        )
