"""A model behind a server: requests, retries, and secrets that no message shows."""

import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engineer import (
    Context,
    DesignSettings,
    EngineerError,
    GeneratedText,
    NoteWriter,
    Task,
    run_design,
)
from engineer.engineers.endpoint import MAX_BYTES, ChatClient, EndpointEngineer
from engineer.space import answer_schema, answer_text
from tests.engineer.engineers.conftest import Server, completion, response

KEY = "sk-very-secret-0123456789"
LOCAL_URL = "http://127.0.0.1:1/v1"


@pytest.fixture(autouse=True)
def sleeps(monkeypatch) -> list[float]:
    """Record sleeps instead of sleeping."""
    sleeps: list[float] = []
    monkeypatch.setattr(time, "sleep", sleeps.append)
    return sleeps


@pytest.fixture
def key_options(monkeypatch) -> dict[str, str]:
    monkeypatch.setenv("LAKE_KEY", KEY)
    return {"api_key_env": "LAKE_KEY"}


def complete(server: Server | str, **options: Any) -> GeneratedText:
    url = server if isinstance(server, str) else server.url
    client = ChatClient(url, "some-model", **{"timeout": 5.0, "retries": 2} | options)
    return client.complete("the prompt", max_tokens=300)


def expect_error(server: Server | str, match: str, **options: Any) -> EngineerError:
    with pytest.raises(EngineerError, match=match) as error_info:
        complete(server, **options)
    return error_info.value


def test_complete_follows_the_protocol(serve, key_options):
    server = serve(completion("an answer", usage={"completion_tokens": 77}))
    client = ChatClient(f"{server.url}/?api-version=2", "some-model", **key_options)
    answer = client.complete("the prompt", max_tokens=300, fields={"temperature": 0.5, "seed": 7})
    assert answer == GeneratedText("an answer", 77)
    [(headers, body)] = server.requests
    assert server.paths == ["/v1/chat/completions?api-version=2"]
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "some-model",
        "messages": [{"role": "user", "content": "the prompt"}],
        "max_tokens": 300,
        "temperature": 0.5,
        "seed": 7,
    }


def test_prompt_can_be_continued_as_text(serve, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    reply = {"choices": [{"text": "b c"}], "usage": {"completion_tokens": 2}}
    server = serve(response(200, json.dumps(reply)))
    client = ChatClient(server.url, "some-model")
    assert client.complete("a", max_tokens=2, chat=False) == GeneratedText("b c", 2)
    assert server.paths == ["/v1/completions"]
    assert server.bodies == [{"model": "some-model", "prompt": "a", "max_tokens": 2}]
    assert KEY not in server.requests[0][0]["authorization"]


def close_connection(handler: Any) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("failure", [response(429), response(500), response(503), close_connection])
def test_complete_retries_busy_server(serve, sleeps, failure):
    server = serve(failure, failure, completion("fine"))
    assert complete(server).text == "fine"
    assert len(server.requests) == 3
    assert 0 < sleeps[0] < sleeps[1] <= 2


@pytest.mark.parametrize(
    ("reply", "num_requests", "message"),
    [
        (response(500, "<h1>oops</h1>"), 3, "HTTP 500$"),
        (response(401, '{"error": {"message": "no such key"}}'), 1, "HTTP 401: no such key$"),
        (response(404, ""), 1, "HTTP 404$"),
        (response(307, "", Location="http://127.0.0.1:1/"), 1, "HTTP 307$"),
        (response(200, "<html><body>Log in</body></html>"), 1, "not JSON$"),
        (response(200, '{"choices": [{"message": {"cont'), 1, "not JSON"),
        (response(200, "[" * 50_000), 1, "not JSON"),
        (response(200, "\xff\xfe\x00"), 1, "not JSON"),
        (response(200, '{"choices": []}'), 1, "no completion with text"),
        (response(200, "[1]"), 1, "no completion with text"),
        (completion([{"type": "text"}]), 1, "no completion with text"),
        (response(200, "x" * 3_000_000), 1, f"more than {MAX_BYTES} bytes"),
        (response(500, "x" * 3_000_000), 1, f"more than {MAX_BYTES} bytes"),
    ],
)
def test_complete_rejects_response_without_answer(serve, reply, num_requests, message):
    server = serve(reply)
    error = expect_error(server, f"^model some-model at 127.0.0.1.*{message}")
    assert len(server.requests) == num_requests
    assert len(str(error)) < 600


def test_complete_returns_empty_answer_after_only_thinking(serve):
    choice = {"message": {"content": None, "reasoning": "hm"}, "finish_reason": "length"}
    reply = {"choices": [choice], "usage": {"completion_tokens": 300}}
    assert complete(serve(response(200, json.dumps(reply)))) == GeneratedText("", 300, "hm", True)


def send_endlessly(handler: Any) -> None:
    """Send a response that never ends."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(400):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        if handler.server.stop_event.wait(0.05):
            return


@pytest.mark.parametrize("reply", ["hang", send_endlessly])
def test_complete_times_out_on_slow_server(serve, reply):
    server = serve(reply)
    server.http.stop_event = server.stopped
    start = time.monotonic()
    error = expect_error(server, r"no answer within 0\.3 s", timeout=0.3, retries=1)
    assert 0.6 <= time.monotonic() - start < 15
    assert error.spent.engineer_tokens == 300  # the model may have generated them all


def test_unreachable_address_hides_secrets(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as free_socket:
        free_socket.bind(("127.0.0.1", 0))
        url = f"http://user:password@127.0.0.1:{free_socket.getsockname()[1]}/v1?token=abc"
        error = expect_error(url, "ConnectError", retries=0)
    assert error.spent.engineer_tokens == 0
    for secret in ("password", "abc"):
        assert secret not in str(error)
        assert secret not in repr(ChatClient(url, "m"))


@pytest.mark.parametrize("value", ["", "   ", "two\nlines", "schlüssel"])
def test_unusable_key_error_names_its_variable(monkeypatch, value):
    monkeypatch.setenv("LAKE_KEY", value)
    expect_error(LOCAL_URL, "environment variable LAKE_KEY", api_key_env="LAKE_KEY")


def make_raw_response(answer: str) -> Callable[[Any], None]:
    """Return a reply that sends plain text and closes the connection."""

    def send(handler: Any) -> None:
        handler.wfile.write(answer.encode())
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_WR)

    return send


ERROR = json.dumps({"error": {"message": f"{'x' * 85} key {KEY} is wrong {KEY[:9]}***{KEY[-7:]}"}})


@pytest.mark.parametrize(
    "reply",
    [
        response(401, ERROR),
        response(500, ERROR),
        response(401, ERROR.replace("sk-", r"\u0073k-")),
        response(401, ERROR.encode("utf-16").decode("latin-1")),
        response(200, f"your key {KEY} is wrong"),
        make_raw_response(f"Bearer {KEY}\r\n\r\n"),
        make_raw_response(f"HTTP/1.1 200 OK\r\nno header {KEY}\r\n\r\n"),
    ],
)
def test_endpoint_errors_hide_an_echoed_key(serve, key_options, reply):
    error = expect_error(serve(reply), "model some-model", retries=0, **key_options)
    parts = [KEY[i : i + 6] for i in range(len(KEY) - 5)]
    assert [part for part in parts if part in str(error)] == []


def test_complete_removes_key_from_answer(serve, key_options):
    status, headers, body = completion(f"I know {KEY}, {KEY[:5]} and {KEY[3:20]}.")
    server = serve((status, headers, body.replace(b"sk-", rb"\u0073k-", 1)))
    assert complete(server, **key_options).text == f"I know {'*' * 25}, {KEY[:5]} and {'*' * 17}."


def test_redirect_does_not_forward_the_key(serve, key_options):
    other_server = serve(completion("mine"))
    server = serve(response(307, "", Location=f"{other_server.url}/chat/completions"))
    expect_error(server, "HTTP 307", **key_options)
    assert other_server.requests == []


@pytest.mark.parametrize(("usage", "tokens"), [({"completion_tokens": 4096}, 4096), (None, 300)])
def test_complete_counts_tokens_of_empty_answers(serve, usage, tokens):
    error = expect_error(serve(completion(None, usage=usage)), "no completion with text")
    assert error.spent.engineer_tokens == tokens


@pytest.fixture
def task(view) -> Task:
    context = Context("the context", cut=(), tokens=2)
    return Task(context, view, answer_schema(view.domain.space), seed=11, attempt=2)


def test_endpoint_request_has_a_schema(serve, task, bounds, current):
    server = serve(completion(answer_text(current), usage={"completion_tokens": 77}))
    engineer = EndpointEngineer(ChatClient(server.url, "some-model"), temperature=0.3)
    assert isinstance(engineer, NoteWriter)
    proposal = engineer.propose(task)
    assert (proposal.text, proposal.tokens) == (answer_text(current), 77)
    assert proposal.seconds > 0
    assert engineer.name == "some-model"
    [body] = server.bodies
    assert body["messages"] == [{"role": "user", "content": "the context"}]
    assert (body["model"], body["temperature"]) == ("some-model", 0.3)
    assert body["response_format"]["json_schema"]["schema"] == answer_schema(bounds)


def test_reasoning_endpoint_recovers_from_mistakes(serve, view, current):
    thinking_text = "Size 3 is learned. " * 500
    tool_calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]

    def make_reply(text: str | None, finish_reason: str = "stop", **message: object) -> Any:
        message_choice = {"message": {"content": text, **message}, "finish_reason": finish_reason}
        reply = {"choices": [message_choice], "usage": {"completion_tokens": 10}}
        return response(200, json.dumps(reply))

    server = serve(
        make_reply("So I harden it.", reasoning_content=thinking_text),
        make_reply('{"3": {"data_r', "length"),  # cut
        make_reply(None, "length", reasoning_content=thinking_text),  # all thought
        make_reply(None, "tool_calls", tool_calls=tool_calls),
        make_reply(f"<think>\n{thinking_text}", "length"),
        make_reply(answer_text(current)),
    )
    engineer = EndpointEngineer(ChatClient(server.url, "m"), reasoning_tokens=700)
    design = run_design(engineer, view, DesignSettings())
    assert (design.kind, design.spent.engineer_tokens) == ("unchanged", 60)
    assert [attempt.kind for attempt in design.attempts] == ["rejected", "rejected", "unchanged"]
    thinking_block = f"<think>\n{thinking_text}\n</think>\n\n"
    reasonings = [f"{thinking_block}So I harden it.", thinking_block, f"<think>\n{thinking_text}"]
    assert [attempt.reasoning for attempt in design.attempts] == reasonings
    assert [body["max_tokens"] for body in server.bodies] == [700, 4096] * 3
    for reasoning_body, answer_body, reasoning in zip(
        server.bodies[::2], server.bodies[1::2], reasonings, strict=True
    ):
        assert "response_format" not in reasoning_body
        assert answer_body["messages"][:1] == reasoning_body["messages"]
        assert answer_body["messages"][1] == {"role": "assistant", "content": reasoning}
        assert answer_body["response_format"]["type"] == "json_schema"


def test_endpoint_request_has_extra_fields(serve, task):
    server = serve(completion("n3 = = ="))
    engineer = EndpointEngineer(ChatClient(server.url, "m"), request={"top_k": 3})
    engineer.propose(task)
    engineer.write("sum up", seed=1)
    assert [body["top_k"] for body in server.bodies] == [3, 3]


def test_endpoint_request_for_notes_has_no_schema(serve, task):
    server = serve(completion("n3 = = ="))
    engineer = EndpointEngineer(ChatClient(server.url, "m"), max_tokens=300, note_tokens=40)
    assert engineer.propose(replace(task, form="n3 [-+=]")).text == "n3 = = ="
    assert engineer.write("sum up", seed=1).text == "n3 = = ="
    assert [body["max_tokens"] for body in server.bodies] == [300, 40]
    for body in server.bodies:
        assert not {"response_format", "structured_outputs", "guided_regex"} & set(body)
