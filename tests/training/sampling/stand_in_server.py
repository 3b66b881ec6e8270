"""A fake vLLM server over HTTP that derives answers from the prompt's tokens."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StandInServer(ThreadingHTTPServer):
    """A server on a port of this machine; `replies` are its answers by path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.calls: list[tuple[str, Any]] = []
        self.authorizations: set[str | None] = set()
        self.settings = {"dtype": "torch.float32", "logprobs_mode": "processed_logprobs"}
        self.replies: dict[str, Any] = {
            "/weight_info": {"weight_version": "v1"},
            "/v1/models": {"data": [{"id": "m", "max_model_len": 1024}]},
            "/server_info": {"vllm_config": {"model_config": self.settings}},
        }
        # Returns a status other than 200, or 0 to break the connection off.
        self.get_status: Callable[[str, Any], int | None] = lambda path, body: None
        self.error_body = "refused"
        self.is_closing = False
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def get_bodies(self, path: str) -> list[Any]:
        return [body for called_path, body in self.calls if called_path == path]

    def answer(self, path: str, body: Any) -> Any:
        if path == "/v1/completions":
            return {"choices": [make_choice(body["prompt"], index) for index in range(body["n"])]}
        return self.replies.get(path, {})


class _Handler(BaseHTTPRequestHandler):
    server: StandInServer

    def do_GET(self) -> None:
        self._respond(None)

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        self._respond(json.loads(self.rfile.read(size)) if size else None)

    def _respond(self, body: Any) -> None:
        path = self.path.partition("?")[0]
        self.server.calls.append((path, body))
        self.server.authorizations.add(self.headers.get("Authorization"))
        status = self.server.get_status(path, body)
        if status == 0 or self.server.is_closing:
            self.close_connection = True
            return
        reply = self.server.answer(path, body) if status is None else self.server.error_body
        text = json.dumps(reply).encode()
        self.send_response(status or 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


def make_choice(prompt: list[int], index: int) -> dict[str, Any]:
    """One answer as /v1/completions writes it: the prompt's first token, and the index."""
    return {
        "index": index,
        "prompt_token_ids": prompt,
        "token_ids": [prompt[0], index],
        "logprobs": {"token_logprobs": [-0.5, -0.25]},
        "finish_reason": "stop",
    }
