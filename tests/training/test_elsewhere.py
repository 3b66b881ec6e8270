"""A process that holds a model may die or hang in any way: the attempt fails, and it is ended."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engineer import EngineerError
from engineer.engineers.generator import Generated
from training.config import EngineerChoice, load
from training.sampling import elsewhere
from training.sampling.elsewhere import OtherModels, Question

TINY = Path(__file__).with_name("tiny.yaml")
CHILD = """\
import json, os, signal, sys, time
open(sys.argv[1], "w").write(str(os.getpid()))
def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()
def die():
    sys.stderr.write("out of memory\\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
def close():
    sys.stderr.write("not listening\\n")
    sys.stderr.flush()
    os.close(1)
def ready():
    sys.stdin.readline()
    say('{"loaded": "m"}\\n')
    sys.stdin.readline()
"""


class Child:
    """Stands in for the process that loads a model; it writes down its process id first."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pid_file = folder / "pid"
        self._monkeypatch = monkeypatch

    def does(self, steps: str) -> None:
        command = (sys.executable, "-c", CHILD + steps, str(self._pid_file))
        self._monkeypatch.setattr(elsewhere, "COMMAND", command)

    @property
    def pid(self) -> int | None:
        text = self._pid_file.read_text() if self._pid_file.exists() else ""
        return int(text) if text else None

    @property
    def alive(self) -> bool:
        assert self.pid is not None, "it was never started"
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Child:
    monkeypatch.setattr(elsewhere, "_SECONDS_TO_END", 0.5)
    return Child(tmp_path, monkeypatch)


@pytest.fixture
def models() -> Iterator[OtherModels]:
    choice = EngineerChoice(kind="model", model="m", load_seconds=60, timeout_seconds=60)
    with OtherModels(load(TINY).sampling, choice) as models:
        yield models


def test_an_answer_comes_back(child: Child, models: OtherModels) -> None:
    steps = "ready(); say(json.dumps({'answer': 'é', 'tokens': 3}) + '\\n'); sys.stdin.read()"
    child.does(steps)
    assert models.ask("m", Question("# board\n")) == Generated("é", 3)
    assert child.alive
    models.close()
    assert not child.alive


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        # killed for memory in the middle of a line, or before the first
        ('ready(); say(\'{"answer": "Agent 0: U\'); die()', "exit status -9: out of memory"),
        ('ready(); say(\'{"answer": "whole"}\'); die()', "exit status -9: out of memory"),
        ("say('{\"lo'); die()", "exit status -9: out of memory"),
        ("ready(); die()", "exit status -9: out of memory"),
        # no JSON object
        ("ready(); say('[1]\\n'); sys.exit(3)", "exit status 3: no message"),
        ("ready(); say('\"answer\"\\n'); sys.exit(3)", "exit status 3: no message"),
        ("ready(); say('{]\\n'); sys.exit(3)", "exit status 3: no message"),
        ("ready(); say('\\n'); sys.exit(3)", "exit status 3: no message"),
        ("ready(); say('[' * 100_000 + '\\n'); sys.exit(3)", "exit status 3: no message"),
        ("ready(); os.write(1, b'\\xff\\n'); sys.exit(3)", "exit status 3: no message"),
        # it lives on
        ("ready(); close(); time.sleep(300)", "broke off, but has not ended: not listening"),
        ("close(); time.sleep(300)", "broke off, but has not ended: not listening"),
        ("ready(); say('{]\\n'); time.sleep(300)", "broke off, but has not ended: no message"),
    ],
)
def test_a_process_that_breaks_off_fails_the_attempt_and_is_ended(
    steps: str, words: str, child: Child, models: OtherModels
) -> None:
    child.does(steps)
    began = time.monotonic()
    with pytest.raises(EngineerError) as caught:
        models.ask("m", Question("# board\n"))
    assert str(caught.value) == f"m: {words}"
    assert not child.alive
    assert time.monotonic() - began < 30


def test_after_a_process_broke_off_the_next_question_starts_another(
    child: Child, models: OtherModels
) -> None:
    child.does('ready(); say(\'{"answer": "U\'); die()')
    with pytest.raises(EngineerError):
        models.ask("m", Question(""))
    child.does('ready(); say(\'{"answer": "UP", "tokens": 1}\\n\'); sys.stdin.read()')
    assert models.ask("m", Question("")).text == "UP"


@pytest.mark.parametrize("steps", ["time.sleep(300)", "ready(); time.sleep(300)"])
def test_an_interrupt_ends_the_process_at_once(
    steps: str, child: Child, models: OtherModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "_SECONDS_TO_END", 60)
    child.does(steps)

    def interrupt() -> None:
        while child.pid is None:
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        models.ask("m", Question(""))
    assert not child.alive
    assert time.monotonic() - began < 30
