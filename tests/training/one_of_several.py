"""One process of several that share a run: `jax.distributed` on this machine's CPU.

`python -m tests.training.one_of_several ADDRESS PROCESSES INDEX TASK OUTPUT` does one of `TASKS`.
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
HEARTBEAT = 4

# Every update moves the weights, though not all boards teach anything; little else is to be done.
LEARNS = (
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


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def start(
    command: Sequence[str], logs: Sequence[Path], **environment: str
) -> list[subprocess.Popen[bytes]]:
    """Start a process for each log, with a device each.

    `{index}` in the command and in the environment is its number.
    """
    started = []
    variables = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONPATH": str(ROOT)} | environment
    for index, log in enumerate(logs):
        with log.open("ab") as output:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", *(part.format(index=index) for part in command)],
                    cwd=ROOT,
                    env=os.environ
                    | {name: value.format(index=index) for name, value in variables.items()},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
    return started


def slurm(processes: int, nodes: int = 1) -> dict[str, str]:
    """Return SLURM's environment variables for a local job, from which JAX configures itself.

    The host acts as one node with all processes, or as one node per process.
    """
    with socket.socket() as free:
        first_port = 2**16 - 2**12
        for job in range(os.getpid() % 2**12, 2**13):
            try:
                free.bind(("127.0.0.1", first_port + job % 2**12))
                break
            except OSError:
                continue
    return {
        "SLURM_JOB_ID": str(job % 2**12),
        "SLURM_STEP_NODELIST": "127.0.0.1",
        "SLURM_STEP_NUM_NODES": str(nodes),
        "SLURM_NTASKS": str(processes),
        "SLURM_PROCID": "{index}",
        "SLURM_LOCALID": "{index}" if nodes == 1 else "0",
    }


class PlaceSampler:
    """Draws completions that tell the place of their prompt, with odd bits and lengths."""

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        numbers = range(request.n)
        return [
            [completion(place, number) for number in numbers] for place in request.prompt_indices
        ]


class Outside:
    """An engineer that says who asked it, and has no answer to a task without a number."""

    name = "outside"

    def propose(self, task: Any) -> Proposal:
        index = jax.process_index()
        if task is None:
            raise EngineerError(f"asked by {index}", Costs(engineer_tokens=index + 5))
        return Proposal(f"asked by {index}", seconds=0.5, tokens=index)

    def write(self, prompt: str, seed: int, max_tokens: int | None = None) -> Proposal:
        return Proposal(f"{prompt} by {jax.process_index()}", seconds=0.5)


def completion(place: int, number: int) -> Completion:
    length = 1 + place * 7 + number
    logprobs = np.nextafter(np.full(length, -(place + 1) / 3, np.float32), np.float32(-9))
    logprobs[0] = -np.inf if number else -0.0
    return Completion(tuple(range(place, place + length)), logprobs, bool(place % 2))


def ask(sampler: SharedSampler, **changes: Any) -> list[list[Completion]]:
    request = SamplingRequest(
        PROMPTS, 2, temperature=1.0, max_tokens=40, stop_token_ids=[2], seed=1
    )
    return sampler.sample(replace(request, **changes))


def catch_message(kind: type[Exception], call: Callable[..., object], *arguments: Any) -> str:
    with pytest.raises(kind) as caught:
        call(*arguments)
    return str(caught.value)


def exchange(output: Path) -> None:
    """Exchange samples, broadcast from the first process, and assemble an array.

    Then disagree, and fail in one process while the other one waits.
    """
    index = jax.process_index()
    sampler = SharedSampler(PlaceSampler())  # type: ignore[arg-type]
    groups = ask(sampler)
    few = ask(sampler, prompts=PROMPTS[:1])  # the other process has nothing to do
    message = processes.call_in_first("a number", lambda: {"index": index, "array": np.arange(3)})

    def refuse() -> None:
        raise UserError(f"refused by {index}")

    refusal = catch_message(UserError, processes.call_in_first, "a refusal", refuse)
    engineer = run_on_first_process(Outside())
    assert isinstance(engineer, NoteWriter)
    proposal, notes = engineer.propose(1), engineer.write("notes", 1)  # type: ignore[arg-type]
    with pytest.raises(EngineerError) as unanswered:
        engineer.propose(None)  # type: ignore[arg-type]
    spent = [str(unanswered.value), unanswered.value.spent.engineer_tokens]
    processes.require_same("equal values", {"a": np.arange(3)})
    values = {"a": np.arange(3) + index}
    different = catch_message(PeerError, processes.require_same, "other values", values)
    mesh = make_mesh(jax.device_count())
    split = NamedSharding(mesh, PartitionSpec("fsdp"))
    placed = processes.put_on_devices(np.arange(8, dtype=np.float32), split)
    gathered = np.asarray(processes.local_copy(placed))
    seeds = catch_message(PeerError, partial(ask, sampler, seed=index))
    astray = catch_message(PeerError, processes.wait_for_all, f"place {index}")
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
            for group in (*groups, *few)
        ],
        "told": [message["index"], message["array"].tolist()],
        "refusal": refusal,
        "engineer": [engineer.name, proposal.text, proposal.tokens, notes.text, *spent],
        "different": different,
        "addressable": placed.is_fully_addressable,
        "whole": gathered.tolist(),
        "seeds": seeds,
        "astray": astray,
    }
    output.write_text(json.dumps(results))
    if index == 1:
        raise UserError("no room on the disk")
    processes.wait_for_all("an end")


def wait(output: Path) -> None:
    """Meet the other process, then wait for it again; the process LATE never arrives."""
    processes.wait_for_all("a start")
    output.write_text("waiting")
    if jax.process_index() == int(os.environ.get("LATE", "1")):
        while True:
            time.sleep(1)
    processes.wait_for_all("an end")


def visible(output: Path) -> None:
    """Tell which GPUs JAX would take."""
    output.write_text(jax.config.read("jax_cuda_visible_devices"))


def run(output: Path) -> None:
    """Run a configuration, as far as STOP_AFTER says; process 1 kills itself at DIE_AT.

    Checkpoints are written in the background, so it first waits for the folder WHEN_SAVED.
    """
    from tests.training.fake_run import dying_at
    from training import loop
    from training.schema import load

    config = load(TINY, [*LEARNS, f"model.mesh.fsdp={jax.device_count()}"])
    point = os.environ.get("DIE_AT", "none") if jax.process_index() == 1 else "none"
    stop_after = os.environ.get("STOP_AFTER")
    saved = output.parent / os.environ.get("WHEN_SAVED", "")

    def die() -> None:
        until = time.monotonic() + 300
        while not saved.exists() and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)

    with dying_at(point, die):
        loop.run(config, output.parent, stop_after=int(stop_after) if stop_after else None)


TASKS = {"exchange": exchange, "wait": wait, "visible": visible, "run": run}


def main(address: str, count: str, index: str, task: str, output: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seconds = 60 if task == "run" else HEARTBEAT  # compilation may delay heartbeats
    cluster = ClusterSettings(address, int(count), int(index), seconds)
    if address == "auto":
        cluster = ClusterSettings(None, None, None, seconds)
    with exit_on_sigterm(), processes.joined_cluster(cluster if int(count) > 1 else None):
        TASKS[task](Path(output))


if __name__ == "__main__":
    main(*sys.argv[1:])
