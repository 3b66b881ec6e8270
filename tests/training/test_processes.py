"""Two processes share one run: exchanges are complete, and both end together."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from jaxlake.command_line.entry import main
from tests.training import cluster_process
from tests.training.cluster_process import HEARTBEAT_SECONDS, PROMPTS, make_completion

MODULE = "tests.training.cluster_process"


@contextmanager
def start_two_processes(
    task: str, folder: Path, address: str = "", **variables: str
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start two processes of a task, which write to `0` and `1` and log to `0.log` and `1.log`."""
    address = address or cluster_process.find_free_address()
    if address == "auto":
        variables = cluster_process.make_slurm_variables(2) | variables
    command = [MODULE, address, "2", "{index}", task]
    logs = [folder / f"{index}.log" for index in range(2)]
    with ExitStack() as stack:
        command.append(str(folder / "{index}"))
        children = cluster_process.start_processes(command, logs, **variables)
        for process in children:
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield children


@pytest.fixture(scope="module")
def exchange_records(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the results and exit statuses of two processes that SLURM started."""
    folder = tmp_path_factory.mktemp("exchange")
    with start_two_processes("exchange", folder, "auto") as children:
        statuses = [process.wait(300) for process in children]
    logs = [(folder / f"{index}.log").read_text() for index in range(2)]
    assert (folder / "0").exists(), logs[0]
    return [
        json.loads((folder / str(index)).read_text()) | {"status": status, "log": logs[index]}
        for index, status in enumerate(statuses)
    ]


def test_processes_exchange_completions_in_prompt_order(exchange_records):
    expected = [
        [
            [
                list(completion.token_ids),
                completion.logprobs.tobytes().hex(),
                completion.truncated,
            ]
            for completion in (make_completion(index, number) for number in range(2))
        ]
        for index in (*range(len(PROMPTS)), 0)
    ]
    for record in exchange_records:
        assert record["groups"] == expected


def test_first_process_shares_values_and_errors(exchange_records):
    for record in exchange_records:
        assert record["shared"] == [0, [0, 1, 2]]
        assert record["refusal"] == "refused by 0"
        expected = ["rank", "asked by 0", 0, "notes by 0", "asked by 0", 5]
        assert record["engineer"] == expected


def test_gathered_array_is_complete_in_each_process(exchange_records):
    for record in exchange_records:
        assert not record["addressable"]
        assert record["gathered"] == list(range(8))


def test_differing_processes_are_detected(exchange_records):
    for record in exchange_records:
        assert record["mismatch"].startswith("other values: process 1 has other values")
        assert record["seed"].startswith("the prompts of a rollout: process 1 has other values")
    first, second = (record["barrier"] for record in exchange_records)
    assert first == "process 1 is at 'place 1', but this process at 'place 0'"
    assert second == "process 0 is at 'place 0', but this process at 'place 1'"


def test_failing_process_ends_the_other_with_its_reason(exchange_records):
    first, second = exchange_records
    assert (first["status"], second["status"]) == (2, 2)
    assert "jaxlake: error: no room on the disk" in second["log"]
    assert "jaxlake: error: an end: process 1 on " in first["log"]
    assert "has failed: no room on the disk" in first["log"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_nodes", "device_ids", "visible_devices"),
    [(2, "", ["all", "all"]), (2, "2,3", ["2,3", "2,3"]), (1, "", ["0", "1"])],
)
def test_single_process_per_node_sees_all_gpus(tmp_path, num_nodes, device_ids, visible_devices):
    variables = cluster_process.make_slurm_variables(2, num_nodes)
    variables["JAX_LOCAL_DEVICE_IDS"] = device_ids
    with start_two_processes("visible", tmp_path, "auto", **variables) as children:
        assert [process.wait(120) for process in children] == [0, 0]
    assert [(tmp_path / str(index)).read_text() for index in range(2)] == visible_devices


def wait_for_both(children: list[subprocess.Popen[bytes]], folder: Path) -> None:
    while not all((folder / str(index)).exists() for index in range(2)):
        assert all(process.poll() is None for process in children)
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("killed_index", [0, 1])
def test_killed_process_ends_the_other(tmp_path, killed_index):
    with start_two_processes("wait", tmp_path) as children:
        wait_for_both(children, tmp_path)
        children[killed_index].send_signal(signal.SIGKILL)
        start = time.monotonic()
        assert children[1 - killed_index].wait(60 + 3 * HEARTBEAT_SECONDS) != 0
        assert time.monotonic() - start < 30 + 2 * HEARTBEAT_SECONDS
    log = (tmp_path / f"{1 - killed_index}.log").read_text()
    assert "task" in log  # which task died, in words of JAX or of ours


@pytest.mark.slow
@pytest.mark.parametrize("ended_index", [0, 1])
def test_sigterm_exits_143_and_ends_the_other_process(tmp_path, ended_index):
    with start_two_processes("wait", tmp_path, MISSING_PROCESS=str(ended_index)) as children:
        wait_for_both(children, tmp_path)
        children[ended_index].send_signal(signal.SIGTERM)
        statuses = [process.wait(60) for process in children]
    logs = [(tmp_path / f"{index}.log").read_text() for index in range(2)]
    assert statuses[ended_index] == 143, logs
    assert statuses[1 - ended_index] == 2, logs
    assert "Traceback" not in logs[0] + logs[1]
    assert "jaxlake: error:" not in logs[ended_index]
    assert f"jaxlake: error: an end: process {ended_index} on " in logs[1 - ended_index]
    assert " was ended by SIGTERM" in logs[1 - ended_index]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("--processes 2", "--processes needs --coordinator HOST:PORT"),
        ("--coordinator host:1", "needs --processes and --process"),
        (
            "--coordinator h:1 --processes 2 --process 2",
            "--process must be less than --processes = 2",
        ),
    ],
)
def test_process_arguments_must_be_complete(arguments, problem, capsys):
    command = ["run", "configs/miniature.yaml", "--run-dir", "nowhere", *arguments.split()]
    assert main(command) == 2
    assert problem in capsys.readouterr().err
