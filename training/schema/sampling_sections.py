"""The section `sampling`: the engine that generates completions, and where it runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from jaxlake.remote_files import require_local
from training.schema.section import Count, Positive, PositiveFloat, Precision, Section, Share

BFLOAT16_TOLERANCE = 0.5
"""What `gap_tolerance` is, unless it is set, where the engine or the trainer rounds to bfloat16.

Their log-probabilities are hundredths of a nat apart then, whatever weights they have.
"""

Address = Annotated[str, Field(pattern=r"^https?://[^/\s?#@]+(/[^\s?#]*[^\s?#/])?$")]


class Server(Section):
    """The vLLM server of `sampling.engine: server`, started on this machine or there already.

    docs/how_to/servers.md says how to start one, and what it has to be told.
    """

    address: Address | None = Field(
        None, description="of a server that is there, such as http://host:8000; null: start one"
    )
    folder: Annotated[str, AfterValidator(require_local)] | None = Field(
        None,
        description="folder that this machine and the server share, for new weights; null: one of "
        "this machine's, for a server on it",
    )


class Sampling(Section):
    """The engine that generates completions.

    `gpu_memory_utilization` is for all vLLM engines of a run together. Where the engineer is a
    model beside the policy (`base`, `model`), each of the two gets half, since the
    policy's engine keeps its memory while the other one answers.
    """

    engine: Literal["vllm", "server", "jax"] = Field(
        "vllm",
        description="vllm: with the trainer; server: a vLLM server, here or elsewhere; jax: the "
        "trainer's own decoder, for small models",
    )
    server: Server = Field(Server(), description="the vLLM server of engine server")
    temperature: PositiveFloat = Field(1.0, description="of completions that are learned from")
    max_model_len: Positive = Field(1024, description="longest prompt and answer, tokens")
    max_num_seqs: Positive = Field(256, description="sequences that are decoded at once")
    dtype: Precision = Field("float32", description="dtype of the engine's weights and activations")
    enforce_eager: bool = Field(
        True,
        description="false: vLLM compiles the model, and captures CUDA graphs (GPUs); on CPUs that "
        "takes a C++ compiler, and a longer start",
    )
    gpu_memory_utilization: Share = Field(
        0.45, description="share of each accelerator's memory for all vLLM engines of a run"
    )
    tensor_parallel_size: Positive = Field(1, description="accelerators that share vLLM's weights")
    data_parallel_size: Positive = Field(
        1, description="engine server: replicas of tensor_parallel_size accelerators each"
    )
    devices: tuple[Count, ...] | None = Field(
        None,
        description="numbers of the accelerators that vLLM's workers have, tensor_parallel_size * "
        "data_parallel_size of them; null: the first ones",
    )
    gap_tolerance: PositiveFloat = Field(
        1e-3,
        description="nats that |engine - trainer| log-probability may be: the mean of a rollout, "
        "and when an engine starts 99% of a few prompts' tokens. If model.dtype or sampling.dtype "
        f"is bfloat16, the default is {BFLOAT16_TOLERANCE}",
    )

    @property
    def accelerators(self) -> int:
        """How many accelerators vLLM's workers have."""
        return self.tensor_parallel_size * self.data_parallel_size

    @property
    def runs_vllm_here(self) -> bool:
        """Whether the run itself starts an engine of vLLM for the policy."""
        return self.engine == "vllm" or (self.engine == "server" and self.server.address is None)

    @model_validator(mode="after")
    def _workers_can_be_reached(self) -> Sampling:
        workers = self.accelerators
        if self.data_parallel_size > 1 and self.server.address is not None:
            raise ValueError(
                f"data_parallel_size: got {self.data_parallel_size} with server.address, allowed is"
                " 1: who starts that server gives it --data-parallel-size"
            )
        if self.data_parallel_size > 1 and self.engine != "server":
            raise ValueError(
                f"data_parallel_size: got {self.data_parallel_size} with engine {self.engine},"
                " allowed is 1, or engine server: vLLM has replicas behind a server alone"
            )
        if self.devices is not None and (
            len(self.devices) != workers or len(set(self.devices)) != workers
        ):
            raise ValueError(
                f"devices: got {list(self.devices)}, allowed are as many different ones as "
                f"tensor_parallel_size * data_parallel_size = {workers}"
            )
        if self.engine == "jax" and self.devices is not None:
            raise ValueError(
                f"devices: got {list(self.devices)}, but engine jax has the trainer's device: "
                "allowed is null"
            )
        if self.engine != "server" and self.server != Server():
            raise ValueError(
                f"server: set, but engine is {self.engine}; allowed is nothing, or engine server"
            )
        return self
