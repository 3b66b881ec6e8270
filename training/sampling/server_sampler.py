"""Completions from a local or remote vLLM server that receives the trainer's weights."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from training.errors import UserError
from training.sampling.sampler import Completion, SamplingRequest, Tokens
from training.sampling.server_process import NO_TRUNCATION, ServerProcess
from training.sampling.vllm_sampler import WORKER_EXTENSION, sampling_seeds
from training.sampling.vllm_server import VllmServer
from training.schema import SamplingConfig
from training.weight_transfer.checksums import SyncError
from training.weight_transfer.transport import send_through_folder, transfer_folder

# Request options: return tokens as ids, each with its log-probability.
_TOKEN_OPTIONS = {"logprobs": 0, "return_token_ids": True, "return_tokens_as_token_ids": True}


_START_SECONDS = 600.0


class ServerSampler:
    """A `Sampler` that uses a vLLM server; call `sync` before the first request."""

    def __init__(self, folder: Path, settings: SamplingConfig) -> None:
        """Start a server, or connect to `sampling.server.address`.

        The config.json of `folder` sets tie_word_embeddings to false.

        Raises:
            UserError: The server can't start, can't be reached, or has other settings than the run.
        """
        self._settings = settings
        shared = settings.server.folder
        self._transfer_folder = transfer_folder(folder) if shared is None else Path(shared)
        self._dtype = jnp.dtype(settings.dtype)
        self._version: str | None = None
        self._server = _open_server(folder, settings)
        try:
            self._server.wait_until_ready(_START_SECONDS)
            if self._server.process is None:
                self._server.require_settings(settings)
        except BaseException:
            self._server.close()
            raise

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        """Draw completions; raise a `SyncError` if the server holds other weights."""
        request.require_room(self._settings.max_model_len)
        seeds = sampling_seeds(request.seed, len(request.prompts), request.n)
        options: dict[str, Any] = {
            "n": request.n,
            "temperature": request.temperature,
            "max_tokens": request.max_tokens,
            "stop_token_ids": list(request.stop_token_ids),
            **NO_TRUNCATION,
            "top_p": request.top_p,
            "top_k": request.top_k,
            **_TOKEN_OPTIONS,
        }
        if isinstance(request.form, str):
            options["structured_outputs"] = {"regex": request.form}
        elif request.form is not None:
            options["structured_outputs"] = {"json": json.dumps(request.form)}
        bodies = [
            {"prompt": list(request.prompts[index]), "seed": seeds[index], **options}
            for index in request.prompt_indices
        ]
        return [
            read_completions(response, body["prompt"], request.n)
            for body, response in zip(bodies, self._complete(bodies), strict=True)
        ]

    def score(self, sequences: Sequence[Tokens]) -> list[np.ndarray]:
        """Return log-probabilities under the server's weights; see `Sampler.score`."""
        inputs = [[int(token) for token in sequence] for sequence in sequences if len(sequence) > 1]
        # A sequence may have the maximum length, so its last token is scored as the next token.
        requests = [
            {
                "prompt": sequence[:-1],
                "max_tokens": 1,
                "temperature": 1.0,
                "prompt_logprobs": 0,
                "logprob_token_ids": [sequence[-1]],
                **NO_TRUNCATION,
                **_TOKEN_OPTIONS,
            }
            for sequence in inputs
        ]
        scores = map(read_score, self._complete(requests), inputs)
        return [
            next(scores) if len(sequence) > 1 else np.zeros(len(sequence), np.float32)
            for sequence in sequences
        ]

    def _complete(self, requests: Sequence[dict[str, Any]]) -> list[Any]:
        version = self.weight_version
        answers = self._server.answer(requests)
        self._server.require_version(version)
        return answers

    def sync(self, tensors: Iterable[tuple[str, Any]]) -> None:
        """Replace the weights; raise a `SyncError` if the server does not take them."""
        self._version = None  # invalid until all checksums are compared
        try:
            version = send_through_folder(self._server, tensors, self._dtype, self._transfer_folder)
        except UserError as error:
            raise SyncError(
                f"{error}: the server's log shows why its workers did not take the weights; a "
                f"server that you start needs --worker-extension-cls {WORKER_EXTENSION}, and "
                "sampling.server.folder if it is on another host"
            ) from None
        self._server.call("POST", "/update_weight_version", {"new_version": version})
        self._version = version
        self.drop_cache()

    @property
    def weight_version(self) -> str:
        """The server's reported version; see `Sampler.weight_version`."""
        if self._version is None:
            raise SyncError("the vLLM server has not received weights, or their sync failed")
        self._server.require_version(self._version)
        return self._version

    def drop_cache(self) -> None:
        """Drop the keys and values of earlier prompts; raise a `SyncError` if some are in use."""
        if not self._server.call("POST", "/reset_prefix_cache")["success"]:
            raise SyncError(
                f"{self._server.address}: did not drop its prefix cache: some of its blocks are in "
                "use, maybe by another client"
            )

    def close(self) -> None:
        """Stop the server if this run started it."""
        self._server.close()


def _open_server(folder: Path, settings: SamplingConfig) -> VllmServer:
    """Connect to the configured server, or start one."""
    if (address := settings.server.address) is not None:
        return VllmServer(address)
    process = ServerProcess(
        str(folder),
        settings,
        arguments={"worker_extension_cls": WORKER_EXTENSION, "disable_uvicorn_access_log": True},
        environment={"VLLM_SERVER_DEV_MODE": "1"},
    )
    return VllmServer(process.address, process)


def read_completions(answer: Any, prompt: Tokens, n: int) -> list[Completion]:
    """Parse the response of /v1/completions to one prompt; raise a `UserError` if it is invalid."""
    try:
        choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
        completions = [_read_choice(choice, prompt) for choice in choices]
        if len(completions) != n:
            raise ValueError(f"{len(completions)} of {n} answers")
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(
            "/v1/completions must return complete answers with token ids and log-probabilities, "
            f"got {error}; vLLM must be 0.32 or later"
        ) from None
    return completions


def _read_choice(choice: Any, prompt: Tokens) -> Completion:
    if list(choice["prompt_token_ids"]) != list(prompt):
        raise ValueError("the answer to another prompt")
    if (reason := choice["finish_reason"]) not in ("stop", "length"):
        raise ValueError(f"finish_reason {reason}")
    tokens = tuple(int(token) for token in choice["token_ids"])
    logprobs = np.array(choice["logprobs"]["token_logprobs"], np.float32)
    if logprobs.shape != (len(tokens),):
        raise ValueError(f"{len(tokens)} tokens, log-probabilities of shape {logprobs.shape}")
    return Completion(tokens, logprobs, truncated=reason == "length")


def read_score(answer: Any, sequence: Tokens) -> np.ndarray:
    """Parse the log-probabilities of a sequence of two or more tokens, see `Sampler.score`.

    `answer` is the response to a prompt of all tokens but the last, which is scored as the next.

    Raises:
        UserError: The response lacks log-probabilities.
    """
    try:
        (choice,) = answer["choices"]
        tables = choice["prompt_logprobs"][1:]
        pairs = zip(sequence[1:-1], tables, strict=True)
        values = [table[str(token)]["logprob"] for token, table in pairs]
        values.append(choice["logprobs"]["top_logprobs"][0][f"token_id:{sequence[-1]}"])
        return np.array([0.0, *values], np.float32)
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"/v1/completions: the answer lacks prompt_logprobs ({error}); vLLM must be 0.32 or "
            "later"
        ) from None
