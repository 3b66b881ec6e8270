"""Another model in vLLM, in a process of its own, so that its memory is free again afterwards.

The process, `python -m training.sampling.elsewhere`, reads JSON lines from its standard input,
first what to load and then questions, and writes a JSON line for each to its standard output. It
ends when its input does, and so with whoever started it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, TextIO

from engineer import EngineerError, Spent
from engineer.engineers.generator import Generated
from training.config import EngineerChoice, Sampling
from training.environment import prepare

COMMAND = (sys.executable, "-m", "training.sampling.elsewhere")
"""Begins the process that holds a model."""

_SECONDS_TO_END = 20.0


@dataclass(frozen=True)
class Question:
    """What is asked of a model.

    Attributes:
      text: the prompt.
      chat: wrap it in the tokenizer's chat template; None: if it has one.
      thinking: passed to the template as `enable_thinking`.
      seed: of the completion.
      json_schema: what the answer is held to; None: free text.
      most: tokens that may still be spent; None: as many as the engineer's answers may have.
    """

    text: str
    chat: bool | None = None
    thinking: bool = False
    seed: int = 0
    json_schema: dict[str, Any] | None = None
    most: int | None = None


class OtherModels:
    """Models in vLLM beside the policy: one at a time, kept from one question to the next.

    Use it as a context manager: what is loaded is let go at the end.

    Args:
      settings: of the engines.
      choice: how long an answer may be and how long it may take, `engineer` of a configuration.
    """

    def __init__(self, settings: Sampling, choice: EngineerChoice) -> None:
        self._settings = settings
        self._choice = choice
        self._process: _Process | None = None

    def __enter__(self) -> OtherModels:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def ask(self, model: str, question: Question) -> Generated:
        """One answer of a model, which is loaded unless it is the one that was asked last.

        Args:
          model: hub name or folder.
          question: see `Question`.

        Raises:
          EngineerError: it could not be loaded, or did not answer in time; all the tokens that it
            was allowed count as spent then.
        """
        if self._process is None or self._process.model != model:
            self.close()
            self._process = _Process(model, self._settings, self._choice.load_seconds)
        choice = self._choice
        most = choice.most_tokens(question.json_schema is not None, question.most)
        try:
            return self._process.answer(
                {**vars(question), "temperature": choice.temperature, "max_tokens": most},
                choice.timeout_seconds,
            )
        except BaseException as error:
            # It may still be at this answer when the next question comes, or an interrupt does.
            self._process.kill()
            self._process = None
            if isinstance(error, EngineerError):
                raise EngineerError(str(error), Spent(engineer_tokens=most)) from error
            raise

    def close(self) -> None:
        """Let go of what is loaded."""
        if self._process is not None:
            self._process.end()
            self._process = None


class _Process:
    """A model that is loaded."""

    def __init__(self, model: str, settings: Sampling, seconds: float) -> None:
        self.model = model
        self._log: IO[str] = tempfile.TemporaryFile(  # noqa: SIM115 (closed by `end`)
            "w+", encoding="utf-8", errors="replace"
        )
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # vLLM may start others, which have to end with it
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        try:
            threading.Thread(target=self._read, daemon=True).start()
            self._ask(
                {"model": model, "settings": settings.model_dump(mode="json")},
                seconds,
                f"is not loaded within engineer.load_seconds = {seconds:g}",
            )
        except BaseException:
            self.kill()
            raise

    def answer(self, request: dict[str, Any], seconds: float) -> Generated:
        """Ask, and wait for the answer."""
        late = f"no answer within engineer.timeout_seconds = {seconds:g}"
        found = self._ask(request, seconds, late)
        return Generated(str(found["answer"]), int(found["tokens"]))

    def end(self) -> None:
        """Let the process end by itself."""
        try:
            with suppress(OSError):
                self._stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_SECONDS_TO_END)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    @property
    def _stdin(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _ask(self, request: dict[str, Any], seconds: float, late: str) -> dict[str, Any]:
        try:
            self._stdin.write(json.dumps(request) + "\n")
            self._stdin.flush()
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise EngineerError(f"{self.model}: {late}") from None
        except OSError:
            line = ""
        found = _record(line)
        if found is None:
            raise EngineerError(f"{self.model}: {self._end_of_it()}")
        return found

    def _end_of_it(self) -> str:
        """What became of a process that broke off, and the last that it said of it."""
        try:
            what = f"exit status {self._process.wait(_SECONDS_TO_END)}"
        except subprocess.TimeoutExpired:
            what = "broke off, but has not ended"
        self._log.seek(0)
        problem = self._log.read().strip().splitlines()[-1:] or ["no message"]
        return f"{what}: {problem[0]}"


def _record(line: str) -> dict[str, Any] | None:
    """What a line says; None if it is no whole line with a JSON object, as when a kill cut it."""
    if not line.endswith("\n"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def main() -> int:
    """Load what the first line names, then answer line by line."""
    # What libraries print must not come between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    prepare()
    from training.errors import UserError

    try:
        _serve(sys.stdin, answers)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _serve(questions: TextIO, answers: TextIO) -> None:
    from transformers import AutoTokenizer

    from training.language.prompts import chat_messages
    from training.model import huggingface
    from training.sampling.vllm_sampler import VllmSampler

    def say(record: dict[str, Any]) -> None:
        answers.write(json.dumps(record) + "\n")
        answers.flush()

    wanted = json.loads(questions.readline())
    folder = huggingface.resolve(wanted["model"])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    sampler = VllmSampler(folder, Sampling(**wanted["settings"]), seed=0)
    say({"loaded": wanted["model"]})
    for line in questions:
        asked = json.loads(line)
        text = asked["text"]
        if tokenizer.chat_template if asked["chat"] is None else asked["chat"]:
            text = tokenizer.apply_chat_template(
                chat_messages(text),
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=asked["thinking"],
            )
        ((completion,),) = sampler.sample(
            [tokenizer.encode(text, add_special_tokens=False)],
            n=1,
            temperature=asked["temperature"],
            max_tokens=asked["max_tokens"],
            stop_token_ids=[tokenizer.eos_token_id],
            seed=asked["seed"],
            json_schema=asked["json_schema"],
        )
        tokens = list(completion.token_ids)
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        say({"answer": text, "tokens": len(tokens)})


if __name__ == "__main__":
    sys.exit(main())
