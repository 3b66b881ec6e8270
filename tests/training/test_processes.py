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
from tests.training import one_of_several
from tests.training.one_of_several import HEARTBEAT, PROMPTS, completion

STARTED = "tests.training.one_of_several"


@contextmanager
def two(
    task: str, folder: Path, address: str = "", **environment: str
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start two processes of a task, which write to `0` and `1` and log to `0.log` and `1.log`."""
    address = address or one_of_several.free_address()
    if address == "auto":
        environment = one_of_several.slurm(2) | environment
    command = [STARTED, address, "2", "{index}", task]
    logs = [folder / f"{index}.log" for index in range(2)]
    with ExitStack() as stack:
        command.append(str(folder / "{index}"))
        started = one_of_several.start(command, logs, **environment)
        for process in started:
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield started


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the results and exit statuses of two processes that SLURM started."""
    folder = tmp_path_factory.mktemp("exchange")
    with two("exchange", folder, "auto") as started:
        statuses = [process.wait(300) for process in started]
    logs = [(folder / f"{index}.log").read_text() for index in range(2)]
    assert (folder / "0").exists(), logs[0]
    return [
        json.loads((folder / str(index)).read_text()) | {"status": status, "said": logs[index]}
        for index, status in enumerate(statuses)
    ]


def test_processes_exchange_completions_in_prompt_order(exchanged):
    expected = [
        [
            [
                list(completion_drawn.token_ids),
                completion_drawn.logprobs.tobytes().hex(),
                completion_drawn.truncated,
            ]
            for completion_drawn in (completion(index, number) for number in range(2))
        ]
        for index in (*range(len(PROMPTS)), 0)
    ]
    for record in exchanged:
        assert record["groups"] == expected


def test_first_process_shares_values_and_errors(exchanged):
    for record in exchanged:
        assert record["told"] == [0, [0, 1, 2]]
        assert record["refusal"] == "refused by 0"
        answered = ["outside", "asked by 0", 0, "notes by 0"]
        assert record["engineer"] == [*answered, "asked by 0", 5]


def test_gathered_array_is_complete_in_each_process(exchanged):
    for record in exchanged:
        assert not record["addressable"]
        assert record["whole"] == list(range(8))


def test_differing_processes_are_detected(exchanged):
    for record in exchanged:
        assert record["different"].startswith("other values: process 1 has other values")
        assert record["seeds"].startswith("the prompts of a rollout: process 1 has other values")
    first, second = (record["astray"] for record in exchanged)
    assert first == "process 1 is at 'place 1', but this process at 'place 0'"
    assert second == "process 0 is at 'place 0', but this process at 'place 1'"


def test_failing_process_ends_the_other_with_its_reason(exchanged):
    first, second = exchanged
    assert (first["status"], second["status"]) == (2, 2)
    assert "jaxlake: error: no room on the disk" in second["said"]
    assert "jaxlake: error: an end: process 1 on " in first["said"]
    assert "has failed: no room on the disk" in first["said"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "named", "visible"),
    [(2, "", ["all", "all"]), (2, "2,3", ["2,3", "2,3"]), (1, "", ["0", "1"])],
)
def test_single_process_per_node_sees_all_gpus(tmp_path, nodes, named, visible):
    variables = one_of_several.slurm(2, nodes) | {"JAX_LOCAL_DEVICE_IDS": named}
    with two("visible", tmp_path, "auto", **variables) as started:
        assert [process.wait(120) for process in started] == [0, 0]
    assert [(tmp_path / str(index)).read_text() for index in range(2)] == visible


def until_both_wait(started: list[subprocess.Popen[bytes]], folder: Path) -> None:
    while not all((folder / str(index)).exists() for index in range(2)):
        assert all(process.poll() is None for process in started)
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_killed_process_ends_the_other(tmp_path, killed):
    with two("wait", tmp_path) as started:
        until_both_wait(started, tmp_path)
        started[killed].send_signal(signal.SIGKILL)
        start = time.monotonic()
        assert started[1 - killed].wait(60 + 3 * HEARTBEAT) != 0
        assert time.monotonic() - start < 30 + 2 * HEARTBEAT
    log = (tmp_path / f"{1 - killed}.log").read_text()
    assert "task" in log  # which task died, in words of JAX or of ours


@pytest.mark.slow
@pytest.mark.parametrize("ended", [0, 1])
def test_sigterm_exits_143_and_ends_the_other_process(tmp_path, ended):
    with two("wait", tmp_path, LATE=str(ended)) as started:
        until_both_wait(started, tmp_path)
        started[ended].send_signal(signal.SIGTERM)
        statuses = [process.wait(60) for process in started]
    logs = [(tmp_path / f"{index}.log").read_text() for index in range(2)]
    assert statuses[ended] == 143, logs
    assert statuses[1 - ended] == 2, logs
    assert "Traceback" not in logs[0] + logs[1]
    assert "jaxlake: error:" not in logs[ended]
    assert f"jaxlake: error: an end: process {ended} on " in logs[1 - ended]
    assert " was ended by SIGTERM" in logs[1 - ended]


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
