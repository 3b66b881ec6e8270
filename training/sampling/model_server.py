"""Models other than the policy, each behind vLLM's own server (`server_process.py`)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from engineer import EngineerError, Spent
from engineer.engineers.language_model import GeneratedText
from engineer.space import AnswerForm
from training.errors import UserError
from training.policy import huggingface
from training.policy.tokenizer import load_tokenizer
from training.sampling.server_process import (
    NO_TRUNCATION,
    ServerProcess,
    wait_until_ready,
)
from training.sampling.vllm_sampler import sampling_seeds
from training.schema import EngineerChoice, Sampling

LOAD_SECONDS = 900.0
"""The longest wait until weights are loaded, which a download does not count for."""


@dataclass(frozen=True)
class TextQuestion:
    """What is asked of a model."""

    text: str
    chat: bool | None = None  # wrap it in the tokenizer's chat template; None: if there is one
    thinking: bool = False  # passed to the template as `enable_thinking`
    seed: int = 0
    form: AnswerForm | None = None  # what the answer must follow; None: free text


class OtherModels(AbstractContextManager["OtherModels"]):
    """Asks models beside the policy; the server of the last one is kept for the next question.

    Use it as a context manager, which ends the server.
    """

    def __init__(self, settings: Sampling, choice: EngineerChoice) -> None:
        """Remember the settings of the engines and of the answers; nothing is started yet."""
        self._settings, self._choice = settings, choice
        self._model = self._folder = ""  # that the server has loaded
        self._tokenizer: Any = None
        self._server: ServerProcess | None = None

    def __exit__(self, *exception: object) -> None:
        self.close()

    def ask(self, model: str, question: TextQuestion) -> GeneratedText:
        """Let a model (hub name or folder) answer; it is loaded unless it answered last.

        Raises:
            EngineerError: The model could not be loaded, or did not answer in time. All the tokens
                that it was allowed count as spent then.
        """
        try:
            if self._server is None or self._model != model:
                self.close()
                self._load(model)
            return self._answer(question)
        except BaseException:
            # The server may be broken, or still at this answer when the next question comes.
            if self._server is not None:
                self._server.kill()
                self._server = None
            raise

    def close(self) -> None:
        """End the server, if there is one."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _load(self, model: str) -> None:
        try:
            folder = huggingface.resolve(model)
            self._tokenizer = load_tokenizer(folder)
        except (UserError, OSError, ValueError) as error:
            raise EngineerError(f"{model}: {error}") from None
        self._model, self._folder = model, str(folder)
        self._server = ServerProcess(self._folder, self._settings)
        if problem := wait_until_ready(self._server.address, LOAD_SECONDS, self._server):
            raise EngineerError(f"{model}: {problem}")

    def _answer(self, question: TextQuestion) -> GeneratedText:
        from engineer.engineers.endpoint import ChatClient  # imports openai

        assert self._server is not None
        chat = bool(self._tokenizer.chat_template) if question.chat is None else question.chat
        limit = self._choice.token_limit(question.form is not None)
        fields: dict[str, Any] = {
            "temperature": self._choice.temperature,
            "seed": sampling_seeds(question.seed, 1)[0],
            "stop_token_ids": [self._tokenizer.eos_token_id],
            **NO_TRUNCATION,
        }
        if isinstance(question.form, str):
            fields["structured_outputs"] = {"regex": question.form}
        elif question.form is not None:
            schema = {"name": "answer", "schema": question.form}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        if chat:
            fields["chat_template_kwargs"] = {"enable_thinking": question.thinking}
        else:
            fields["add_special_tokens"] = True  # those that the tokenizer puts before any text
        client = ChatClient(
            f"{self._server.address}/v1",
            self._folder,
            timeout=self._choice.timeout_seconds,
            retries=0,
            proxies=False,
        )
        try:
            return client.complete(question.text, max_tokens=limit, chat=chat, fields=fields)
        except EngineerError as error:
            where = self._server.address.removeprefix("http://")
            problem = self._server.end() or str(error).partition(f"{where}: ")[2]
            spent = Spent(engineer_tokens=limit)  # all that the answer could have had
            raise EngineerError(f"{self._model}: {problem}", spent) from None
