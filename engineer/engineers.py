"""Who may write the next configuration: a rule, a text generator, an OpenAI-style endpoint."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx

from engineer.configuration import Bounds, LakeConfiguration, answer_text
from engineer.evidence import StageEvidence
from engineer.quoting import quote
from engineer.rule import Feasibility, next_configuration
from jaxlake import infeasibility


class EngineerError(RuntimeError):
    """An engineer could not answer. The message is fit for logs: it holds no key."""


@dataclass(frozen=True)
class Proposal:
    """One answer as it came, before any review."""

    text: str
    seconds: float  # wall-clock time spent on it
    tokens: int | None  # tokens generated, None where unknown


class Engineer(Protocol):
    """Anything that answers a context with a configuration in text."""

    @property
    def name(self) -> str:
        """How records and reports call it."""
        ...

    def propose(
        self,
        context: str,
        *,
        schema: dict[str, Any],
        attempt: int,
        evidence: StageEvidence,
        current: LakeConfiguration,
    ) -> Proposal:
        """Answer a context.

        Args:
            context: the prompt, as `build_context` made it.
            schema: JSON schema of the answer, for decoders that can be constrained.
            attempt: 0 for the first, so that a generator can sample anew on a retry.
            evidence: what the context was made from, for engineers that compute.
            current: the configuration in force.

        Raises:
            EngineerError: if no answer could be had.
        """
        ...


@dataclass(frozen=True)
class RuleEngineer:
    """The rule of `engineer.rule`. Reads the evidence, not the context."""

    bounds: Bounds
    num_agents: int
    feasibility: Feasibility = infeasibility
    name: str = "rule"

    def propose(
        self,
        context: str,
        *,
        schema: dict[str, Any],
        attempt: int,
        evidence: StageEvidence,
        current: LakeConfiguration,
    ) -> Proposal:
        """Apply the rule; the same for every attempt."""
        start = time.perf_counter()
        configuration = next_configuration(
            evidence,
            current,
            bounds=self.bounds,
            num_agents=self.num_agents,
            feasibility=self.feasibility,
        )
        return Proposal(answer_text(configuration), time.perf_counter() - start, tokens=0)


@dataclass(frozen=True)
class GeneratorEngineer:
    """A function from (context, schema, attempt) to text: the checkpoint or any model in vLLM.

    What the function raises is passed on, except that it may raise `EngineerError` to fail one
    attempt.
    """

    generate: Callable[[str, dict[str, Any], int], str]
    name: str = "checkpoint"
    count_tokens: Callable[[str], int] | None = None

    def propose(
        self,
        context: str,
        *,
        schema: dict[str, Any],
        attempt: int,
        evidence: StageEvidence,
        current: LakeConfiguration,
    ) -> Proposal:
        """Generate."""
        start = time.perf_counter()
        text = self.generate(context, schema, attempt)
        seconds = time.perf_counter() - start
        return Proposal(text, seconds, self.count_tokens(text) if self.count_tokens else None)


@dataclass(frozen=True)
class EndpointEngineer:
    """A model behind an OpenAI-compatible `/chat/completions`.

    The key is read from the environment at each call; it is neither kept nor logged, and cut out of
    whatever the server says about it. 429, 5xx, timeouts and broken connections are retried with
    doubling waits (or the server's Retry-After, at most `longest_wait`); anything else fails at
    once.
    """

    base_url: str  # such as https://host/v1
    model: str
    api_key_env: str | None = None  # name of the environment variable; None sends no key
    timeout: float = 120.0  # seconds for one request, the whole answer included
    retries: int = 3  # requests after the first
    backoff: float = 1.0  # seconds before the first retry
    longest_wait: float = 30.0  # seconds
    max_tokens: int = 4096
    temperature: float = 0.0
    structured: bool = True  # send the schema; False for servers that don't know response_format
    max_bytes: int = 1 << 20  # of one response
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model

    def propose(
        self,
        context: str,
        *,
        schema: dict[str, Any],
        attempt: int,
        evidence: StageEvidence,
        current: LakeConfiguration,
    ) -> Proposal:
        """Ask the endpoint.

        Raises:
            EngineerError: if the key is not set, the server can't be reached or refuses after all
                retries, or its answer is no chat completion.
        """
        start = time.perf_counter()
        key = self._key()
        payload = self._payload(context, schema)
        problem = ""
        for request in range(self.retries + 1):
            try:
                text, tokens = _read_completion(self._post(payload, key))
            except _TransientError as failure:
                problem = str(failure)
                if request < self.retries:
                    self.sleep(self._wait(request, failure.retry_after))
                continue
            except (httpx.HTTPError, ValueError) as error:
                raise EngineerError(f"{self._where()}: {error}") from None
            return Proposal(text, time.perf_counter() - start, tokens)
        raise EngineerError(
            f"{self._where()}: gave up after {self.retries + 1} requests: {problem}"
        )

    def _key(self) -> str | None:
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise EngineerError(f"environment variable {self.api_key_env} holds no key")
        if not (key.isascii() and key.isprintable()):
            raise EngineerError(
                f"environment variable {self.api_key_env} holds unprintable characters"
            )
        return key

    def _payload(self, context: str, schema: dict[str, Any]) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": context}],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
        }
        if self.structured:
            payload["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "lake_configuration", "strict": True, "schema": schema},
            }
        return payload

    def _post(self, payload: dict[str, Any], key: str | None) -> bytes:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        deadline = time.monotonic() + self.timeout
        url = f"{self.base_url.rstrip('/')}/chat/completions"
        try:
            with (
                httpx.Client(timeout=self.timeout) as client,
                client.stream("POST", url, json=payload, headers=headers) as response,
            ):
                body = self._body(response, deadline)
                status, retry_after = response.status_code, response.headers.get("retry-after")
        except httpx.TimeoutException:
            raise _TransientError(f"no answer within {self.timeout:g} s") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise ValueError("base_url is no http or https URL") from None
        except httpx.TransportError as error:
            raise _TransientError(f"{type(error).__name__}: {error}") from None
        # Before anything is quoted, where a cut could leave half of a key.
        body = body.replace(key.encode(), b"[key]") if key else body
        if status == 429 or status >= 500:
            raise _TransientError(f"HTTP {status} {_excerpt(body)}", _seconds(retry_after))
        if status != 200:
            raise httpx.HTTPError(f"HTTP {status} {_excerpt(body)}")
        return body

    def _body(self, response: httpx.Response, deadline: float) -> bytes:
        # httpx limits the wait for each piece; a server that drips would never run into that.
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > self.max_bytes:
                raise httpx.HTTPError(f"response of more than {self.max_bytes} bytes")
            if time.monotonic() > deadline:
                raise httpx.ReadTimeout("deadline")
        return bytes(body)

    def _wait(self, request: int, retry_after: float | None) -> float:
        doubled = self.backoff * 2.0**request
        return min(max(doubled, retry_after or 0.0), self.longest_wait)

    def _where(self) -> str:
        # Without the part of the URL that may hold a password or a token.
        host = self.base_url.split("?")[0].rpartition("@")[2]
        return f"model {self.model} at {host.removeprefix('https://').removeprefix('http://')}"


class _TransientError(Exception):
    """A failure that may pass; `retry_after` is the server's wish in seconds."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def _read_completion(body: bytes) -> tuple[str, int | None]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError(f"the response is no JSON: {_excerpt(body)}") from None
    try:
        text = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        text = None
    if not isinstance(text, str):
        raise ValueError(f"the response is no chat completion with text: {_excerpt(body)}")
    usage = answer.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return text, tokens if type(tokens) is int and tokens >= 0 else None


def _excerpt(body: bytes) -> str:
    return quote(body[:4000].decode("utf-8", "replace"), 160)


def _seconds(header: str | None) -> float | None:
    # The other form of Retry-After, a date, falls back to the doubling wait.
    return float(header) if header is not None and header.isdecimal() and len(header) < 7 else None
