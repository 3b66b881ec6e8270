import gzip
import json
import socket
import sys
import threading
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from engineer.context import Context
from engineer.engineers import (
    EndpointEngineer,
    EngineerError,
    Generated,
    GeneratorEngineer,
    Proposal,
    RuleEngineer,
    Task,
    Writer,
)
from engineer.ledger import Budget
from engineer.rule import next_configuration
from engineer.space import answer_schema, answer_text

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
def task(view) -> Task:
    context = Context("the context", cut=(), tokens=2)
    return Task(context, view, answer_schema(view.domain.space), seed=11, attempt=2)


@pytest.fixture
def ask(task) -> Callable[..., Proposal]:
    def propose(server: Server | str, **options: Any) -> Proposal:
        url = server if isinstance(server, str) else server.url
        settings = {"timeout": 5.0, "retries": 2, "backoff": 0.001} | options
        return EndpointEngineer(url, "some-model", **settings).propose(task)

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


def test_free_text_is_asked_for_without_a_schema(serve):
    server = serve(completion("some notes", usage={"completion_tokens": 2}))
    proposal = EndpointEngineer(server.url, "some-model", timeout=5.0).write("sum up", seed=1)
    assert (proposal.text, proposal.tokens) == ("some notes", 2)
    [(_, payload)] = server.requests
    assert payload["messages"] == [{"role": "user", "content": "sum up"}]
    assert "response_format" not in payload


def test_without_a_key_none_is_sent_and_without_structure_no_schema(serve, ask):
    server = serve(completion("{}"))
    assert ask(server, structured=False).text == "{}"
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


def test_a_server_that_drips_its_headers_is_left_in_time(serve, ask):
    def drip(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not server.stopped.wait(0.05):
            handler.wfile.write(b"a")
            handler.wfile.flush()

    server = serve(drip)
    start = time.monotonic()
    with pytest.raises(EngineerError, match=r"gave up after 2 requests: no answer within 0\.3 s"):
        ask(server, timeout=0.3, retries=1)
    assert 0.6 <= time.monotonic() - start < 3


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def test_requests_keep_their_distance_over_calls(serve, task):
    clock = Clock()
    server = serve(completion("fine"))
    engineer = EndpointEngineer(
        server.url, "m", requests_per_minute=6.0, sleep=clock.sleep, clock=clock
    )
    engineer.propose(task)
    engineer.write("notes", seed=0)
    clock.now += 4.0
    engineer.propose(task)
    clock.now += 12.0
    engineer.propose(task)
    assert clock.waits == pytest.approx([10.0, 6.0])
    assert len(server.requests) == 4


def test_retries_keep_their_distance_and_wait_longer_where_the_server_says_so(serve, ask):
    clock = Clock()
    server = serve(
        failure(503), failure(429, **{"Retry-After": "25"}), failure(503), completion("fine")
    )
    ask(server, retries=3, backoff=1.0, requests_per_minute=6, sleep=clock.sleep, clock=clock)
    assert clock.waits == pytest.approx([10.0, 25.0, 10.0])


def test_all_waits_of_a_call_together_are_bounded(serve, task):
    clock = Clock()
    server = serve(completion("fine"), failure(429, **{"Retry-After": "9999"}))
    engineer = EndpointEngineer(
        server.url,
        "m",
        retries=4,
        longest_wait=30.0,
        requests_per_minute=2.0,
        sleep=clock.sleep,
        clock=clock,
    )
    engineer.propose(task)
    assert clock.waits == []
    with pytest.raises(EngineerError, match="gave up after 5 requests"):
        engineer.propose(task)
    assert clock.waits == pytest.approx([30.0] * 5)


def test_more_calls_at_once_than_the_rate_allows_fail_instead_of_queueing(serve, task):
    waits: list[float] = []
    server = serve(completion("fine"))
    engineer = EndpointEngineer(
        server.url,
        "m",
        longest_wait=30.0,
        requests_per_minute=6.0,
        sleep=waits.append,
        clock=lambda: 5.0,
    )
    for _ in range(4):
        engineer.propose(task)
    assert waits == pytest.approx([10.0, 20.0, 30.0])
    for _ in range(2):
        with pytest.raises(EngineerError, match="6 requests a minute leave no place within 30 s"):
            engineer.propose(task)
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (0.0, "requests_per_minute must be above 0, got 0"),
        (-1.0, "requests_per_minute must be above 0, got -1"),
        (float("nan"), "requests_per_minute must be above 0, got nan"),
        (1.5, "got 1.5, which needs waits of 40 s; longest_wait allows 30 s"),
    ],
)
def test_a_rate_that_cannot_be_kept_is_refused(rate, message):
    with pytest.raises(ValueError, match=message):
        EndpointEngineer("http://127.0.0.1:1/v1", "m", requests_per_minute=rate)


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


def said_raw(answer: str) -> Callable[[Any], None]:
    """A server that is none: it says a text and hangs up."""

    def say(handler: Any) -> None:
        handler.wfile.write(answer.encode())
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_WR)

    return say


@pytest.mark.parametrize(
    "reply",
    [
        said_raw(f"Bearer {KEY}\r\n\r\n"),
        said_raw(f"HTTP/1.1 200 OK\r\nno header {KEY}\r\n\r\n"),
        failure(401, json.dumps({"error": f"{KEY} is wrong"}).replace("sk-", r"\u0073k-")),
    ],
)
def test_the_key_is_not_in_an_error_that_spells_it_in_other_ways(serve, ask, monkeypatch, reply):
    monkeypatch.setenv("LAKE_KEY", KEY)
    with pytest.raises(EngineerError) as caught:
        ask(serve(reply), api_key_env="LAKE_KEY")
    assert KEY[3:] not in str(caught.value)
    assert "(the key)" in str(caught.value)


def test_the_key_is_cut_out_of_an_answer_that_spells_it_in_escapes(serve, ask, monkeypatch):
    monkeypatch.setenv("LAKE_KEY", KEY)
    status, headers, body = completion(f"I know {KEY}.")
    server = serve((status, headers, body.replace(b"sk-", rb"\u0073k-")))
    assert ask(server, api_key_env="LAKE_KEY").text == "I know (the key)."


@pytest.mark.parametrize("key", ["token", "e"])
def test_a_key_that_is_part_of_the_protocols_words_breaks_no_answer(serve, ask, monkeypatch, key):
    monkeypatch.setenv("LAKE_KEY", key)
    server = serve(completion("3: 0.5", usage={"completion_tokens": 7}))
    proposal = ask(server, api_key_env="LAKE_KEY")
    assert (proposal.text, proposal.tokens) == ("3: 0.5", 7)


def test_no_frame_of_a_traceback_shows_the_key(serve, ask, monkeypatch):
    monkeypatch.setenv("LAKE_KEY", KEY)
    with pytest.raises(EngineerError) as caught:
        ask(serve(failure(401)), api_key_env="LAKE_KEY")
    shown = "".join(
        traceback.TracebackException.from_exception(caught.value, capture_locals=True).format()
    )
    assert "HTTP 401" in shown
    assert KEY not in shown


def test_a_redirect_does_not_carry_the_key_to_another_host(serve, ask, monkeypatch):
    monkeypatch.setenv("LAKE_KEY", KEY)
    thief = serve(completion("mine"))
    server = serve(failure(307, "", Location=f"{thief.url}/chat/completions"))
    with pytest.raises(EngineerError, match="HTTP 307"):
        ask(server, api_key_env="LAKE_KEY")
    assert thief.requests == []


def test_the_key_itself_in_place_of_its_variables_name_is_refused_unsaid():
    with pytest.raises(ValueError, match="must be the name of an environment variable") as caught:
        EndpointEngineer("http://127.0.0.1:1/v1", "m", api_key_env=KEY)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://user:pa?ssword@127.0.0.1/v1", "http://127.0.0.1:1/v1/s3cret-ssword#ssword"]
)
def test_only_the_host_of_an_address_is_said(ask, monkeypatch, url):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(EngineerError) as caught:
        ask(url, retries=0)
    assert "ssword" not in str(caught.value)
    assert "pa" not in str(caught.value).split(":")[0]
    assert "ssword" not in repr(EndpointEngineer(url, "m"))


def test_a_query_stays_at_the_end_of_the_address(serve, ask):
    server = serve(completion("fine"))
    ask(f"{server.url}/?api-version=2")
    assert server.path == "/v1/chat/completions?api-version=2"


def test_a_compressed_body_is_not_blown_up(serve, ask):
    body = gzip.compress(b" " * 50_000_000)
    server = serve((200, {"Content-Encoding": "gzip"}, body), completion("fine"))
    tracemalloc.start()
    with pytest.raises(EngineerError, match="encoded response, which was not asked for"):
        ask(server)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
    [(headers, _)] = server.requests
    assert headers["Accept-Encoding"] == "identity"


def test_a_busy_server_is_asked_again_also_if_its_excuse_is_compressed(serve, ask):
    busy = (503, {"Content-Encoding": "gzip"}, gzip.compress(b"busy"))
    assert ask(serve(busy, completion("fine"))).text == "fine"


@pytest.mark.parametrize(
    "tokens", [10**4000, -1, 1.5, True, "many", None], ids=lambda tokens: repr(tokens)[:6]
)
def test_where_the_tokens_cannot_be_known_all_that_were_allowed_count(serve, ask, tokens):
    server = serve(completion("fine", usage={"completion_tokens": tokens}))
    assert ask(server, max_tokens=300).tokens == 300


def test_an_endpoint_is_allowed_what_is_left_of_the_budget(serve, task):
    server = serve(completion("{}"), completion("{}"), completion("{}"))
    engineer = EndpointEngineer(server.url, "m", max_tokens=300, note_tokens=40)
    engineer.propose(replace(task, budget=Budget(engineer_tokens=9)))
    engineer.propose(replace(task, budget=Budget(engineer_tokens=9000)))
    engineer.write("sum up", seed=0, max_tokens=8)
    assert [payload["max_tokens"] for _, payload in server.requests] == [9, 300, 8]


def hang(handler: Any) -> None:
    """Longer than anybody waits."""
    time.sleep(1.0)


def test_tokens_of_requests_that_time_out_are_counted_as_allowed(serve, task):
    server = serve(hang, completion("{}", usage={"completion_tokens": 5}))
    engineer = EndpointEngineer(server.url, "m", max_tokens=300, timeout=0.3, backoff=0.001)
    assert engineer.propose(task).tokens == 305


def test_no_more_is_asked_for_once_timeouts_may_have_spent_the_budget(serve, task):
    server = serve(hang, hang, hang, hang)
    engineer = EndpointEngineer(server.url, "m", max_tokens=300, timeout=0.3, backoff=0.001)
    with pytest.raises(EngineerError, match="the budget of tokens is spent") as caught:
        engineer.propose(replace(task, budget=Budget(engineer_tokens=400)))
    assert caught.value.spent.engineer_tokens == 400
    assert [payload["max_tokens"] for _, payload in server.requests] == [300, 100]


@pytest.mark.parametrize(("usage", "counted"), [({"completion_tokens": 4096}, 4096), (None, 300)])
def test_tokens_of_an_answer_without_text_are_counted(serve, ask, usage, counted):
    """As of a model that spent all it was allowed on thinking."""
    body = {"choices": [{"message": {"content": None}}], "usage": usage}
    with pytest.raises(EngineerError, match="no chat completion with text") as caught:
        ask(serve((200, {}, json.dumps(body).encode())), max_tokens=300)
    assert caught.value.spent.engineer_tokens == counted


def test_a_proxy_that_cannot_be_used_fails_the_attempt(ask, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "socksio", None)
    with pytest.raises(EngineerError, match="ImportError"):
        ask("http://192.0.2.1/v1")


def test_the_server_may_name_the_time_at_which_to_come_again(serve, ask):
    waits: list[float] = []
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=12), usegmt=True)
    ask(
        serve(failure(429, **{"Retry-After": at}), completion("fine")),
        sleep=waits.append,
    )
    [wait] = waits
    assert 5.0 < wait <= 12.0


def test_notes_may_have_a_limit_of_their_own(serve, task):
    server = serve(completion("fine"))
    engineer = EndpointEngineer(server.url, "m", max_tokens=300, note_tokens=40)
    engineer.propose(task)
    engineer.write("sum up", seed=0)
    assert [payload["max_tokens"] for _, payload in server.requests] == [300, 40]


def test_a_generator_gets_the_context_the_schema_the_seed_and_what_is_left(task):
    def generate(
        prompt: str, schema: dict[str, Any] | None, seed: int, most: int | None
    ) -> Generated:
        return Generated(f"{prompt} {schema['type'] if schema else 'free'} {seed} {most}", 4)

    engineer = GeneratorEngineer(generate)
    proposal = engineer.propose(task)
    assert (proposal.text, proposal.tokens) == ("the context object 11 None", 4)
    bounded = replace(task, budget=Budget(engineer_tokens=9))
    assert engineer.propose(bounded).text == "the context object 11 9"
    assert engineer.write("notes", seed=5).text == "notes free 5 None"
    assert engineer.write("notes", seed=5, max_tokens=3).text == "notes free 5 3"


def nothing(prompt: str, schema: object, seed: int, most: int | None) -> Generated:
    return Generated("", 0)


@pytest.mark.parametrize("name", ["checkpoint", "stale", "base", "some/model"])
def test_generators_differ_by_name(name):
    assert GeneratorEngineer(nothing, name=name).name == name


def test_what_a_generator_raises_is_passed_on(task):
    def broken(prompt: str, schema: object, seed: int, most: int | None) -> Generated:
        raise EngineerError("out of memory")

    with pytest.raises(EngineerError, match="out of memory"):
        GeneratorEngineer(broken).propose(task)


def test_the_rule_answers_from_the_view(task, view):
    expected = next_configuration(view.evidence, view.current, view.domain)
    proposal = RuleEngineer().propose(task)
    assert (proposal.text, proposal.tokens) == (answer_text(expected), 0)


def test_models_write_notes_and_the_rule_does_not():
    generator = GeneratorEngineer(nothing)
    endpoint = EndpointEngineer("http://127.0.0.1:1/v1", "m")
    assert isinstance(generator, Writer)
    assert isinstance(endpoint, Writer)
    assert not isinstance(RuleEngineer(), Writer)
