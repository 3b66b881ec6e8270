"""A server can't fill the memory, and errors don't show unreadable bodies."""

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from engineer.engineers.endpoint import read_error_message
from training.errors import UserError
from training.sampling import bounded_http
from training.sampling.server_process import get_health_problem
from training.sampling.vllm_server import VllmServer

SECRET = "sk-123456789"
REPLIES = {
    "endless": (200, {}, b"[" + b"1," * 50_000),
    "gzip": (200, {"content-encoding": "gzip"}, gzip.compress(b" " * 10_000_000)),
    "unreadable": (400, {}, SECRET.encode("utf-16")),
    "page": (400, {}, f"<h1>{SECRET}</h1>".encode()),
}


@pytest.fixture
def address(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve one reply to every request."""
    monkeypatch.setattr(bounded_http, "MAX_BYTES", 10_000)
    status, headers, body = REPLIES[request.param]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("address", REPLIES, indirect=True)
def test_call_bounds_the_body_and_hides_it(address):
    with pytest.raises(UserError) as error_info:
        VllmServer(address).call("GET", "/v1/models")
    assert SECRET not in str(error_info.value)
    assert len(str(error_info.value)) < 600


@pytest.mark.parametrize(
    ("address", "problem"), [("endless", ""), ("page", "HTTP 400")], indirect=["address"]
)
def test_get_health_problem_reads_only_the_status(address, problem):
    assert get_health_problem(address).endswith(problem)
    assert bool(get_health_problem(address)) == bool(problem)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "no"}}', "no"),
        (b'{"detail": "no"}', "no"),
        (b'{"error": 3}', ""),
        (b"[" * 50_000, ""),
        (SECRET.encode("utf-16"), ""),
        (b"plain text", ""),
    ],
)
def test_read_error_message_reads_only_json(body, message):
    assert read_error_message(body) == message
