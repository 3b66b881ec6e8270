"""Commands with JSON lines: files, pipes, invalid lines, progress and interrupts."""

import json
import re
import signal
import subprocess
import sys

import pytest

from jaxlake.command_line import json_lines
from jaxlake.command_line.json_lines import RecordError, read_records

BOARD = {"id": "b", "grid": ["S F G", "s H F", "g F F"]}


def start_command(*arguments, **options):
    command = [sys.executable, "-m", "jaxlake", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.mark.parametrize(
    ("line", "record_id", "message"),
    [
        (b"{", None, "not JSON: Expecting property name"),
        (b"[" * 100_000, None, "not JSON: brackets are nested more than 100 deep"),
        (b'{"id": "\xe9"}', None, "not JSON: not UTF-8: byte 0xe9 at 8"),
        (
            '{"id": "é"}'.encode("utf-16"),
            None,
            "not JSON: text must be UTF-8, got UTF-16 or zero bytes",
        ),
        (b'{"id": NaN}', None, "not JSON: NaN is not a JSON value"),
        (b'{"id": 1e999}', None, "not JSON: Out of range float values"),
        (b'{"id": ' + b"9" * 5_000 + b"}", None, "not JSON: Exceeds the limit"),
        (b'[1, "' + b"x" * 99 + b'"]', None, 'a line must be a JSON object, got [1, "' + "x" * 55),
        (b"null", None, "a line must be a JSON object, got null"),
        (b'{"id": {"a": 1}, "refuse": 1}', {"a": 1}, "refused"),
    ],
)
def test_invalid_line_gives_an_error_with_its_id(line, record_id, message):
    def parse_record(record):
        if "refuse" in record:
            raise RecordError("refused")
        return record

    lines = [b'\xef\xbb\xbf{"id": 1}\r\n', b" \n", "\u00a0\n".encode(), line, b"{}"]
    numbers, (first, error, last) = zip(*read_records(lines, parse_record), strict=True)
    assert numbers == (1, 4, 5)
    assert (first, last) == ({"id": 1}, {})
    assert error.result == {"id": record_id, "error": str(error)}
    assert str(error).startswith(message)


def test_invalid_lines_are_named_with_status_1(cli, write_lines):
    file = write_lines(BOARD, {"id": 9, "grid": ["S X", "G F"]}, BOARD)
    result = cli("solve", file)
    assert result.status == 1
    assert [answer["id"] for answer in result.records] == ["b", 9, "b"]
    assert result.records[0] == result.records[2]
    assert "row 0, column 1 must be one of F H" in result.err
    # A slow run also prints progress.
    assert f"jaxlake: {file}:2: {result.records[1]['error']}" in result.err.splitlines()


def test_output_file_is_written_atomically(cli, write_lines, tmp_path):
    output = tmp_path / "answers.jsonl"
    output.write_text("old")
    assert cli("solve", tmp_path / "missing.jsonl", "--output", output).status == 2
    assert output.read_text() == "old"
    assert cli("solve", write_lines(BOARD), "--output", output) == (0, "", "")
    assert json.loads(output.read_text())["status"] == "OPTIMAL"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.jsonl", "lines.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.scen"], "a.scen: must be JSON lines; convert MovingAI files with"),
        (["missing.jsonl"], "missing.jsonl: can't be read: No such file or directory"),
        (["lines.jsonl", "--output", "."], ".: can't be written: Is a directory"),
        (["lines.jsonl", "--output", "no/such/file"], "no/such/file: can't be written: No such"),
    ],
)
def test_unreadable_files_give_one_message(
    arguments, message, cli, write_lines, tmp_path, monkeypatch
):
    write_lines(BOARD)
    (tmp_path / "a.scen").write_text("version 1\n")
    monkeypatch.chdir(tmp_path)
    status, out, err = cli("solve", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"jaxlake: error: {message}")
    assert len(err.splitlines()) == 1


# Invalid lines need no compilation, so these two tests are fast.
JUNK_LINES = "junk\n" * 1200


def test_closed_pipe_ends_command_quietly(tmp_path):
    file = tmp_path / "junk.jsonl"
    file.write_text(JUNK_LINES)
    with start_command("solve", str(file)) as process:
        process.stdout.close()
        stderr = process.stderr.read()
        assert process.wait(timeout=60) == 141
    assert all(line.startswith(f"jaxlake: {file}:") for line in stderr.splitlines())


@pytest.mark.parametrize(("signal_number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_command_quietly(signal_number, status):
    with start_command("solve", "-", stdin=subprocess.PIPE) as process:
        process.stdin.write(JUNK_LINES)
        process.stdin.flush()
        # The first answer shows that the command has started and waits for input.
        assert "error" in json.loads(process.stdout.readline())
        process.send_signal(signal_number)
        # The input stays open, because its end would also end the command.
        assert process.wait(timeout=60) == status
        stderr = process.stderr.read()
    assert all(line.startswith("jaxlake: <stdin>:") for line in stderr.splitlines())


def test_progress_shows_rate_and_known_total(monkeypatch, capsys):
    monkeypatch.setattr(json_lines, "_SECONDS_BETWEEN_REPORTS", 0.0)
    assert list(json_lines.report_progress([1], "plans")) == [1]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    list(json_lines.report_progress([{}, {}], total=4))
    _, first_report, second_report, last_report = capsys.readouterr().err.split("\r\x1b[K")
    assert re.fullmatch(r"1 of 4 boards, [\d,]+/s", first_report)
    assert second_report.startswith("2 of 4 boards, ")
    assert last_report == ""
