"""A model behind an OpenAI-compatible server: its address, the pace of requests, its engineer."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from engineer.engineers.language_model import GeneratedText, TextEngineer
from engineer.space import AnswerForm

if TYPE_CHECKING:
    from engineer.engineers.chat_client import ChatClient  # imports openai

LONGEST_WAIT = 30.0
"""The longest wait for the next request, in seconds; a slower pace is refused."""

_SECRET = re.compile(
    r"key|token|secret|passw|auth|credential|signature|^(code|sig)$", re.IGNORECASE
)
"""Matches names of query parameters that hold what nobody else may read."""


@dataclass(frozen=True)
class EndpointEngineer(TextEngineer):
    """Asks a server's model for the answer."""

    client: ChatClient
    max_tokens: int = 4096  # of an answer
    note_tokens: int | None = None  # of notes; None: as `max_tokens`
    temperature: float = 0.0

    @property
    def name(self) -> str:
        """The model's name."""
        return self.client.model

    def generate(
        self, prompt: str, form: AnswerForm | None, seed: int, limit: int | None
    ) -> GeneratedText:
        """Ask for an answer, or for notes without a form; raises as `ChatClient.complete`.

        Not every server takes a regular expression, so none is sent.
        """
        del seed  # few servers keep their promise about it
        longest = self.note_tokens or self.max_tokens
        fields: dict[str, Any] = {"temperature": self.temperature}
        if isinstance(form, dict):
            schema = {"name": "configuration", "strict": True, "schema": form}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        if form is not None:
            longest = self.max_tokens
        return self.client.complete(prompt, max_tokens=longest, budget=limit, fields=fields)


class Pace:
    """Spaces requests evenly, over all calls and threads that share it.

    A ValueError says that the rate is not positive, or needs waits above `LONGEST_WAIT`.
    """

    def __init__(
        self,
        requests_per_minute: float,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not requests_per_minute > 0.0:
            raise ValueError(f"requests_per_minute must be above 0, got {requests_per_minute:g}")
        self._interval = 60.0 / requests_per_minute
        if self._interval > LONGEST_WAIT:
            raise ValueError(
                f"requests_per_minute: got {requests_per_minute:g}, which needs waits of"
                f" {self._interval:g} s; at most {LONGEST_WAIT:g} s are allowed"
            )
        self._rate, self._sleep, self._clock = requests_per_minute, sleep, clock
        self._lock = threading.Lock()
        self._next_place = float("-inf")

    def wait(self) -> None:
        """Wait for the next free place; a TimeoutError leaves it if it is past `LONGEST_WAIT`."""
        with self._lock:
            now = self._clock()
            wait = max(0.0, self._next_place - now)
            if wait > LONGEST_WAIT + 1e-6:
                raise TimeoutError(
                    f"{self._rate:g} requests per minute leave no place within {LONGEST_WAIT:g} s"
                )
            self._next_place = now + wait + self._interval
        if wait > 0.0:
            self._sleep(wait)


def split_url(base_url: str) -> tuple[str, dict[str, str]]:
    """Split the address of an API into the address without its query, and the query.

    The ValueError about one that is not http or https does not quote it: it may hold a password.
    """
    try:
        parts = urlsplit(base_url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError("base_url is no http or https URL")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return parts._replace(query="", fragment="").geturl(), query


def check_url(base_url: str) -> None:
    """Raise a ValueError unless an address can be asked and holds nothing secret.

    Secret are a user, a password, and a query parameter that is called like a key; the message
    does not quote their values.
    """
    url, query = split_url(base_url)
    if "@" in urlsplit(url).netloc:
        raise ValueError("base_url holds a user or a password; keys come from the environment")
    if secret := [name for name in query if _SECRET.search(name)]:
        raise ValueError(
            f"base_url holds {secret[0]!r} in its query; keys come from the environment"
        )


def check_variable(name: str) -> None:
    """Raise a ValueError unless a name can be that of an environment variable.

    It may be the key itself, so it is not quoted.
    """
    if not (name.isascii() and name.isidentifier()):
        raise ValueError(
            "api_key_env must be the name of an environment variable, of letters, digits and _;"
            " the key itself stands only there"
        )
