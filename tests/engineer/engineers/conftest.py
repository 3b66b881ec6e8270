"""A local HTTP server with responses that the test defines."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Reply = tuple[int, dict[str, str], bytes] | Callable[[Any], None]


class Server:
    """Send the replies in turn, repeating the last one, and record the requests.

    Header names are recorded in lower case.
    """

    def __init__(self, *replies: Reply) -> None:
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.paths: list[str] = []
        self.stopped = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.requests.append((headers, json.loads(self.rfile.read(length))))
                server.paths.append(self.path)
                reply = replies[min(len(server.requests), len(replies)) - 1]
                if callable(reply):
                    reply(self)
                    return
                status, headers, body = reply
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The bodies of the requests."""
        return [body for _, body in self.requests]

    def close(self) -> None:
        self.stopped.set()
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    servers: list[Server] = []

    def hang(handler: Any) -> None:
        """Send no reply while the server runs."""
        servers[-1].stopped.wait(20)

    def start(*replies: Reply | str) -> Server:
        """Start a server; the reply `hang` never arrives."""
        server = Server(*(hang if reply == "hang" else reply for reply in replies))
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


def completion(text: object, **fields: object) -> Reply:
    """Return a chat completion."""
    body = {"choices": [{"message": {"role": "assistant", "content": text}}], **fields}
    return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()


def response(status: int, body: str = "busy", **headers: str) -> Reply:
    """Return a response with any status and body."""
    return status, headers, body.encode()
