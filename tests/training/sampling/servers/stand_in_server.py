"""What a vLLM server says over HTTP, without a model: an answer is made of the prompt's tokens.

It may break off, be silent, hold other weights, have settings of its own, or refuse what vLLM does.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RefusedError(Exception):
    """What is asked for can't be done now."""


class StandInServer:
    """A server on a port of this machine; `settings` are those of vLLM's model configuration."""

    def __init__(self) -> None:
        self.version = "v1"
        self.settings = {"dtype": "torch.float32", "logprobs_mode": "processed_logprobs"}
        self.max_model_len = 1024
        self.calls: list[tuple[str, Any]] = []
        self.answered: list[list[int]] = []  # prompts whose answers were sent
        self.breaks_off: Callable[[list[int]], bool] = lambda prompt: False
        self.silent = False
        self.gone = False
        self.updating = False  # weights are being replaced
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def asked(self, path: str) -> list[Any]:
        return [body for called, body in self.calls if called == path]

    def answer(self, path: str, body: Any) -> Any:
        """What to say; None breaks the connection off."""
        while self.silent:
            time.sleep(0.02)
        if self.gone:
            return None
        if path == "/v1/completions":
            if self.breaks_off(body["prompt"]):
                self.gone = True
                return None
            self.answered.append(body["prompt"])
            return {"choices": [choice(body["prompt"], index) for index in range(body["n"])]}
        if path in (steps := {"/start_weight_update": True, "/finish_weight_update": False}):
            if self.updating == steps[path]:
                raise RefusedError(
                    f"{path}: an update of weights is{'' if self.updating else ' not'} open"
                )
            self.updating = steps[path]
        said: dict[str, Any] = {
            "/health": {},
            "/weight_info": {"weight_version": self.version},
            "/v1/models": {"data": [{"id": "m", "max_model_len": self.max_model_len}]},
            "/server_info": {"vllm_config": {"model_config": self.settings}},
        }
        return said.get(path, {})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say(None)

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                self._say(json.loads(self.rfile.read(size)) if size else None)

            def _say(self, body: Any) -> None:
                path = self.path.partition("?")[0]
                server.calls.append((path, body))
                status, said = 200, None
                try:
                    said = server.answer(path, body)
                except RefusedError as error:
                    status, said = 400, {"error": str(error)}
                if said is None:
                    self.close_connection = True
                    return
                text = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def choice(prompt: list[int], index: int) -> dict[str, Any]:
    """One answer as /v1/completions writes it: the prompt's first token, and the index."""
    return {
        "index": index,
        "prompt_token_ids": prompt,
        "token_ids": [prompt[0], index],
        "logprobs": {"token_logprobs": [-0.5, -0.25]},
        "finish_reason": "stop",
    }


@contextmanager
def stand_ins(count: int) -> Iterator[list[StandInServer]]:
    """Run so many servers."""
    servers = [StandInServer() for _ in range(count)]
    try:
        yield servers
    finally:
        for server in servers:
            server.silent = False
            server.close()
