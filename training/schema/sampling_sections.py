"""The section `sampling`: the engine that generates completions, and where it runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from training.schema.section import Count, Positive, PositiveFloat, Precision, Section, Share

BFLOAT16_TOLERANCE = 0.5
"""What `gap_tolerance` is, unless it is set, where the engine or the trainer rounds to bfloat16.

Their log-probabilities are hundredths of a nat apart then, whatever weights they have.
"""

Address = Annotated[str, Field(pattern=r"^https?://[^/\s?#@]+(/[^\s?#]*[^\s?#/])?$")]


class Servers(Section):
    """The vLLM servers of `sampling.engine: servers`: started on this machine, or elsewhere.

    docs/how_to/servers.md says how to start them, and what they have to be told.
    """

    count: Positive | None = Field(
        None,
        description="servers to start on this machine, each with tensor_parallel_size of "
        "sampling.devices; null: one, or none where there are addresses",
    )
    addresses: tuple[Address, ...] | None = Field(
        None, description="servers that are there, such as http://host:8000; null: start some"
    )
    folder: str | None = Field(
        None,
        description="folder that this machine and the servers share, for new weights; null: shared "
        "memory, for servers on this machine",
    )
    start_seconds: PositiveFloat = Field(600.0, description="until all servers have to be ready")
    answer_seconds: PositiveFloat = Field(
        1800.0, description="for one request; a server that takes longer counts as gone"
    )
    silence_seconds: PositiveFloat = Field(
        60.0, description="without an answer to a health check, after which a server is gone"
    )

    @model_validator(mode="after")
    def _started_or_there(self) -> Servers:
        if self.addresses is None:
            return self
        if self.count is not None:
            raise ValueError(
                f"count: got {self.count} beside addresses, allowed is null: servers are started "
                "here, or are there"
            )
        if not self.addresses or len(set(self.addresses)) < len(self.addresses):
            raise ValueError(
                f"addresses: got {list(self.addresses)}, allowed are one or more different ones"
            )
        return self

    @property
    def started(self) -> int:
        """The number of servers to start on this machine."""
        return 0 if self.addresses else self.count or 1


class Sampling(Section):
    """The engine that generates completions.

    `gpu_memory_utilization` is for all vLLM engines of a run together. Where the engineer is a
    model beside the policy (`stale`, `base`, `model`), each of the two gets half, since the
    policy's engine keeps its memory while the other one answers.
    """

    left_out_if_default = frozenset({"servers"})

    engine: Literal["vllm", "servers", "jax"] = Field(
        "vllm",
        description="vllm: with the trainer; servers: vLLM servers, here or elsewhere; jax: the "
        "trainer's own decoder, for small models",
    )
    servers: Servers | None = Field(
        None, description="the servers of engine servers; null: one on this machine"
    )
    temperature: PositiveFloat = Field(1.0, description="of completions that are learned from")
    max_model_len: Positive = Field(1024, description="longest prompt and answer, tokens")
    max_num_seqs: Positive = Field(256, description="sequences that are decoded at once")
    max_num_batched_tokens: Positive = Field(8192, description="tokens per step (vLLM)")
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
    devices: tuple[Count, ...] | None = Field(
        None,
        description="numbers of the accelerators that vLLM's workers have, tensor_parallel_size "
        "for each server in turn; null: the first ones",
    )
    cpu_kv_cache_gib: Positive = Field(1, description="key-value cache, GiB (CPU only)")
    gap_tolerance: PositiveFloat = Field(
        1e-3,
        description="nats that |engine - trainer| log-probability may be: the mean of a rollout, "
        "and when an engine starts 99% of a few prompts' tokens. If model.dtype or sampling.dtype "
        f"is bfloat16, the default is {BFLOAT16_TOLERANCE}",
    )

    @property
    def served(self) -> Servers:
        """The section `servers`, or what stands for null."""
        return self.servers or Servers()

    @property
    def runs_vllm_here(self) -> bool:
        """Whether the run itself starts engines of vLLM for the policy."""
        return self.engine == "vllm" or (self.engine == "servers" and self.served.started > 0)

    @model_validator(mode="after")
    def _workers_can_be_reached(self) -> Sampling:
        servers = self.served.started if self.engine == "servers" else 1
        workers = self.tensor_parallel_size * servers
        if self.devices is not None and (
            len(self.devices) != workers or len(set(self.devices)) != workers
        ):
            factor = f" * {servers} servers" if self.engine == "servers" else ""
            raise ValueError(
                f"devices: got {list(self.devices)}, allowed are as many different ones as "
                f"tensor_parallel_size{factor} = {workers}"
            )
        if self.engine == "jax" and self.devices is not None:
            raise ValueError(
                f"devices: got {list(self.devices)}, but engine jax has the trainer's device: "
                "allowed is null"
            )
        return self

    @model_validator(mode="after")
    def _servers_fit_the_engine(self) -> Sampling:
        if self.engine != "servers":
            if self.servers is not None:
                raise ValueError(
                    f"servers: set, but engine is {self.engine}; allowed is null, or engine servers"
                )
            return self
        return self
