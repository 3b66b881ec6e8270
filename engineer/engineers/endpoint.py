"""A model behind an OpenAI-compatible endpoint."""

import json
import os
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx
from pydantic import SecretStr

from engineer.engineers.base import EngineerError, Proposal, Task
from engineer.ledger import Spent
from engineer.quoting import quote

T = TypeVar("T")

LONGEST_WAIT = 30.0
"""Seconds between two requests, at most, unless an engineer is made with another limit."""
_MOST_TOKENS = 10**9
"""A server that says it generated more for one answer isn't believed."""


class _Pace:
    """When the next request may go out, for all calls of one engineer, in threads too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free = float("-inf")

    def reserve(self, now: float, least: float, interval: float, longest: float) -> float | None:
        """Take the next place, at least `least` from now, and say how long to wait for it.

        None, and no place taken, if it is further away than `longest`.
        """
        with self._lock:
            wait = max(least, self._free - now)
            if wait > longest + 1e-6:
                return None
            self._free = now + wait + interval
            return wait


@dataclass(frozen=True)
class EndpointEngineer:
    """A model behind an OpenAI-compatible `/chat/completions`.

    The key is read from the environment at each call; it is neither kept nor logged, and cut out of
    whatever the server says, answers and errors alike. No redirect is followed. 429, 5xx, timeouts
    and broken connections are retried with doubling waits (or the server's Retry-After, at most
    `longest_wait`); anything else fails at once. A call never takes longer than
    `(retries + 1) * (timeout + longest_wait)`, whatever the server does. Where it doesn't say how
    many tokens it generated, as many count as it was allowed, also for requests that timed out.

    Raises:
        ValueError: if the rate limit is not positive, or needs waits beyond `longest_wait`, or
            `api_key_env` is no variable's name (it may be the key itself, so it is not said).
    """

    base_url: str = field(repr=False)  # such as https://host/v1; a query stays at its end
    model: str
    api_key_env: str | None = None  # name of the environment variable; None sends no key
    timeout: float = 120.0  # seconds for one request, the whole answer included
    retries: int = 3  # requests after the first
    backoff: float = 1.0  # seconds before the first retry
    longest_wait: float = LONGEST_WAIT  # seconds
    max_tokens: int = 4096
    note_tokens: int | None = None  # of free text; None: max_tokens
    temperature: float = 0.0
    structured: bool = True  # send the schema; False for servers that don't know response_format
    max_bytes: int = 1 << 20  # of one response
    requests_per_minute: float | None = None  # of this engineer, retries included; None: no limit
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)  # seconds
    _pace: _Pace = field(default_factory=_Pace, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.api_key_env is not None:
            check_variable(self.api_key_env)
        rate = self.requests_per_minute
        if rate is None:
            return
        if not rate > 0.0:
            raise ValueError(f"requests_per_minute must be above 0, got {rate:g}")
        if 60.0 / rate > self.longest_wait:
            raise ValueError(
                f"requests_per_minute: got {rate:g}, which needs waits of {60.0 / rate:g} s;"
                f" longest_wait allows {self.longest_wait:g} s"
            )

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model

    def propose(self, task: Task) -> Proposal:
        """Ask the endpoint.

        Raises:
            EngineerError: if the key is not set, the server can't be reached or refuses after all
                retries, or its answer is no chat completion.
        """
        left = task.budget.engineer_tokens
        return self._ask(task.context.text, task.schema, self.max_tokens, left)

    def write(self, prompt: str, seed: int, max_tokens: int | None = None) -> Proposal:
        """Ask for free text.

        Raises:
            EngineerError: as `propose`.
        """
        del seed  # few servers keep their promise about it
        return self._ask(prompt, None, self.note_tokens or self.max_tokens, max_tokens)

    def _ask(
        self, prompt: str, schema: dict[str, Any] | None, most: int, left: int | None
    ) -> Proposal:
        start = time.perf_counter()
        key = self._key()
        problem, wait, lost = "", 0.0, 0
        for request in range(self.retries + 1):
            allowed = most if left is None else min(most, left - lost)
            if allowed < 1:
                problem += "; the budget of tokens is spent"
                break
            self._pause(wait)
            try:
                text, tokens = _read_completion(
                    self._post(self._payload(prompt, schema, allowed), key), key
                )
            except _TransientError as failure:
                problem, wait = str(failure), self._wait(request, failure.retry_after)
                lost += allowed if failure.generating else 0
                continue
            except _UnreadableError as error:
                lost += allowed if error.tokens is None else error.tokens
                raise self._error(str(error), key, lost) from None
            except (httpx.HTTPError, ValueError) as error:
                raise self._error(str(error), key, lost) from None
            seconds = time.perf_counter() - start
            return Proposal(text, seconds, lost + (allowed if tokens is None else tokens))
        raise self._error(f"gave up after {request + 1} requests: {problem}", key, lost)

    def _error(self, problem: str, key: SecretStr | None, tokens: int) -> EngineerError:
        message = _without(f"{self._where()}: {problem}", key)
        return EngineerError(message, Spent(engineer_tokens=tokens))

    def _key(self) -> SecretStr | None:
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise EngineerError(f"environment variable {self.api_key_env} holds no key")
        if not (key.isascii() and key.isprintable()):
            raise EngineerError(
                f"environment variable {self.api_key_env} holds unprintable characters"
            )
        return SecretStr(key)

    def _payload(self, prompt: str, schema: dict[str, Any] | None, most: int) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": most,
            "temperature": self.temperature,
        }
        if self.structured and schema is not None:
            payload["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "configuration", "strict": True, "schema": schema},
            }
        return payload

    def _pause(self, least: float) -> None:
        wait: float | None = least
        if self.requests_per_minute is not None:
            interval = 60.0 / self.requests_per_minute
            wait = self._pace.reserve(self.clock(), least, interval, self.longest_wait)
        if wait is None:
            raise EngineerError(
                f"{self._where()}: {self.requests_per_minute:g} requests a minute leave no place"
                f" within {self.longest_wait:g} s"
            )
        if wait > 0.0:
            self.sleep(wait)

    def _post(self, payload: dict[str, Any], key: SecretStr | None) -> bytes:
        url = _completions(self.base_url)
        # An encoded body can be a thousand times as long as what was read of it.
        headers = httpx.Headers({"Accept-Encoding": "identity"})
        if key is not None:
            headers["Authorization"] = f"Bearer {key.get_secret_value()}"
        try:
            status, retry_after, body = _within(
                self.timeout, lambda: self._send(url, payload, headers)
            )
        except (httpx.TimeoutException, TimeoutError):
            problem = f"no answer within {self.timeout:g} s"
            raise _TransientError(problem, generating=True) from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise ValueError(_NO_URL) from None
        except httpx.TransportError as error:
            raise _TransientError(f"{type(error).__name__}: {_quoted(str(error), key)}") from None
        except (OSError, ImportError) as error:  # of certificates or a proxy that are not there
            raise ValueError(f"{type(error).__name__}: {_quoted(str(error), key)}") from None
        if status == 429 or status >= 500:
            raise _TransientError(f"HTTP {status} {_excerpt(body, key)}", _seconds(retry_after))
        if status != 200:
            raise httpx.HTTPError(f"HTTP {status} {_excerpt(body, key)}")
        return body

    def _send(
        self, url: httpx.URL, payload: dict[str, Any], headers: httpx.Headers
    ) -> tuple[int, str | None, bytes]:
        deadline = time.monotonic() + self.timeout
        with (
            httpx.Client(timeout=self.timeout) as client,
            client.stream("POST", url, json=payload, headers=headers) as response,
        ):
            encoded = response.headers.get("content-encoding", "identity") != "identity"
            if encoded and response.status_code == 200:
                raise httpx.HTTPError("an encoded response, which was not asked for")
            body = b"" if encoded else self._body(response, deadline)
            return response.status_code, response.headers.get("retry-after"), body

    def _body(self, response: httpx.Response, deadline: float) -> bytes:
        # Ends the thread of a server that drips, which never runs into httpx's own limits.
        body = bytearray()
        for piece in response.iter_raw():
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
        # Only the host: the rest of the URL may hold a password or a token.
        try:
            host = _completions(self.base_url).netloc.decode("ascii")
        except ValueError:
            return f"model {self.model}"
        return f"model {self.model} at {host}"


_SECRET = re.compile(
    r"key|token|secret|passw|auth|credential|signature|^(code|sig)$", re.IGNORECASE
)
"""Names of parameters that hold what nobody else may read."""
_NO_URL = "base_url is no http or https URL"


def check_url(base_url: str) -> None:
    """See to it that an address can be asked, and holds nothing secret.

    Raises:
        ValueError: it is no http or https URL, holds a user or a password, or a query with
            something that is called like a key; they are not said.
    """
    url = _completions(base_url)
    if url.userinfo:
        raise ValueError("base_url holds a user or a password; keys come from the environment")
    if secret := [name for name in url.params if _SECRET.search(name)]:
        raise ValueError(
            f"base_url holds {secret[0]!r} in its query; keys come from the environment"
        )


def check_variable(name: str) -> None:
    """See to it that a name can be that of an environment variable.

    Raises:
        ValueError: it can't be; it may be the key itself, so it is not said.
    """
    if not (name.isascii() and name.isidentifier()):
        raise ValueError(
            "api_key_env must be the name of an environment variable, of letters, digits and _;"
            " the key itself stands only there"
        )


def _completions(base_url: str) -> httpx.URL:
    try:
        url = httpx.URL(base_url)
        path, mark, query = url.raw_path.partition(b"?")
        url = url.copy_with(raw_path=path.rstrip(b"/") + b"/chat/completions" + mark + query)
        asked = url.scheme in ("http", "https") and url.host
    except (httpx.InvalidURL, ValueError):
        asked = ""
    if not asked:
        raise ValueError(_NO_URL)
    return url


class _TransientError(Exception):
    """A failure that may pass.

    Args:
        message: what happened.
        retry_after: the server's wish in seconds.
        generating: whether a model may have been at the answer, all that it was allowed.
    """

    def __init__(
        self, message: str, retry_after: float | None = None, *, generating: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.generating = generating


class _UnreadableError(ValueError):
    """A response without an answer; `tokens` were generated for it, None where unknown."""

    def __init__(self, message: str, tokens: int | None) -> None:
        super().__init__(message)
        self.tokens = tokens


def _within(seconds: float, work: Callable[[], T]) -> T:
    """What the work returns or raises, or a TimeoutError when time is up.

    httpx limits each step of a request (connecting, every piece that is read), but not looking up
    the host nor all of them together. The work therefore runs in a thread, which is left to itself
    when it takes too long.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except Exception as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome.result(timeout=seconds)


def _read_completion(body: bytes, key: SecretStr | None) -> tuple[str, int | None]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError(f"the response is no JSON: {_excerpt(body, key)}") from None
    try:
        text = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        text = None
    tokens = _tokens(answer)
    if not isinstance(text, str):
        problem = f"the response is no chat completion with text: {_excerpt(body, key)}"
        raise _UnreadableError(problem, tokens)
    return _without(text, key), tokens


def _tokens(answer: Any) -> int | None:
    """How many tokens a server says it generated; None where it doesn't, or can't have."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return tokens if type(tokens) is int and 0 <= tokens <= _MOST_TOKENS else None


def _excerpt(body: bytes, key: SecretStr | None) -> str:
    text = body.decode("utf-8", "replace")
    if key is not None:
        with suppress(ValueError, RecursionError):  # JSON can spell the key in other ways
            text = json.dumps(json.loads(body), ensure_ascii=False)
    return _quoted(text, key)


def _quoted(text: str, key: SecretStr | None) -> str:
    # The key goes first: a cut could leave half of it.
    return quote(_without(text, key), 160)


def _without(text: str, key: SecretStr | None) -> str:
    if key is None:
        return text
    plain = key.get_secret_value()
    for spelling in {plain, json.dumps(plain)[1:-1], repr(plain)[1:-1]}:
        text = text.replace(spelling, "(the key)")
    return text


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds, in either of its forms; None where it can't be read."""
    if header is None:
        return None
    if header.isdecimal():
        return float(header) if len(header) < 7 else None
    try:
        when = parsedate_to_datetime(header)
        return max(0.0, (when.astimezone(UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError):
        return None
