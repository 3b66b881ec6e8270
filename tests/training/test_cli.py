"""The command line: what it prints, what it returns, and that it never shows a traceback."""

import functools
import io
import json
import re
import signal
import subprocess
import sys

import pytest

from training.boards import check_lines, solve_lines
from training.cli import main

COMMANDS = (
    "run",
    "evaluate",
    "report",
    "solve",
    "check",
    "generate",
    "feasibility",
    "dataset",
    "bench",
    "engineer",
    "verify",
    "study",
)
GRID = ["S F G", "s H F", "g F F"]
BOARD = {"id": "b", "grid": GRID}
GENERATE = {"--size": 4, "--hole-ratio": 0.2, "--wait-ratio": 0.5, "--count": 7, "--seed": 3}


def arguments(**changes):
    options = GENERATE | {f"--{key.replace('_', '-')}": value for key, value in changes.items()}
    return ["generate", *(str(part) for option in options.items() for part in option)]


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def records(text):
    return [json.loads(line) for line in text.splitlines()]


def process(*args, **options):
    command = [sys.executable, "-m", "training.cli", *args]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts what runs in its background with interrupts ignored.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        **options,
    )


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    for command in COMMANDS:
        assert re.search(rf"^    {command}\s+\w", printed, flags=re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert "exit status" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [[], ["sail"], ["solve"], ["evaluate", "c.yaml"], ["generate", "--size", "x"], ["report"]],
)
def test_wrong_arguments_end_with_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "usage: jaxlake" in capsys.readouterr().err


def test_solve_writes_what_solve_lines_yields(tmp_path, capsys):
    file = write(tmp_path / "boards.jsonl", [BOARD, BOARD | {"id": 2}])
    assert main(["solve", file]) == 0
    captured = capsys.readouterr()
    expected = [record for _, record in solve_lines([json.dumps(BOARD)])]
    assert records(captured.out) == [expected[0], expected[0] | {"id": 2}]
    assert captured.err == ""


def test_output_is_written_whole_beside_nothing_else(tmp_path, capsys):
    file = write(tmp_path / "boards.jsonl", [BOARD | {"plan": [["RIGHT"] * 2, ["DOWN"]]}])
    output = tmp_path / "answers.jsonl"
    output.write_text("old")
    assert main(["check", file, "--output", str(output)]) == 0
    assert capsys.readouterr().out == ""
    assert records(output.read_text())[0]["optimal_sum_of_costs"] is True
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.jsonl", "boards.jsonl"]


def test_a_failed_command_leaves_the_old_output_alone(tmp_path):
    file = tmp_path / "boards.jsonl"
    file.write_bytes(json.dumps(BOARD).encode() + b"\n\xff\n")
    output = tmp_path / "answers.jsonl"
    output.write_text("old")
    assert main(["solve", str(file), "--output", str(output)]) == 2
    assert output.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.jsonl", "boards.jsonl"]


def test_bad_lines_are_answered_named_with_file_and_line_and_end_with_status_1(tmp_path, capsys):
    file = write(tmp_path / "boards.jsonl", [BOARD, {"id": 9, "grid": ["S X", "G F"]}, BOARD])
    assert main(["solve", file]) == 1
    captured = capsys.readouterr()
    answers = records(captured.out)
    assert [answer["id"] for answer in answers] == ["b", 9, "b"]
    assert answers[1] == {"id": 9, "error": answers[1]["error"]}
    assert captured.err == f"jaxlake: {file}:2: {answers[1]['error']}\n"
    assert "row 0, column 1: got 'X', allowed are" in captured.err


@pytest.mark.parametrize("command", ["solve", "check"])
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("missing.jsonl", None, "missing.jsonl: can't be read: No such file or directory"),
        (".", None, "can't be read: Is a directory"),
        ("latin1.jsonl", b'\n{"id": "\xe9"}\n', "latin1.jsonl:2: not UTF-8: byte 0xe9"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_message(
    command, name, content, said, tmp_path, capsys
):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert main([command, str(tmp_path / name)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("jaxlake: error: ")
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize("output", [".", "no/such/folder.jsonl"])
def test_an_output_that_cannot_be_written_is_one_clear_message(output, tmp_path, capsys):
    file = write(tmp_path / "boards.jsonl", [BOARD])
    assert main(["solve", file, "--output", str(tmp_path / output)]) == 2
    error = capsys.readouterr().err
    assert "can't be written" in error
    assert len(error.splitlines()) == 1


def test_an_empty_file_is_answered_by_nothing(tmp_path, capsys):
    assert main(["solve", write(tmp_path / "empty.jsonl", [])]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_byte_order_mark_and_windows_line_ends_are_read_over(tmp_path, capsys):
    file = tmp_path / "boards.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(BOARD).encode() + b"\r\n")
    assert main(["solve", str(file)]) == 0
    assert records(capsys.readouterr().out)[0]["status"] == "OPTIMAL"


def test_generated_boards_keep_the_request_and_the_seed(tmp_path, capsys):
    assert main(arguments()) == 0
    printed = capsys.readouterr().out
    boards = records(printed)
    assert len(boards) == len({board["id"] for board in boards}) == 7
    assert [list(board) for board in boards] == [
        ["id", "grid", "sum_of_costs", "makespan", "needs_wait", "plan", "hole_ratio"]
    ] * 7
    assert sum(board["needs_wait"] for board in boards) == round(0.5 * 7)
    for board in boards:
        assert len(board["grid"]) == 4
        assert "".join(board["grid"]).count("H") == 3
        assert board["hole_ratio"] == 0.2
    solved = [record for _, record in solve_lines(printed.splitlines())]
    for board, solution in zip(boards, solved, strict=True):
        for key in ("id", "sum_of_costs", "makespan", "needs_wait"):
            assert board[key] == solution[key]
    assert all(record["optimal_sum_of_costs"] for _, record in check_lines(printed.splitlines()))

    again = tmp_path / "again.jsonl"
    assert main([*arguments(), "--output", str(again)]) == 0
    assert again.read_text() == printed


def test_boards_that_could_not_be_made_are_told_with_status_1(capsys):
    # On 2x2 boards with four letters no agent can gain by waiting.
    assert main(arguments(size=2, hole_ratio=0, count=6, max_candidates=512)) == 1
    captured = capsys.readouterr()
    assert len(records(captured.out)) == 3
    assert "made 3 of 6 boards" in captured.err
    assert "3 that need a wait and 0 that need none are missing" in captured.err
    assert main(arguments(size=2, hole_ratio=0, wait_ratio=1, max_candidates=512)) == 1
    assert "made 0 of 7 boards" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"size": 3, "hole_ratio": 0.5, "agents": 3},
            "a 3x3 board with hole_ratio 0.5 has 4 holes and 5 free cells, but 3 agents need 6",
        ),
        ({"agents": 1}, "--agents: got 1, 2 to 5 are allowed"),
        ({"agents": 6}, "--agents: got 6, 2 to 5 are allowed"),
        ({"size": 11}, "--size: got 11, 2 to 10 are allowed"),
        ({"hole_ratio": 1.5}, "--hole-ratio: got 1.5, 0 to 1 are allowed"),
        ({"wait_ratio": "nan"}, "--wait-ratio: got nan, 0 to 1 are allowed"),
        ({"count": 0}, "--count: got 0, 1 to 1000000 are allowed"),
        ({"seed": -1}, "--seed: got -1, 0 to 4294967295 are allowed"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_with_its_reason(changes, said, capsys):
    assert main(arguments(**changes)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1


def test_the_feasibility_map_is_printed_and_written(tmp_path, capsys):
    grid = ["--sizes", "2", "3", "--hole-ratios", "0.3", "--wait-ratios", "0.5"]
    files = [tmp_path / name for name in ("map.json", "map.svg")]
    options = ["--candidates", "128", "--json", str(files[0]), "--svg", str(files[1])]
    assert main(["feasibility", *grid, *options]) == 0
    printed = capsys.readouterr().out.splitlines()
    rows = json.loads(files[0].read_text())
    assert len(printed) == len(rows) + 1 == 3
    assert rows[0]["problem"] in printed[1]
    assert rows[1]["acceptance"] > 0
    assert files[1].read_text().startswith("<svg")
    assert main(["feasibility", "--sizes", "1"]) == 2
    assert "sizes: got 1, 2 to 32 are allowed" in capsys.readouterr().err
    both = ["--table", str(tmp_path / "table.json"), "--json", str(files[0])]
    assert main(["feasibility", *both]) == 2
    assert "--table: has a grid of its own" in capsys.readouterr().err


def test_a_pipe_is_answered_without_loading_any_learning_library():
    loaded = "print(sorted({m.split('.')[0] for m in sys.modules}), file=sys.stderr)"
    program = f"import sys; from training.cli import main; main(['solve', '-']); {loaded}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(BOARD) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert records(done.stdout)[0]["sum_of_costs"] == 3
    for module in ("torch", "vllm", "flax", "transformers", "pydantic"):
        assert f"'{module}'" not in done.stderr
    assert "'jax'" in done.stderr


def test_help_loads_no_jax():
    program = "import sys; from training.cli import main\ntry: main(['--help'])\n"
    program += "finally: assert 'jax' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)


# Lines that are no records need no compilation, so these two are quick.
JUNK_LINES = "junk\n" * 1200


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path):
    file = tmp_path / "junk.jsonl"
    file.write_text(JUNK_LINES)
    with process("solve", str(file)) as running:
        running.stdout.close()
        told = running.stderr.read()
        assert running.wait(timeout=60) == 141
    assert all(line.startswith(f"jaxlake: {file}:") for line in told.splitlines())


def test_an_interrupt_ends_it_quietly_with_status_130():
    with process("solve", "-", stdin=subprocess.PIPE) as running:
        running.stdin.write(JUNK_LINES)
        running.stdin.flush()
        # An answer shows that the command is past its start and now waits for more lines.
        assert "error" in json.loads(running.stdout.readline())
        running.send_signal(signal.SIGINT)
        told = running.communicate(timeout=60)[1]
        assert running.returncode == 130
    assert all(line.startswith("jaxlake: <stdin>:") for line in told.splitlines())


LOST = """
import gc, sys
from training import boards, cli

def interrupted(phase, info):
    gc.callbacks.remove(interrupted)
    raise KeyboardInterrupt

def wait(lines):
    gc.callbacks.append(interrupted)
    gc.collect()
    yield from enumerate(lines)

boards.solve_lines = wait
sys.exit(cli.main(["solve", "-"]))
"""


def test_an_interrupt_that_falls_into_a_garbage_collection_ends_it_too():
    """Python drops what a callback raises; without more, the command would wait on."""
    command = [sys.executable, "-c", LOST]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.wait(timeout=60) == 130
        assert running.stderr.read() == b""


def test_progress_is_told_on_a_terminal_and_wiped_out_at_the_end(tmp_path, capsys, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr("training.commands.lines._SECONDS_ON_TERMINAL", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["solve", write(tmp_path / "boards.jsonl", [BOARD] * 3)]) == 0
    assert "3 boards" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert len(records(capsys.readouterr().out)) == 3
