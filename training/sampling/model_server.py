"""Models other than the policy, each served by vLLM's server (`server_process.py`)."""

from contextlib import AbstractContextManager
from typing import Any

from engineer import Costs, EngineerError
from engineer.engineers.language_model import GeneratedText, TextRequest
from jaxlake.language.thinking import opening_tag
from training.errors import UserError
from training.policy import huggingface
from training.policy.model_check import get_stop_ids
from training.policy.tokenizer import has_special_marks, load_tokenizer, prompt_text
from training.sampling.server_process import NO_TRUNCATION, ServerProcess, wait_until_ready
from training.sampling.vllm_sampler import sampling_seeds
from training.schema import EngineerConfig, SamplingConfig

LOAD_SECONDS = 900.0
"""Timeout for loading weights in seconds, excluding downloads."""


class ModelServer(AbstractContextManager["ModelServer"]):
    """Queries models other than the policy; the last model's server is kept for the next query.

    Use it as a context manager, which stops the server.
    """

    def __init__(self, settings: SamplingConfig, engineer: EngineerConfig) -> None:
        devices = settings.devices and settings.devices[: settings.tensor_parallel_size]
        # Requests are sent one by one, so replicas are useless.
        update = {"data_parallel_size": 1, "devices": devices}
        self._settings, self._engineer = settings.model_copy(update=update), engineer
        self._model = self._folder = ""  # the loaded model
        self._tokenizer: Any = None
        self._stop_ids: tuple[int, ...] = ()
        self._server: ServerProcess | None = None

    def __exit__(self, *exception: object) -> None:
        self.close()

    def ask(self, model: str, request: TextRequest, *, chat: bool | None = None) -> GeneratedText:
        """Return a model's answer; load the model unless it also answered the last request.

        `chat` is whether to apply the chat template of the tokenizer. None applies the template if
        there is one and the context is not compact.

        Raises:
            EngineerError: The model can't be loaded, or did not answer in time. In the latter case
                the maximum number of tokens counts as spent.
        """
        try:
            if self._server is None or self._model != model:
                self.close()
                self._load(model)
            return self._answer(request, chat)
        except BaseException:
            # The server may be broken, or still busy with this answer at the next request.
            if self._server is not None:
                self._server.kill()
                self._server = None
            raise

    def close(self) -> None:
        """Stop the server if it runs."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _load(self, model: str) -> None:
        try:
            folder = huggingface.resolve_model(model)
            self._tokenizer = load_tokenizer(folder)
            self._stop_ids = get_stop_ids(folder, self._tokenizer)
        except (UserError, OSError, ValueError) as error:
            raise EngineerError(f"{model}: {error}") from None
        self._model, self._folder = model, str(folder)
        self._server = ServerProcess(self._folder, self._settings)
        if problem := wait_until_ready(self._server.address, LOAD_SECONDS, self._server):
            raise EngineerError(f"{model}: {problem}")

    def _answer(self, request: TextRequest, chat: bool | None) -> GeneratedText:
        from engineer.engineers.endpoint import ChatClient  # imports openai

        assert self._server is not None
        if chat is None:  # compact contexts are plain in pretraining
            chat = bool(self._tokenizer.chat_template) and self._engineer.style != "compact"
        max_tokens = request.max_tokens or self._engineer.token_limit(request.form is not None)
        try:
            prompt = prompt_text(
                self._tokenizer,
                request.prompt,
                chat=chat,
                thinking=request.thinking,
                reasoning=request.reasoning,
            )
        except UserError as error:
            raise EngineerError(f"{self._model}: {error}") from None
        fields: dict[str, Any] = {
            "temperature": self._engineer.temperature,
            "seed": sampling_seeds(request.seed, 1)[0],
            "stop_token_ids": list(self._stop_ids),
            "skip_special_tokens": not has_special_marks(self._tokenizer),
            # A chat template already contains all special tokens.
            "add_special_tokens": not chat,
            **NO_TRUNCATION,
        }
        if request.form is not None:
            kind = "regex" if isinstance(request.form, str) else "json"
            fields["structured_outputs"] = {kind: request.form}
        client = ChatClient(
            f"{self._server.address}/v1",
            self._folder,
            timeout=self._engineer.timeout_seconds,
            retries=0,
            proxies=False,
        )
        try:
            response = client.complete(prompt, max_tokens=max_tokens, chat=False, fields=fields)
        except EngineerError as error:
            host = self._server.address.removeprefix("http://")
            problem = self._server.get_exit_message() or str(error).partition(f"{host}: ")[2]
            costs = Costs(engineer_tokens=max_tokens)  # upper bound
            raise EngineerError(f"{self._model}: {problem}", costs) from None
        # Text constrained by a form contains only the configuration.
        thinking_tag = opening_tag(prompt) if request.form is None else ""
        return response._replace(text=thinking_tag + response.text)
