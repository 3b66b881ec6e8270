"""Questions to a model behind an OpenAI-compatible server, safe against whatever the server does.

The `openai` client speaks the protocol, retries failed requests and honours Retry-After. This
module adds what an unattended run needs besides: limits of time, size and tokens, a pace, and a key
that stands in no message. `docs/engineers.md` lists them. Importing it takes about a second.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import openai
from pydantic import SecretStr

from engineer.budget import Spent
from engineer.engineers.base import EngineerError
from engineer.engineers.endpoint import LONGEST_WAIT, Pace, check_variable, split_url
from engineer.engineers.language_model import GeneratedText
from engineer.quoting import quote

T = TypeVar("T")

_MOST_TOKENS = 10**9
"""A server that claims to have generated more for one answer is not believed."""
_MOMENT = 0.5
"""Seconds in which a request that ended at the deadline is accounted for."""
_SHORTEST_IN_MESSAGES = 4
"""Characters of the key that no message shows: servers like to quote its first and last ones."""
_SHORTEST_IN_ANSWERS = 8
"""The same of answers, in which a short part of the key may stand by chance."""
_HEADERS = {"accept", "authorization", "content-length", "content-type", "host", "user-agent"}
"""What is sent; the client's other headers describe this machine and its account."""


@dataclass(frozen=True)
class ChatClient:
    """Asks one model of one server, a question at a time.

    The key is read from the environment at each call. It is neither kept nor logged, and it and its
    parts are cut out of whatever the server says. The `openai` client decides what is tried again:
    408, 409, 429, 5xx, timeouts and broken connections, after waits that double from half a second
    to eight seconds, or after the server's Retry-After if that is at most two minutes. Anything
    else fails at once. Redirects are not followed. A question ends within `total_timeout` seconds,
    whatever the server does. Raises as `check_variable`.
    """

    base_url: str = field(repr=False)  # such as https://host/v1; a query stays at its end
    model: str  # its name on the server
    api_key_env: str | None = None  # the variable that holds the key; None sends no key
    timeout: float = 120.0  # seconds for one request, from looking up the host to the last byte
    retries: int = 3  # requests after the first
    max_bytes: int = 1 << 20  # of one response
    pace: Pace | None = field(default=None, repr=False)  # None: no distance between requests
    proxies: bool = True  # whether the proxy that the environment names is used

    def __post_init__(self) -> None:
        if self.api_key_env is not None:
            check_variable(self.api_key_env)

    @property
    def total_timeout(self) -> float:
        """Seconds for one question: for each request its timeout and the longest wait for it."""
        return (self.retries + 1) * (self.timeout + LONGEST_WAIT)

    def complete(
        self,
        prompt: str,
        *,
        max_tokens: int,
        budget: int | None = None,
        chat: bool = True,
        fields: Mapping[str, Any] | None = None,
    ) -> GeneratedText:
        """Let the model answer a prompt, or continue it as a text (`chat=False`).

        `budget` is the number of tokens that may still be spent, requests that time out included;
        None is any number. `fields` are further fields of the request, such as `temperature`.

        Returns:
            The text and the tokens that were spent: as many as the server says, or as many as it
            was allowed where it doesn't say, and those of requests that timed out.

        Raises:
            EngineerError: the key is not set, the server can't be reached or refuses, or its
                response holds no text. Its `spent` holds the tokens.
        """
        try:
            url, query = split_url(self.base_url)
        except ValueError as error:
            raise EngineerError(f"model {self.model}: {error}") from None
        allowed = max_tokens if budget is None else min(max_tokens, budget)
        asked = {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
        body = {"model": self.model, **asked, "max_tokens": allowed, **(fields or {})}
        path = "/chat/completions" if chat else "/completions"
        answer = self._exchange(url, query, path, body, budget)
        if isinstance(answer, EngineerError):
            raise answer
        return answer

    def _exchange(
        self, url: str, query: dict[str, str], path: str, body: dict[str, Any], budget: int | None
    ) -> GeneratedText | EngineerError:
        """Ask, and return what is said with the key cut out of it.

        Exceptions end here, because they and their tracebacks may hold the key.
        """

        def failed(problem: str, tokens: int = 0) -> EngineerError:
            host = urlsplit(url).netloc.rpartition("@")[2]  # the rest may hold a password
            message = f"model {self.model} at {host}: {problem}"
            return EngineerError(message, Spent(engineer_tokens=tokens))

        key = _read_key(self.api_key_env)
        try:
            session = _Session(self, key, body["max_tokens"], budget)
        except (OSError, ImportError) as error:  # of certificates or a proxy that are not there
            return failed(_described(error, key))
        try:
            with openai.OpenAI(
                base_url=url,
                default_query=query,
                api_key=key.get_secret_value() if key else "none",
                max_retries=self.retries,
                timeout=self.timeout,
                http_client=session,
            ) as client:
                # Requests end at the deadline by themselves, a moment later the client's waits do.
                response = _within(
                    self.total_timeout + _MOMENT,
                    lambda: client.post(path, cast_to=httpx2.Response, body=body),
                )
            text, problem = session.read(response.content)
            if text is None:
                return failed(problem, session.spent)
            return GeneratedText(text, session.spent)
        except TimeoutError:
            problem = session.problem_and(session.too_late)
        except openai.APIStatusError as error:
            problem = f"HTTP {error.status_code} {_excerpt(error.response.content, key)}"
        except openai.APIConnectionError:
            problem = session.problem
        except _StoppedError as stop:
            problem = str(stop)
        except (openai.OpenAIError, httpx2.InvalidURL, ValueError) as error:
            problem = _described(error, key)
        if session.requests > 1:
            problem = f"gave up after {session.requests} requests: {problem}"
        return failed(problem, session.spent)


class _StoppedError(openai.OpenAIError):
    """Ends a question: the client passes its own errors on and does not try again."""


class _Session(openai.DefaultHttpxClient):
    """Sends the single requests of one question; the `openai` client decides on retries."""

    def __init__(
        self, limits: ChatClient, key: SecretStr | None, allowed: int, budget: int | None
    ) -> None:
        super().__init__(follow_redirects=False, timeout=limits.timeout, trust_env=limits.proxies)
        self._limits, self._key = limits, key
        self._allowed, self._budget = allowed, budget
        self._deadline = time.monotonic() + limits.total_timeout
        self.too_late = f"no answer within {limits.total_timeout:g} s in all"
        self.requests = 0
        self.spent = 0
        self.problem = ""

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send one request at its time, within the limits."""
        if self._budget is not None and self._budget - self.spent < max(1, self._allowed):
            raise _StoppedError(self.problem_and("the budget of tokens is spent"))
        if self._limits.pace:
            try:
                self._limits.pace.wait()
            except TimeoutError as error:
                raise _StoppedError(str(error)) from None
        limit = min(self._limits.timeout, self._deadline - time.monotonic())
        if limit <= 0.0:
            raise _StoppedError(self.problem_and(self.too_late))
        self.requests += 1
        kept = _HEADERS if self._key else _HEADERS - {"authorization"}
        for name in set(request.headers) - kept:
            del request.headers[name]
        # An encoded body can be a thousand times as long as what was read of it.
        request.headers["accept-encoding"] = "identity"
        try:
            return _within(limit, lambda: self._fetch(request))
        except (TimeoutError, httpx2.TimeoutException):
            self.spent += self._allowed  # the model may be at it
            self.problem = f"no answer within {self._limits.timeout:g} s"
            raise httpx2.ReadTimeout(self.problem, request=request) from None
        except httpx2.TransportError as error:
            self.problem = _described(error, self._key)
            raise

    def problem_and(self, why: str) -> str:
        """Say what the last problem was, if there was one, and why no request follows."""
        return "; ".join(filter(None, [self.problem, why]))

    def _fetch(self, request: httpx2.Request) -> httpx2.Response:
        deadline = time.monotonic() + self._limits.timeout
        response = super().send(request, stream=True)
        with closing(response):
            body = bytearray()
            encoded = response.headers.get("content-encoding", "identity") != "identity"
            if encoded and response.is_success:
                raise _StoppedError("an encoded response, which was not asked for")
            for piece in () if encoded else response.iter_raw():
                body += piece
                if len(body) > self._limits.max_bytes:
                    raise _StoppedError(f"response of more than {self._limits.max_bytes} bytes")
                # httpx limits the wait for each piece, but not for all of them together.
                if time.monotonic() > deadline:
                    raise TimeoutError
        headers = {
            name: value
            for name, value in response.headers.items()
            if name.startswith(("content-type", "retry-after"))
        }
        return httpx2.Response(
            response.status_code, headers=headers, content=bytes(body), request=request
        )

    def read(self, body: bytes) -> tuple[str | None, str]:
        """Return the text of a response, or None and why it holds none, and count its tokens."""
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            return None, f"the response is no JSON: {_excerpt(body, self._key)}"
        usage = answer.get("usage") if isinstance(answer, dict) else None
        tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if type(tokens) is not int or not 0 <= tokens <= _MOST_TOKENS:
            tokens = self._allowed
        self.spent += tokens
        with suppress(KeyError, IndexError, TypeError):
            choice = answer["choices"][0]
            text = choice["message"]["content"] if "message" in choice else choice["text"]
            if text is None and choice.get("finish_reason") == "length":
                text = ""  # all of its tokens went into what it thought before the answer
            if isinstance(text, str):
                return _without(text, self._key, _SHORTEST_IN_ANSWERS), ""
        return None, f"the response is no completion with text: {_excerpt(body, self._key)}"


def _within(seconds: float, work: Callable[[], T]) -> T:
    """Return or raise what the work does, or a TimeoutError when time is up.

    httpx limits each step of a request (connecting, every piece that is read), but neither looking
    up the host nor all of them together, and nothing limits the client's waits. The work therefore
    runs in a thread, which is left to itself when it takes too long.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except Exception as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome.result(timeout=seconds)


def _read_key(variable: str | None) -> SecretStr | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise EngineerError(f"environment variable {variable} holds no key")
    if not (key.isascii() and key.isprintable()):
        raise EngineerError(f"environment variable {variable} holds unprintable characters")
    return SecretStr(key)


def _described(error: Exception, key: SecretStr | None) -> str:
    return f"{type(error).__name__}: {quote(_without(str(error), key))}"


def _excerpt(body: bytes, key: SecretStr | None) -> str:
    text = body.decode("utf-8", "replace")
    if key is not None:
        with suppress(ValueError, RecursionError):  # JSON can spell the key in other ways
            text = json.dumps(json.loads(body), ensure_ascii=False)
    # The key goes first: a cut could leave half of it.
    return quote(_without(text, key), 160)


def _without(text: str, key: SecretStr | None, shortest: int = _SHORTEST_IN_MESSAGES) -> str:
    """Cut the key out of a text, and all of its parts that are at least so long."""
    if key is None:
        return text
    plain = key.get_secret_value()
    spellings = {plain, json.dumps(plain)[1:-1], repr(plain)[1:-1]}
    for spelling in spellings:
        text = text.replace(spelling, "(the key)")
    parts = {
        spelling[at : at + shortest]
        for spelling in spellings
        for at in range(len(spelling) - shortest + 1)
    }
    kept, end = [], 0  # what is kept of the text up to `end`
    for at in range(len(text) - shortest + 1):
        if text[at : at + shortest] in parts:
            if at >= end:
                kept += [text[end:at], "(part of the key)"]
            end = at + shortest
    return "".join([*kept, text[end:]])
