import gzip
import json
import socket
import sys
import threading
import time
import traceback
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from engineer import EngineerError, GeneratedText
from engineer.engineers.chat_client import ChatClient
from engineer.engineers.endpoint import Pace
from tests.engineer.engineers.conftest import Server, completion, said

KEY = "sk-very-secret-0123456789"
LOCAL = "http://127.0.0.1:1/v1"


@pytest.fixture(autouse=True)
def waits(monkeypatch) -> list[float]:
    """The waits between requests, which take no time."""
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    return waits


def ask(server: Server | str, budget: int | None = None, **options: Any) -> GeneratedText:
    url = server if isinstance(server, str) else server.url
    client = ChatClient(url, "some-model", **{"timeout": 5.0, "retries": 2} | options)
    return client.complete("the prompt", max_tokens=300, budget=budget)


def failure(server: Server | str, match: str, **options: Any) -> EngineerError:
    with pytest.raises(EngineerError, match=match) as caught:
        ask(server, **options)
    return caught.value


@pytest.fixture
def with_key(monkeypatch) -> dict[str, str]:
    monkeypatch.setenv("LAKE_KEY", KEY)
    return {"api_key_env": "LAKE_KEY"}


def test_server_is_asked_as_its_protocol_says(serve, with_key, monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "somebody else's")
    server = serve(completion("an answer", usage={"completion_tokens": 77}))
    client = ChatClient(server.url, "some-model", **with_key)
    answer = client.complete("the prompt", max_tokens=300, fields={"temperature": 0.5, "seed": 7})
    assert answer == GeneratedText("an answer", 77)
    [(headers, body)] = server.requests
    assert server.paths == ["/v1/chat/completions"]
    assert headers.pop("authorization") == f"Bearer {KEY}"
    assert body == {
        "model": "some-model",
        "messages": [{"role": "user", "content": "the prompt"}],
        "max_tokens": 300,
        "temperature": 0.5,
        "seed": 7,
    }
    # Nothing else is told, neither of this machine nor of its account.
    usual = "accept accept-encoding connection content-length content-type host user-agent"
    assert set(headers) <= set(usual.split())


def test_prompt_can_be_continued_as_it_is(serve):
    reply = {"choices": [{"text": "b c"}], "usage": {"completion_tokens": 2}}
    server = serve(said(200, json.dumps(reply)))
    client = ChatClient(server.url, "some-model")
    assert client.complete("a", max_tokens=2, chat=False) == GeneratedText("b c", 2)
    assert server.paths == ["/v1/completions"]
    assert server.asked == [{"model": "some-model", "prompt": "a", "max_tokens": 2}]


def test_no_key_is_sent_without_one_and_a_query_stays_at_the_end(serve, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = serve(completion("fine"))
    ask(f"{server.url}/?api-version=2")
    assert server.paths == ["/v1/chat/completions?api-version=2"]
    assert "authorization" not in server.requests[0][0]


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_busy_server_is_asked_again(serve, status):
    excuse = gzip.compress(b"busy")
    server = serve(said(status), (status, {"Content-Encoding": "gzip"}, excuse), completion("fine"))
    assert ask(server).text == "fine"
    assert len(server.requests) == 3


def test_waits_grow_and_follow_the_server(serve, waits):
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    server = serve(
        said(503),
        said(503),
        said(429, **{"Retry-After": "7"}),
        said(429, **{"Retry-After": soon}),
        completion("fine"),
    )
    assert ask(server, retries=4).text == "fine"
    first, second, *told = waits
    assert 0 < first < second <= 2
    assert told == [7.0, pytest.approx(90, abs=5)]


def test_server_that_wants_to_be_left_alone_for_long_is_left(serve, waits):
    server = serve(said(429, **{"Retry-After": "9999"}))
    failure(server, "HTTP 429")
    assert (len(server.requests), waits) == (1, [])


def test_broken_server_is_given_up_after_the_retries(serve):
    server = serve(said(500, "<h1>oops</h1>"))
    failure(server, r"gave up after 3 requests: HTTP 500 .*oops")
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (said(401, "no such key"), r"HTTP 401 \"no such key\""),
        (said(404, ""), "HTTP 404"),
        (said(301, "", Location="http://127.0.0.1:1/"), "HTTP 301"),
        (said(200, "<html><body>Log in</body></html>"), "no JSON: .*Log in"),
        (said(200, '{"choices": [{"message": {"cont'), "no JSON"),
        (said(200, ""), "no JSON"),
        (said(200, "[" * 50_000), "no JSON"),
        (said(200, "\xff\xfe\x00"), "no JSON"),
        (said(200, '{"choices": []}'), "no completion with text"),
        (said(200, "[1]"), "no completion with text"),
        (completion(None), "no completion with text"),
        (completion([{"type": "text"}]), "no completion with text"),
        (said(200, "x" * 3_000_000), "more than 1048576 bytes"),
    ],
)
def test_response_without_an_answer_fails_at_once_and_says_why(serve, reply, message):
    server = serve(reply)
    error = failure(server, message)
    assert len(server.requests) == 1
    assert "some-model at 127.0.0.1" in str(error)
    assert len(str(error)) < 600


def test_an_answer_whose_tokens_all_went_into_thinking_is_an_empty_one(serve):
    choice = {"message": {"content": None, "reasoning": "hm"}, "finish_reason": "length"}
    reply = {"choices": [choice], "usage": {"completion_tokens": 300}}
    assert ask(serve(said(200, json.dumps(reply)))) == GeneratedText("", 300)


def dripping(first: bytes, drop: bytes) -> Callable[[Any], None]:
    """A server that never finishes what it says."""

    def drip(handler: Any) -> None:
        handler.wfile.write(first)
        for _ in range(400):
            handler.wfile.write(drop)
            handler.wfile.flush()
            if handler.server.dripped.wait(0.05):
                return

    return drip


@pytest.mark.parametrize(
    "reply",
    [
        "hang",
        dripping(b"HTTP/1.1 200 OK\r\n\r\n", b" "),
        dripping(b"HTTP/1.1 200 OK\r\nX-A: ", b"a"),
    ],
    ids=["silent", "body", "headers"],
)
def test_slow_server_is_left_in_time(serve, reply):
    server = serve(reply)
    server.http.dripped = server.stopped
    start = time.monotonic()
    failure(server, r"gave up after 2 requests: no answer within 0\.3 s", timeout=0.3, retries=1)
    assert 0.6 <= time.monotonic() - start < 15


@pytest.mark.parametrize(
    ("replies", "requests", "problem", "tokens"),
    [
        ([said(429, **{"Retry-After": "5"})], 1, "", 0),
        ([said(503), "hang"], 2, r"no answer within 0\.3 s; ", 300),
    ],
    ids=["long waits", "slow answers"],
)
def test_question_ends_in_time_with_all_its_tries_and_waits(
    serve, monkeypatch, replies, requests, problem, tokens
):
    monkeypatch.setattr(time, "sleep", threading.Event().wait)
    assert ChatClient(LOCAL, "m", timeout=120.0, retries=3).total_timeout == 4 * (120 + 30)
    monkeypatch.setattr(ChatClient, "total_timeout", 0.8)
    server = serve(*replies)
    start = time.monotonic()
    error = failure(server, f"{problem}no answer within 0.8 s in all", timeout=0.3, retries=9)
    assert time.monotonic() - start < 15  # what the servers ask for would be 45 s
    assert len(server.requests) == requests
    assert error.spent.engineer_tokens == tokens


def test_connection_that_breaks_is_tried_again(serve):
    def hang_up(handler: Any) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)

    assert ask(serve(hang_up, completion("fine"))).text == "fine"


def test_address_where_nobody_listens_is_said_without_its_secrets(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://user:password@127.0.0.1:{unused.getsockname()[1]}/v1?token=abc"
        error = failure(url, "gave up after 3 requests: ConnectError")
    assert error.spent.engineer_tokens == 0
    assert "password" not in str(error)
    assert "abc" not in str(error)


@pytest.mark.parametrize(
    "url", ["http://user:pa?ssword@127.0.0.1/v1", "http://127.0.0.1:1/v1/s3cret-ssword#ssword"]
)
def test_only_the_host_of_an_address_is_said(monkeypatch, url):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    error = failure(url, "model some-model", retries=0)
    assert "ssword" not in str(error)
    assert "pa" not in str(error).split(":")[0]
    assert "ssword" not in repr(ChatClient(url, "m"))


@pytest.mark.parametrize("url", ["127.0.0.1/v1", "ftp://127.0.0.1/v1", "http://[::1", ""])
def test_address_that_is_none_is_an_engineers_error(url):
    failure(url, "base_url is no http or https URL")


@pytest.mark.parametrize("value", ["", "   ", "two\nlines", "schlüssel"])
def test_unusable_key_is_said_by_the_name_of_its_variable(monkeypatch, value):
    monkeypatch.setenv("LAKE_KEY", value)
    failure(LOCAL, "environment variable LAKE_KEY", api_key_env="LAKE_KEY")


def test_key_in_place_of_its_variables_name_is_refused_unsaid():
    with pytest.raises(ValueError, match="must be the name of an environment variable") as caught:
        ChatClient(LOCAL, "m", api_key_env=KEY)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("status", [200, 401, 500])
@pytest.mark.parametrize("pad", [0, 85])
def test_key_is_never_shown_even_if_the_server_says_it(serve, with_key, caplog, status, pad):
    caplog.set_level(0)
    server = serve(said(status, "x" * pad + f" your key {KEY} is wrong" + "y" * 500))
    error = failure(server, "your key", **with_key)
    frames = traceback.TracebackException.from_exception(error, capture_locals=True)
    for shown in (str(error), caplog.text, "".join(frames.format())):
        assert KEY[:8] not in shown
    assert KEY not in repr(ChatClient(server.url, "m", **with_key))


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
        said(401, json.dumps({"error": f"{KEY} is wrong"}).replace("sk-", r"\u0073k-")),
    ],
)
def test_key_is_cut_out_of_an_error_that_spells_it_in_other_ways(serve, with_key, reply):
    error = failure(serve(reply), r"\(the key\)", **with_key)
    assert KEY[3:] not in str(error)


@pytest.mark.parametrize(
    "part", [KEY[:8] + "*****" + KEY[-4:], KEY[:-1], KEY[1:], KEY[9:14], f"x{KEY[4:9]}{KEY[12:17]}"]
)
@pytest.mark.parametrize("status", [200, 401])
def test_parts_of_the_key_are_cut_out_of_an_error(serve, with_key, part, status):
    server = serve(said(status, f"your key {part} is wrong"))
    error = failure(server, r"your key x?\(part of the key\).* is wrong", **with_key)
    parts = [KEY[at : at + 4] for at in range(len(KEY) - 3)]
    assert [one for one in parts if one in str(error)] == []


def test_parts_of_the_key_are_cut_out_of_an_answer_if_they_are_long(serve, with_key):
    server = serve(completion(f"{KEY[:7]}, {KEY[:8]} and {KEY[3:20]}."))
    assert ask(server, **with_key).text == (f"{KEY[:7]}, (part of the key) and (part of the key).")


def test_key_is_cut_out_of_an_answer_that_spells_it_in_escapes(serve, with_key):
    status, headers, body = completion(f"I know {KEY}.")
    server = serve((status, headers, body.replace(b"sk-", rb"\u0073k-")))
    assert ask(server, **with_key).text == "I know (the key)."


@pytest.mark.parametrize("key", ["token", "e"])
def test_key_that_is_part_of_the_protocols_words_breaks_no_answer(serve, monkeypatch, key):
    monkeypatch.setenv("LAKE_KEY", key)
    server = serve(completion("3: 0.5", usage={"completion_tokens": 7}))
    assert ask(server, api_key_env="LAKE_KEY") == GeneratedText("3: 0.5", 7)


def test_redirect_does_not_carry_the_key_to_another_host(serve, with_key):
    thief = serve(completion("mine"))
    server = serve(said(307, "", Location=f"{thief.url}/chat/completions"))
    failure(server, "HTTP 307", **with_key)
    assert thief.requests == []


def test_compressed_body_is_not_blown_up(serve):
    body = gzip.compress(b" " * 50_000_000)
    server = serve((200, {"Content-Encoding": "gzip"}, body))
    tracemalloc.start()
    failure(server, "encoded response, which was not asked for")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
    [(headers, _)] = server.requests
    assert headers["accept-encoding"] == "identity"


def test_proxy_that_cannot_be_used_is_said(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "socksio", None)
    failure("http://192.0.2.1/v1", "ImportError")


@pytest.mark.parametrize(
    "tokens", [10**4000, -1, 1.5, True, "many", None], ids=lambda tokens: repr(tokens)[:6]
)
def test_all_tokens_that_were_allowed_count_where_they_cannot_be_known(serve, tokens):
    server = serve(completion("fine", usage={"completion_tokens": tokens}))
    assert ask(server).tokens == 300


@pytest.mark.parametrize(("usage", "counted"), [({"completion_tokens": 4096}, 4096), (None, 300)])
def test_tokens_of_an_answer_without_text_count(serve, usage, counted):
    # As of a model that spent all it was allowed on thinking.
    error = failure(serve(completion(None, usage=usage)), "no completion with text")
    assert error.spent.engineer_tokens == counted


def test_tokens_of_requests_that_time_out_count_as_allowed(serve):
    server = serve("hang", completion("{}", usage={"completion_tokens": 5}))
    assert ask(server, timeout=0.3).tokens == 305


def test_no_more_is_asked_for_once_timeouts_may_have_spent_the_budget(serve):
    server = serve(said(503), "hang")
    error = failure(server, "no answer .*; the budget of tokens is spent", budget=400, timeout=0.3)
    assert error.spent.engineer_tokens == 300
    assert [body["max_tokens"] for body in server.asked] == [300, 300]


def test_answer_may_be_as_long_as_the_rest_of_the_budget(serve):
    server = serve(completion("{}", usage={"completion_tokens": 9}))
    assert ask(server, budget=9).tokens == 9
    assert server.asked[0]["max_tokens"] == 9
    failure(server, "the budget of tokens is spent", budget=0)
    assert len(server.requests) == 1


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


def test_requests_keep_their_distance_over_calls_and_retries(serve):
    clock = Clock()
    server = serve(completion("fine"), completion("fine"), said(503), completion("fine"))
    pace = Pace(6.0, clock.sleep, clock)
    for passed in (0.0, 0.0, 4.0, 12.0):
        clock.now += passed
        ask(server, pace=pace)
    assert clock.waits == pytest.approx([10.0, 6.0, 10.0])
    assert len(server.requests) == 5


def test_more_calls_at_once_than_the_pace_allows_fail_instead_of_queueing(serve):
    clock_waits: list[float] = []
    server = serve(completion("fine"))
    pace = Pace(6.0, sleep=clock_waits.append, clock=lambda: 5.0)
    for _ in range(4):
        ask(server, pace=pace)
    assert clock_waits == pytest.approx([10.0, 20.0, 30.0])
    for _ in range(2):
        failure(server, "6 requests per minute leave no place within 30 s", pace=pace)
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (0.0, "requests_per_minute must be above 0, got 0"),
        (-1.0, "requests_per_minute must be above 0, got -1"),
        (float("nan"), "requests_per_minute must be above 0, got nan"),
        (1.5, "got 1.5, which needs waits of 40 s; at most 30 s are allowed"),
    ],
)
def test_pace_that_cannot_be_kept_is_refused(rate, message):
    with pytest.raises(ValueError, match=message):
        Pace(rate)
