"""Completions from vLLM servers, on this machine or elsewhere, whose weights follow the trainer's.

`fleet.py` knows which servers live, `client.py` speaks with one of them. The answer
to a prompt doesn't depend on the server that gives it, but for rounding: seeds belong to places.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from training.errors import UserError
from training.sampling.sampler import Completion, Question, Tokens
from training.sampling.servers.client import VllmServer, read_completions, read_score
from training.sampling.servers.fleet import AllServersGoneError, ServerFleet
from training.sampling.servers.process import NO_TRUNCATION, ServerProcess, devices_of
from training.sampling.vllm_sampler import WORKER_EXTENSION, sampling_seeds
from training.schema import Sampling
from training.weight_transfer.checksums import (
    SyncError,
    fetch_checksums,
    require_equal_checksums,
    version_of,
    with_checksums,
)
from training.weight_transfer.transport import (
    SHARED_MEMORY_BACKEND,
    FolderTransport,
    SharedMemoryTransport,
    WeightTransport,
)

# What is asked for with every answer: tokens as ids, each with its log-probability.
_AS_TOKENS = {"logprobs": 0, "return_token_ids": True, "return_tokens_as_token_ids": True}


class ServerSampler:
    """vLLM servers behind the protocol of a `Sampler`; they have no weights before `sync`."""

    def __init__(self, folder: Path, settings: Sampling) -> None:
        """Start the servers on a folder, or find those that `sampling.servers` names.

        The folder's config.json says tie_word_embeddings false, as for `VllmSampler`.

        Raises:
            UserError: A server can't start, isn't there, or has other settings than the run.
        """
        self._settings = settings
        self._dtype = jnp.dtype(settings.dtype)
        self._version: str | None = None
        self._fleet = ServerFleet(_servers(folder, settings), settings)
        try:
            self._fleet.connect()
            self._transport = self._open_transport()
        except BaseException:
            self._fleet.close()
            raise

    def _open_transport(self) -> WeightTransport:
        if (shared := self._settings.served.folder) is not None:
            return FolderTransport(self._fleet, Path(shared))
        return SharedMemoryTransport(self._fleet)

    def sample(self, question: Question) -> list[list[Completion]]:
        """Draw `n` completions for each prompt; see `Sampler.sample`.

        Prompts are divided over the servers. All n answers to a prompt come from one of them.
        """
        question.require_room(self._settings.max_model_len)
        places, n, form = question.places, question.n, question.form
        seeds = sampling_seeds(question.seed, len(question.prompts), n)
        common: dict[str, Any] = {
            "n": n,
            "temperature": question.temperature,
            "max_tokens": question.max_tokens,
            "stop_token_ids": list(question.stop_token_ids),
            **NO_TRUNCATION,
            **_AS_TOKENS,
        }
        if isinstance(form, str):
            common["structured_outputs"] = {"regex": form}
        elif form is not None:
            common["structured_outputs"] = {"json": json.dumps(form)}
        asked = [list(question.prompts[place]) for place in places]
        requests = [
            {"prompt": prompt, "seed": seeds[place], **common}
            for prompt, place in zip(asked, places, strict=True)
        ]
        return self._fleet.answer(
            requests,
            self._held(),
            lambda number, answer: read_completions(answer, asked[number], n),
        )

    def score(self, sequences: Sequence[Tokens]) -> list[np.ndarray]:
        """Score tokens with the servers' weights, at temperature 1; see `Sampler.score`.

        Sequences are divided over the servers.
        """
        asked = [[int(token) for token in sequence] for sequence in sequences if len(sequence) > 1]
        # A sequence may be as long as a server allows, so its last token is asked for as the next.
        requests = [
            {
                "prompt": sequence[:-1],
                "max_tokens": 1,
                "temperature": 1.0,
                "prompt_logprobs": 0,
                "logprob_token_ids": [sequence[-1]],
                **NO_TRUNCATION,
                **_AS_TOKENS,
            }
            for sequence in asked
        ]
        scores = iter(
            self._fleet.answer(
                requests, self._held(), lambda number, answer: read_score(answer, asked[number])
            )
        )
        return [
            next(scores) if len(sequence) > 1 else np.zeros(len(sequence), np.float32)
            for sequence in sequences
        ]

    def sync(self, tensors: Iterable[tuple[str, Any]]) -> None:
        """Replace the weights of every server that is there; see `Sampler.sync`.

        Servers elsewhere that were gone and are back take part. A `SyncError` names a server that
        computes with other weights afterwards, by the checksums of all tensors.
        """
        self._version = None  # until all is compared, no answer counts
        self._fleet.gather_again()
        sums: dict[str, jax.Array] = {}
        self._transport.send(with_checksums(tensors, self._dtype, sums))
        expected = fetch_checksums(sums)
        for server, workers in self._checksums().items():
            try:
                require_equal_checksums(expected, workers)
            except SyncError as error:
                raise SyncError(f"{server.address}: {error}") from None
        version = version_of(expected)
        self._fleet.call("POST", "/update_weight_version", {"new_version": version})
        self._version = version
        self.drop_cache()

    def _checksums(self) -> Mapping[VllmServer, Any]:
        try:
            return self._fleet.collective_rpc("weight_checksums")
        except (SyncError, AllServersGoneError):
            raise
        except UserError as error:
            raise SyncError(
                f"{error}: weights can't be compared; a server that others start needs "
                f"--worker-extension-cls {WORKER_EXTENSION}"
            ) from None

    @property
    def weight_version(self) -> str:
        """What every server says it holds; see `Sampler.weight_version`."""
        held = self._held()
        self._fleet.require_version(held)
        return held

    def drop_cache(self) -> None:
        """Drop the keys and values of earlier prompts; a `SyncError` if some are in use."""
        for server, said in self._fleet.call("POST", "/reset_prefix_cache").items():
            if not said["success"]:
                raise SyncError(
                    f"{server.address}: did not drop its prefix cache: some of its blocks are in "
                    "use, maybe because somebody else asks it, too"
                )

    def close(self) -> None:
        """End the servers that were started here, and let go of the others."""
        try:
            self._transport.close()
        except UserError:
            pass  # nothing can be let go of where no server is left
        finally:
            self._fleet.close()

    def _held(self) -> str:
        if self._version is None:
            raise SyncError("the vLLM servers were not given weights, or a sync of them failed")
        return self._version


def _servers(folder: Path, settings: Sampling) -> list[VllmServer]:
    """Name the servers that are there, or start some."""
    if addresses := settings.served.addresses:
        return [VllmServer(address) for address in addresses]
    arguments: dict[str, Any] = {
        "worker_extension_cls": WORKER_EXTENSION,
        "weight_transfer_config": {"backend": SHARED_MEMORY_BACKEND},
        "disable_uvicorn_access_log": True,
    }
    cores = sorted(os.sched_getaffinity(0))
    environments = [
        {
            "VLLM_SERVER_DEV_MODE": "1",
            **devices_of(number, settings, os.environ),
            **cores_of(number, settings, os.environ, cores),
        }
        for number in range(settings.served.started)
    ]
    processes = [
        ServerProcess(str(folder), settings, arguments=arguments, environment=environment)
        for environment in environments
    ]
    return [VllmServer(process.address, process) for process in processes]


def cores_of(
    number: int, settings: Sampling, environ: Mapping[str, str], cores: Sequence[int]
) -> dict[str, str]:
    """Return the variable that gives a server, from 0, its share of the cores, for vLLM on CPU.

    The user's own value wins, and one server alone is left to vLLM, as are workers without a core.
    """
    name, width = "VLLM_CPU_OMP_THREADS_BIND", settings.tensor_parallel_size
    workers = settings.served.started * width
    if name in environ or settings.served.started == 1 or workers > len(cores):
        return {}
    share = len(cores) // workers
    first = number * width
    ranks = [cores[rank * share : (rank + 1) * share] for rank in range(first, first + width)]
    return {name: "|".join(",".join(map(str, rank)) for rank in ranks)}
