"""A model's server that dies, hangs or sends garbage fails the attempt and is stopped."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engineer import EngineerError
from engineer.engineers.language_model import GeneratedText, TextRequest
from tests.paths import TINY
from training.policy.tokenizer import train_tokenizer
from training.sampling import model_server, server_process
from training.sampling.model_server import ModelServer
from training.sampling.server_process import COMMAND
from training.schema import EngineerConfig, SamplingConfig, load

SERVER_SCRIPT = """\
import json, os, signal, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
child = subprocess.Popen(["sleep", "300"])
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}")
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.respond(200, "")
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply(self, request)
    def respond(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())
    def complete(self, text):
        choice = {"message": {"content": text}} if "chat" in self.path else {"text": text}
        self.respond(200, json.dumps({"choices": [choice], "usage": {"completion_tokens": 3}}))
def die():
    print("MemoryError: no more", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
def serve():
    HTTPServer(("127.0.0.1", int(sys.argv[3])), Handler).serve_forever()
"""
ECHO_STEPS = "def reply(http, body): http.complete(http.path + ' é ' + json.dumps(body))\nserve()"


class FakeServer:
    """Takes the place of the process that loads a model."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pid_file = folder / "pids"
        self._monkeypatch = monkeypatch

    def set_steps(self, steps: str) -> None:
        self._pid_file.unlink(missing_ok=True)
        command = (sys.executable, "-c", SERVER_SCRIPT + steps, str(self._pid_file))
        self._monkeypatch.setattr(server_process, "COMMAND", command)

    @property
    def pids(self) -> list[int]:
        """Its process and that process's child, once they run."""
        return [int(pid) for pid in self._pid_file.read_text().split()]

    @property
    def is_started(self) -> bool:
        return self._pid_file.exists() and len(self._pid_file.read_text().split()) == 2

    @property
    def is_alive(self) -> bool:
        """Whether any of them still runs after a moment, which the system may take."""
        stat_files = [Path(f"/proc/{pid}/stat") for pid in self.pids]
        for _ in range(50):
            if not any(file.exists() and file.read_text().split()[2] != "Z" for file in stat_files):
                return False
            time.sleep(0.1)
        return True


@pytest.fixture
def fake_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    monkeypatch.setattr(server_process, "_TERMINATION_SECONDS", 0.5)
    return FakeServer(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    train_tokenizer(["Agent 0: UP"], 300).save_pretrained(folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 2]}')
    return str(folder)


def open_server(model: str, timeout_seconds: float = 60) -> ModelServer:
    engineer_config = EngineerConfig(kind="model", model=model, timeout_seconds=timeout_seconds)
    return ModelServer(load(TINY).sampling, engineer_config)


@pytest.fixture
def server(model: str) -> Iterator[ModelServer]:
    with open_server(model) as server:
        yield server


@pytest.mark.parametrize("chat", [True, False])
def test_one_server_answers_all_requests(
    chat: bool, fake_server: FakeServer, server: ModelServer, model: str
) -> None:
    fake_server.set_steps(ECHO_STEPS)

    def ask(request: TextRequest) -> dict[str, Any]:
        answer = server.ask(model, request, chat=chat)
        assert answer.tokens == 3
        path, _, reply = answer.text.partition(" é ")
        assert path == "/v1/completions"
        return json.loads(reply)

    request = TextRequest("# board\n", form={"type": "object"})
    reply = ask(request)
    prompt = "<|im_start|># board\n<|im_end|><|im_start|>" if chat else "# board\n"
    assert (reply["prompt"], reply["add_special_tokens"]) == (prompt, not chat)
    assert (reply["stop_token_ids"], reply["skip_special_tokens"]) == ([0, 2], True)
    assert reply["structured_outputs"] == {"json": {"type": "object"}}
    pids = fake_server.pids
    assert ask(request) == reply
    assert ask(replace(request, form="n3 [-+=]"))["structured_outputs"] == {"regex": "n3 [-+=]"}
    assert "structured_outputs" not in ask(replace(request, form=None))
    continued_reply = ask(replace(request, reasoning="<think>a", max_tokens=9))
    assert continued_reply["prompt"] == f"{prompt}<think>a\n</think>\n\nConfiguration:\n"
    assert continued_reply["max_tokens"] == 9
    answer_text = server.ask(model, TextRequest("# board\n<think>\n"), chat=False).text
    assert answer_text.startswith("<think>\n/v1/completions")
    assert fake_server.pids == pids
    server.close()
    assert not fake_server.is_alive


@pytest.mark.parametrize("style", ["full", "compact"])
def test_ask_sends_compact_contexts_without_chat_template(
    style: str, fake_server: FakeServer, model: str
) -> None:
    fake_server.set_steps(ECHO_STEPS)
    engineer_config = EngineerConfig(kind="model", model=model, style=style, blocks=["history"])
    with ModelServer(load(TINY).sampling, engineer_config) as server:
        body = json.loads(server.ask(model, TextRequest("# board\n")).text.partition(" é ")[2])
    assert body["prompt"].startswith("<|im_start|>") == (style == "full")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("die()", "exit status -9: MemoryError: no more"),
        ("sys.exit(3)", "exit status 3: no message"),
        ("def reply(http, body): die()\nserve()", "exit status -9: MemoryError: no more"),
        ("def reply(http, body): http.respond(400, 'too long')\nserve()", "HTTP 400"),
        pytest.param("time.sleep(300)", "is not ready within 15 s", marks=pytest.mark.slow),
        ("def reply(http, body): time.sleep(300)\nserve()", "no answer within 1 s"),
    ],
)
def test_failed_server_is_replaced_at_the_next_request(
    steps: str, message: str, fake_server: FakeServer, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_server.set_steps(steps)
    # A server of tests starts within seconds, and a machine that does other things may take more.
    monkeypatch.setattr(model_server, "LOAD_SECONDS", 15.0)
    with open_server(model, timeout_seconds=1) as server:
        with pytest.raises(EngineerError) as error_info:
            server.ask(model, TextRequest("# board\n"))
        assert str(error_info.value).startswith(f"{model}: ")
        assert message in str(error_info.value)
        assert error_info.value.spent.engineer_tokens == (128 if "reply" in steps else 0)
        assert not fake_server.is_alive
        fake_server.set_steps("def reply(http, body): http.complete('UP')\nserve()")
        assert server.ask(model, TextRequest("")) == GeneratedText("UP", 3)


def test_interrupt_kills_the_server(
    fake_server: FakeServer, server: ModelServer, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_process, "_TERMINATION_SECONDS", 60)
    fake_server.set_steps("def reply(*_): time.sleep(300)\nserve()")

    def interrupt() -> None:
        while not fake_server.is_started:
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        server.ask(model, TextRequest(""))
    assert not fake_server.is_alive
    assert time.monotonic() - start < 30


def test_server_ends_with_its_parent(model: str) -> None:
    result = subprocess.run(
        [*COMMAND, model, "1", SamplingConfig().model_dump_json()],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == -signal.SIGKILL
