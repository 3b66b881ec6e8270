"""Terminal output during a command: tables within a width, progress on standard error."""

import io

from training.run import progress
from training.run.progress import track


def test_progress_is_printed_to_stderr(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with track("evaluate", 60, unit="answers", start=20) as advance:
        for seconds, done in ((5.0, 25), (6.0, 30), (9.0, 60)):
            now[0] += seconds
            advance(done)
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
    err = Terminal()
    monkeypatch.setattr("sys.stderr", err)
    monkeypatch.setenv("TERM", "xterm")
    for out in (Terminal(), io.StringIO()):
        monkeypatch.setattr("sys.stdout", out)
        with track("train", 2) as advance:
            advance(1)
            progress.console.print("printed during the bar")
        progress.console.print("printed after it")
        piped = not out.isatty()
        assert ("printed during" in out.getvalue()) is piped
        assert "printed after it" in out.getvalue()
        assert ("printed during" in err.getvalue()) is not piped
        assert "1/2" in err.getvalue()
        err.truncate(0)
        err.seek(0)
