"""Client and engineer for models behind an OpenAI-compatible server.

The `openai` client retries after 408, 409, 429, 5xx, timeouts and broken connections, with
exponential backoff or the server's Retry-After. Importing it takes about a second.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import openai

from engineer.costs import Costs
from engineer.engineers.base import EngineerError
from engineer.engineers.language_model import GeneratedText, TextEngineer, TextRequest
from engineer.quoting import quote

MAX_BYTES = 1 << 20
"""Maximum size of a response in bytes."""
_MAX_TOKENS = 10**9
"""Maximum plausible token count in a response; larger counts are ignored."""
_MIN_MASKED = 6
"""Minimum length of the substrings of a key that are masked in messages and answers."""


@dataclass(frozen=True)
class ChatClient:
    """Client of one model on one server.

    Each call reads the API key from the environment and does not store it.
    """

    base_url: str = field(repr=False)  # such as https://host/v1; query parameters are preserved
    model: str  # name of the model on the server
    api_key_env: str | None = None  # environment variable with the API key; None sends no key
    timeout: float = 120.0  # seconds per request
    retries: int = 3  # number of retries after the first request
    proxies: bool = True  # whether to use the proxy of the environment

    def complete(
        self,
        prompt: str | Sequence[Mapping[str, str]],
        *,
        max_tokens: int,
        chat: bool = True,
        fields: Mapping[str, Any] | None = None,
    ) -> GeneratedText:
        """Generate an answer to a prompt or messages, or continue a text (`chat=False`).

        Args:
            prompt: A prompt, or chat messages.
            max_tokens: Maximum number of generated tokens. If the server reports no token count,
                this number is used instead.
            chat: Whether to use chat completions instead of completions.
            fields: Further fields of the request, such as `temperature`.

        Returns:
            The generated text.

        Raises:
            EngineerError: The key is not set, the server is unreachable or rejects the request, or
                its response contains no text. The message does not contain the key or the path of
                the URL. `spent` holds the tokens.
        """
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        content: dict[str, Any] = {"messages": messages} if chat else {"prompt": prompt}
        body = {"model": self.model, **content, "max_tokens": max_tokens, **(fields or {})}
        path = "/chat/completions" if chat else "/completions"
        key = _read_key(self.api_key_env)
        tokens = 0
        try:
            response = self._post(path, body, key)
            tokens = _read_token_count(response, max_tokens)
            text, reasoning, truncated = _read_completion(response)
            text, reasoning = _mask_key(text, key), _mask_key(reasoning, key)
            return GeneratedText(text, tokens, reasoning, truncated)
        except openai.APITimeoutError:
            problem, tokens = f"no answer within {self.timeout:g} s", max_tokens
        except openai.APIStatusError as error:
            detail = read_error_message(error.response.content)
            problem = f"HTTP {error.status_code}" + (f": {detail}" if detail else "")
        except openai.APIConnectionError as error:
            problem = f"{type(error.__cause__).__name__}: {error.__cause__}"
        except (openai.OpenAIError, httpx2.InvalidURL, ValueError, OSError, ImportError) as error:
            problem = str(error)
        message = (
            f"model {self.model} at {_host(self.base_url)}: {quote(_mask_key(problem, key))[1:-1]}"
        )
        raise EngineerError(message, Costs(engineer_tokens=tokens)) from None

    def _post(self, path: str, body: dict[str, Any], key: str | None) -> Any:
        """Send a request and return the JSON of the response."""
        url_parts = urlsplit(self.base_url)
        with openai.OpenAI(
            base_url=url_parts._replace(query="", fragment="").geturl(),
            default_query=dict(parse_qsl(url_parts.query, keep_blank_values=True)),
            default_headers={"accept-encoding": "identity"},  # compression would hide the size
            api_key=key or "none",
            max_retries=self.retries,
            http_client=_BoundedClient(timeout=self.timeout, trust_env=self.proxies),
        ) as client:
            response = client.post(path, cast_to=httpx2.Response, body=body)
        try:
            return json.loads(response.content)
        except (ValueError, RecursionError):
            raise ValueError("the response is not JSON") from None


@dataclass(frozen=True)
class EndpointEngineer(TextEngineer):
    """Engineer that calls a model on a server."""

    client: ChatClient
    max_tokens: int = 4096  # maximum length of an answer
    note_tokens: int | None = None  # maximum length of notes; None: `max_tokens`
    temperature: float = 0.0
    reasoning_tokens: int = 0  # maximum length of the reasoning before the answer; 0: none
    request: Mapping[str, Any] = field(default_factory=dict)  # further fields of each request

    @property
    def name(self) -> str:
        """The model's name."""
        return self.client.model

    def generate(self, request: TextRequest) -> GeneratedText:
        """Generate the requested text; raises as `ChatClient.complete`.

        Earlier reasoning is sent as the assistant's turn, followed by a user turn that asks for the
        configuration. Regular expressions and seeds are not sent, because some servers reject them.
        """
        messages = [{"role": "user", "content": request.prompt}]
        if request.reasoning:
            messages += [
                {"role": "assistant", "content": request.reasoning},
                {"role": "user", "content": "Now write the configuration and nothing else."},
            ]
        fields: dict[str, Any] = {"temperature": self.temperature, **self.request}
        if isinstance(request.form, dict):
            schema = {"name": "configuration", "strict": True, "schema": request.form}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        default_tokens = self.max_tokens if request.form is not None else self.note_tokens
        max_tokens = request.max_tokens or default_tokens or self.max_tokens
        return self.client.complete(messages, max_tokens=max_tokens, fields=fields)


class _BoundedClient(httpx2.Client):
    """HTTP client that limits the size and the total time of each response."""

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request and read its response."""
        deadline = time.monotonic() + (self.timeout.read or 0.0)
        body = bytearray()
        with closing(super().send(request, **(options | {"stream": True}))) as response:
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise openai.OpenAIError(f"response of more than {MAX_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise httpx2.ReadTimeout("the response takes too long", request=request)
        names = ("content-type", "retry-after", "retry-after-ms")
        headers = {name: response.headers[name] for name in names if name in response.headers}
        return httpx2.Response(
            response.status_code, headers=headers, content=bytes(body), request=request
        )


def read_error_message(body: bytes) -> str:
    """Return the message in a JSON error body, or "".

    Unparsable bodies are ignored, because they may repeat the API key in another encoding.
    """
    try:
        value: Any = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        return ""
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    return value if isinstance(value, str) else ""


def _host(base_url: str) -> str:
    """Return the host of a URL, without parts that may contain a password."""
    try:
        return urlsplit(base_url).netloc.rpartition("@")[2]
    except ValueError:
        return "?"


def _read_completion(response: Any) -> tuple[str, str, bool]:
    """Return the text of a response, its separate reasoning, and whether it was truncated.

    The text is empty if the response only consists of reasoning or tool calls.
    """
    with suppress(KeyError, IndexError, TypeError, AttributeError):
        choice = response["choices"][0]
        message = choice.get("message", {})
        text = message.get("content") if "message" in choice else choice["text"]
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        reasoning = reasoning if isinstance(reasoning, str) else ""
        truncated = choice.get("finish_reason") == "length"
        if text is None and (reasoning or truncated or message.get("tool_calls")):
            text = ""
        if isinstance(text, str):
            return text, reasoning, truncated
    raise ValueError("the response holds no completion with text")


def _read_token_count(response: Any, default: int) -> int:
    tokens = None
    with suppress(KeyError, TypeError):
        tokens = response["usage"]["completion_tokens"]
    return tokens if type(tokens) is int and 0 <= tokens <= _MAX_TOKENS else default


def _read_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise EngineerError(f"environment variable {variable} holds no key")
    if not (key.isascii() and key.isprintable()):
        raise EngineerError(f"environment variable {variable} holds unprintable characters")
    return key


def _mask_key(text: str, key: str | None) -> str:
    """Mask the key and all of its substrings of at least `_MIN_MASKED` characters."""
    if key is None:
        return text
    width = min(_MIN_MASKED, len(key))
    substrings = {key[start : start + width] for start in range(len(key) - width + 1)}
    characters = list(text)
    for start in range(len(text) - width + 1):
        if text[start : start + width] in substrings:
            characters[start : start + width] = "*" * width
    return "".join(characters)
