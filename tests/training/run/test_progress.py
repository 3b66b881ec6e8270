"""Terminal output during a command: tables within a width, progress on standard error."""

import io

from training.run import progress
from training.run.progress import track


def test_progress_is_printed_to_stderr(capsys, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with track("evaluate", 60, unit="answers", start=20) as advance:
        for seconds, num_done in ((5.0, 25), (6.0, 30), (9.0, 60)):
            clock[0] += seconds
            advance(num_done)
    out, err = capsys.readouterr()
    assert out == ""
    assert [" ".join(line.split()) for line in err.splitlines()] == [
        "evaluate 30/60 1.1 s each 11 s",
        "evaluate 60/60 2.0 answers/s 20 s",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_messages_appear_above_the_progress_bar(monkeypatch):
    stderr = Terminal()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    for stdout in (Terminal(), io.StringIO()):
        monkeypatch.setattr("sys.stdout", stdout)
        with track("train", 2) as advance:
            advance(1)
            progress.console.print("printed during the bar")
        progress.console.print("printed after it")
        is_piped = not stdout.isatty()
        assert ("printed during" in stdout.getvalue()) is is_piped
        assert "printed after it" in stdout.getvalue()
        assert ("printed during" in stderr.getvalue()) is not is_piped
        assert "1/2" in stderr.getvalue()
        stderr.truncate(0)
        stderr.seek(0)
