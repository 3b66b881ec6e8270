"""One process of several that share a run: `jax.distributed` on this machine's CPU.

`python -m tests.training.cluster_process ADDRESS PROCESSES INDEX TASK OUTPUT` does one of `TASKS`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from engineer import Costs, EngineerError, NoteWriter
from engineer.engineers.base import Proposal
from jaxlake.command_line.endings import exit_on_sigterm
from tests.paths import ROOT, TINY
from training import processes
from training.errors import UserError
from training.phases.engineer_factory import run_on_first_process
from training.policy.parameters import make_mesh
from training.processes import ClusterSettings, PeerError
from training.sampling.sampler import Completion, SamplingRequest
from training.sampling.shared_sampler import SharedSampler

PROMPTS = [[number, number + 1] for number in range(5)]
HEARTBEAT_SECONDS = 4

# A short run with a nonzero gradient in every update, although some groups have equal rewards.
LEARNING_SETTINGS = (
    "model.pretrained=jaxlake-base",
    "warm_start=null",
    "sampling.engine=jax",
    "engineer.kind=random",
    "environment.bounds.sizes=[3]",
    "environment.initial.sizes={3: {data_ratio: 1.0, hole_ratio: 0.1, wait_ratio: 0.1}}",
    "stages.instances=16",
    "grpo.prompts_per_update=4",
    "grpo.micro_batch_size=8",
    "grpo.learning_rate=2e-4",
    "validation.sizes=[3]",
    "validation.hole_ratios=[0.0]",
    "validation.wait_ratios=[0.5]",
    "validation.per_cell=9",
)


def find_free_address() -> str:
    with socket.socket() as server_socket:
        server_socket.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{server_socket.getsockname()[1]}"


def start_processes(
    command: Sequence[str], logs: Sequence[Path], **variables: str
) -> list[subprocess.Popen[bytes]]:
    """Start a process with one CPU device for each log.

    `{index}` in the command and in the environment variables becomes the number of the process.
    """
    children = []
    all_variables = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONPATH": str(ROOT)} | variables
    for index, log in enumerate(logs):
        with log.open("ab") as log_file:
            children.append(
                subprocess.Popen(
                    [sys.executable, "-m", *(part.format(index=index) for part in command)],
                    cwd=ROOT,
                    env=os.environ
                    | {name: value.format(index=index) for name, value in all_variables.items()},
                    stdout=log_file,
                    stderr=subprocess.STDOUT,
                )
            )
    return children


def make_slurm_variables(num_processes: int, num_nodes: int = 1) -> dict[str, str]:
    """Return SLURM's environment variables for a local job, from which JAX configures itself.

    The host acts as one node with all processes, or as one node per process.
    """
    with socket.socket() as server_socket:
        first_port = 2**16 - 2**12
        for job in range(os.getpid() % 2**12, 2**13):
            try:
                server_socket.bind(("127.0.0.1", first_port + job % 2**12))
                break
            except OSError:
                continue
    return {
        "SLURM_JOB_ID": str(job % 2**12),
        "SLURM_STEP_NODELIST": "127.0.0.1",
        "SLURM_STEP_NUM_NODES": str(num_nodes),
        "SLURM_NTASKS": str(num_processes),
        "SLURM_PROCID": "{index}",
        "SLURM_LOCALID": "{index}" if num_nodes == 1 else "0",
    }


class IndexSampler:
    """Draws completions that encode the index of their prompt, with unusual floats and lengths."""

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        return [
            [make_completion(index, number) for number in range(request.n)]
            for index in request.prompt_indices
        ]


class RankEngineer:
    """An engineer whose answers name the process that asked; it fails if the task is None."""

    name = "rank"

    def propose(self, task: Any) -> Proposal:
        index = jax.process_index()
        if task is None:
            raise EngineerError(f"asked by {index}", Costs(engineer_tokens=index + 5))
        return Proposal(f"asked by {index}", seconds=0.5, tokens=index)

    def write(self, prompt: str, seed: int, max_tokens: int | None = None) -> Proposal:
        return Proposal(f"{prompt} by {jax.process_index()}", seconds=0.5)


def make_completion(index: int, number: int) -> Completion:
    length = 1 + index * 7 + number
    logprobs = np.nextafter(np.full(length, -(index + 1) / 3, np.float32), np.float32(-9))
    logprobs[0] = -np.inf if number else -0.0
    return Completion(tuple(range(index, index + length)), logprobs, bool(index % 2))


def draw_samples(sampler: SharedSampler, **changes: Any) -> list[list[Completion]]:
    request = SamplingRequest(
        PROMPTS, 2, temperature=1.0, max_tokens=40, stop_token_ids=[2], seed=1
    )
    return sampler.sample(replace(request, **changes))


def catch_message(error: type[Exception], call: Callable[..., object], *arguments: Any) -> str:
    with pytest.raises(error) as error_info:
        call(*arguments)
    return str(error_info.value)


def exchange(output: Path) -> None:
    """Exchange samples, broadcast from the first process, and assemble an array.

    Then disagree, and fail in one process while the other one waits.
    """
    index = jax.process_index()
    sampler = SharedSampler(IndexSampler())  # type: ignore[arg-type]
    groups = draw_samples(sampler)
    single_group = draw_samples(sampler, prompts=PROMPTS[:1])  # the other process has nothing to do
    message = processes.call_in_first("a number", lambda: {"index": index, "array": np.arange(3)})

    def raise_refusal() -> None:
        raise UserError(f"refused by {index}")

    refusal = catch_message(UserError, processes.call_in_first, "a refusal", raise_refusal)
    engineer = run_on_first_process(RankEngineer())
    assert isinstance(engineer, NoteWriter)
    proposal, notes = engineer.propose(1), engineer.write("notes", 1)  # type: ignore[arg-type]
    with pytest.raises(EngineerError) as error_info:
        engineer.propose(None)  # type: ignore[arg-type]
    error_fields = [str(error_info.value), error_info.value.spent.engineer_tokens]
    processes.require_same("equal values", {"a": np.arange(3)})
    values = {"a": np.arange(3) + index}
    mismatch_error = catch_message(PeerError, processes.require_same, "other values", values)
    mesh = make_mesh(jax.device_count())
    sharding = NamedSharding(mesh, PartitionSpec("fsdp"))
    sharded_array = processes.put_on_devices(np.arange(8, dtype=np.float32), sharding)
    gathered_array = np.asarray(processes.local_copy(sharded_array))
    seed_error = catch_message(PeerError, partial(draw_samples, sampler, seed=index))
    barrier_error = catch_message(PeerError, processes.wait_for_all, f"place {index}")
    results = {
        "groups": [
            [
                [
                    list(completion.token_ids),
                    completion.logprobs.tobytes().hex(),
                    completion.truncated,
                ]
                for completion in group
            ]
            for group in (*groups, *single_group)
        ],
        "shared": [message["index"], message["array"].tolist()],
        "refusal": refusal,
        "engineer": [engineer.name, proposal.text, proposal.tokens, notes.text, *error_fields],
        "mismatch": mismatch_error,
        "addressable": sharded_array.is_fully_addressable,
        "gathered": gathered_array.tolist(),
        "seed": seed_error,
        "barrier": barrier_error,
    }
    output.write_text(json.dumps(results))
    if index == 1:
        raise UserError("no room on the disk")
    processes.wait_for_all("an end")


def wait(output: Path) -> None:
    """Meet the other process, then wait for it; process `MISSING_PROCESS` never arrives."""
    processes.wait_for_all("a start")
    output.write_text("waiting")
    if jax.process_index() == int(os.environ.get("MISSING_PROCESS", "1")):
        while True:
            time.sleep(1)
    processes.wait_for_all("an end")


def write_visible_gpus(output: Path) -> None:
    """Write the GPUs that JAX would use."""
    output.write_text(jax.config.read("jax_cuda_visible_devices"))


def run_config(output: Path) -> None:
    """Run the configuration `TINY` in the folder of `output`.

    Environment variables:
        STOP_AFTER_STAGE: The run ends after this stage; unset: after its last stage.
        KILL_POINT: A point of `interrupt_at`, where process 1 kills itself; unset: it does not.
        KILL_AFTER_FOLDER: Process 1 waits for this folder of the run before it kills itself,
            because checkpoints are written in the background.
    """
    from tests.training.fake_run import interrupt_at
    from training import loop
    from training.schema import load

    config = load(TINY, [*LEARNING_SETTINGS, f"model.mesh.fsdp={jax.device_count()}"])
    kill_point = os.environ.get("KILL_POINT", "none") if jax.process_index() == 1 else "none"
    stop_after = os.environ.get("STOP_AFTER_STAGE")
    awaited_folder = output.parent / os.environ.get("KILL_AFTER_FOLDER", "")

    def kill_process() -> None:
        deadline = time.monotonic() + 300
        while not awaited_folder.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)

    with interrupt_at(kill_point, kill_process):
        loop.run(config, output.parent, stop_after=int(stop_after) if stop_after else None)


TASKS = {"exchange": exchange, "wait": wait, "visible": write_visible_gpus, "run": run_config}


def main(address: str, num_processes: str, index: str, task: str, output: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Compilation may delay heartbeats.
    heartbeat_seconds = 60 if task == "run" else HEARTBEAT_SECONDS
    cluster = ClusterSettings(address, int(num_processes), int(index), heartbeat_seconds)
    if address == "auto":
        cluster = ClusterSettings(None, None, None, heartbeat_seconds)
    with exit_on_sigterm(), processes.joined_cluster(cluster if int(num_processes) > 1 else None):
        TASKS[task](Path(output))


if __name__ == "__main__":
    main(*sys.argv[1:])
