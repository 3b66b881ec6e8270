import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from engineer.configuration import answer_schema, answer_text
from engineer.engineers import EndpointEngineer, EngineerError, GeneratorEngineer, Proposal

KEY = "sk-very-secret-0123456789"
Reply = tuple[int, dict[str, str], bytes]


class Server:
    """A real server on this machine that plays its replies in turn, the last one for ever."""

    def __init__(self, *replies: Reply | Callable[[Any], None]) -> None:
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.stopped = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                server.requests.append((dict(self.headers), json.loads(self.rfile.read(length))))
                server.path = self.path
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

    def close(self) -> None:
        self.stopped.set()
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def serve(monkeypatch) -> Iterator[Callable[..., Server]]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    servers: list[Server] = []

    def start(*replies: Reply | Callable[[Any], None]) -> Server:
        servers.append(Server(*replies))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def completion(text: object, **more: object) -> Reply:
    body = {"choices": [{"message": {"role": "assistant", "content": text}}], **more}
    return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()


def failure(status: int, body: str = "busy", **headers: str) -> Reply:
    return status, headers, body.encode()


@pytest.fixture
def ask(evidence, current, bounds) -> Callable[..., Proposal]:
    def propose(server: Server | str, **options: Any) -> Proposal:
        url = server if isinstance(server, str) else server.url
        settings = {"timeout": 5.0, "retries": 2, "backoff": 0.001} | options
        return EndpointEngineer(url, "some-model", **settings).propose(
            "the context",
            schema=answer_schema(bounds),
            attempt=0,
            evidence=evidence,
            current=current,
        )

    return propose


def test_an_endpoint_is_asked_as_its_protocol_says(serve, ask, bounds, current, monkeypatch):
    monkeypatch.setenv("LAKE_KEY", KEY)
    server = serve(completion(answer_text(current), usage={"completion_tokens": 77}))
    proposal = ask(server, api_key_env="LAKE_KEY")
    assert (proposal.text, proposal.tokens) == (answer_text(current), 77)
    assert proposal.seconds > 0
    [(headers, payload)] = server.requests
    assert server.path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert payload["messages"] == [{"role": "user", "content": "the context"}]
    assert payload["model"] == "some-model"
    assert payload["response_format"]["json_schema"]["schema"] == answer_schema(bounds)


def test_without_a_key_none_is_sent_and_without_structure_no_schema(serve, ask):
    server = serve(completion("{}"))
    assert ask(server, structured=False).tokens is None
    [(headers, payload)] = server.requests
    assert "Authorization" not in headers
    assert "response_format" not in payload


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_busy_server_is_asked_again(serve, ask, status):
    server = serve(failure(status), failure(status), completion("fine"))
    assert ask(server).text == "fine"
    assert len(server.requests) == 3


def test_waits_double_and_follow_the_server_up_to_a_limit(serve, ask):
    waits: list[float] = []
    server = serve(
        failure(503),
        failure(503),
        failure(429, **{"Retry-After": "7"}),
        failure(429, **{"Retry-After": "9999"}),
        failure(429, **{"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        completion("fine"),
    )
    assert ask(server, retries=5, backoff=1.0, sleep=waits.append).text == "fine"
    assert waits == [1.0, 2.0, 7.0, 30.0, 16.0]


def test_a_broken_server_is_given_up_after_the_retries(serve, ask):
    server = serve(failure(500, "<h1>oops</h1>"))
    with pytest.raises(EngineerError, match=r"gave up after 3 requests: HTTP 500 .*oops"):
        ask(server)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (failure(401, "no such key"), r"HTTP 401 \"no such key\""),
        (failure(404, ""), "HTTP 404"),
        (failure(301, "", Location="http://127.0.0.1:1/"), "HTTP 301"),
        (failure(200, "<html><body>Log in</body></html>"), "no JSON: .*Log in"),
        (failure(200, '{"choices": [{"message": {"cont'), "no JSON"),
        (failure(200, ""), "no JSON"),
        (failure(200, "[" * 50_000), "no JSON"),
        (failure(200, "\xff\xfe\x00"), "no JSON"),
        (failure(200, '{"choices": []}'), "no chat completion"),
        (failure(200, "[1]"), "no chat completion"),
        (completion(None), "no chat completion"),
        (completion([{"type": "text"}]), "no chat completion"),
        (failure(200, "x" * 3_000_000), "more than 1048576 bytes"),
    ],
)
def test_an_answer_that_is_none_fails_at_once_and_says_why(serve, ask, reply, message):
    server = serve(reply)
    with pytest.raises(EngineerError, match=message) as caught:
        ask(server)
    assert len(server.requests) == 1
    assert "some-model at 127.0.0.1" in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_server_that_hangs_is_left_in_time(serve, ask):
    server = serve(lambda handler: server.stopped.wait(20))
    start = time.monotonic()
    with pytest.raises(EngineerError, match=r"gave up after 2 requests: no answer within 0.2 s"):
        ask(server, timeout=0.2, retries=1)
    assert time.monotonic() - start < 3


def test_a_server_that_drips_is_left_in_time(serve, ask):
    def drip(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not server.stopped.wait(0.05):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    server = serve(drip)
    start = time.monotonic()
    with pytest.raises(EngineerError, match=r"no answer within 0\.3 s"):
        ask(server, timeout=0.3, retries=0)
    assert time.monotonic() - start < 3


def test_a_connection_that_breaks_is_tried_again(serve, ask):
    def hang_up(handler: Any) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)

    server = serve(hang_up, completion("fine"))
    assert ask(server).text == "fine"


def test_nobody_listening_is_said(ask, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://user:password@127.0.0.1:{unused.getsockname()[1]}/v1?token=abc"
        with pytest.raises(EngineerError, match="gave up after 3 requests: ConnectError") as caught:
            ask(url)
    assert "password" not in str(caught.value)
    assert "abc" not in str(caught.value)


@pytest.mark.parametrize("url", ["127.0.0.1/v1", "ftp://127.0.0.1/v1", "http://[::1", ""])
def test_a_url_that_is_none_is_an_engineers_error(ask, url):
    with pytest.raises(EngineerError, match="base_url is no http or https URL"):
        ask(url)


@pytest.mark.parametrize("value", ["", "   ", "two\nlines", "schlüssel"])
def test_an_unusable_key_is_said_by_the_name_of_its_variable(ask, monkeypatch, value):
    monkeypatch.setenv("LAKE_KEY", value)
    with pytest.raises(EngineerError, match="environment variable LAKE_KEY"):
        ask("http://127.0.0.1:1/v1", api_key_env="LAKE_KEY")


@pytest.mark.parametrize("status", [200, 401, 500])
@pytest.mark.parametrize("pad", [0, 85])
def test_the_key_is_never_shown_even_if_the_server_says_it(
    serve, ask, monkeypatch, caplog, status, pad
):
    monkeypatch.setenv("LAKE_KEY", KEY)
    caplog.set_level(0)
    server = serve(failure(status, "x" * pad + f" your key {KEY} is wrong" + "y" * 500))
    with pytest.raises(EngineerError, match="your key") as caught:
        ask(server, api_key_env="LAKE_KEY")
    assert KEY[:8] not in str(caught.value)
    assert KEY not in caplog.text
    assert KEY not in repr(EndpointEngineer(server.url, "m", api_key_env="LAKE_KEY"))


def test_a_generator_gets_the_context_the_schema_and_the_attempt(evidence, current):
    def generate(context: str, schema: dict[str, Any], attempt: int) -> str:
        return f"{context} {schema['type']} {attempt}"

    engineer = GeneratorEngineer(generate, count_tokens=lambda text: len(text.split()))
    proposal = engineer.propose(
        "hello", schema={"type": "object"}, attempt=2, evidence=evidence, current=current
    )
    assert (proposal.text, proposal.tokens) == ("hello object 2", 3)
