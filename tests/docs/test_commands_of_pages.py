"""Commands in the documentation use existing options, files and modules."""

import contextlib
import importlib.util
import io
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from jaxlake.command_line.entry import main
from tests.paths import ROOT

PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", flags=re.DOTALL | re.MULTILINE)
_TARGETS = re.compile(r"^([a-z][\w-]*):", flags=re.MULTILINE)


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command in a page's blocks of code, without what follows a pipe."""
    blocks = _FENCE.findall(page.read_text(encoding="utf-8"))
    for block in (text for language, text in blocks if language in ("", "bash")):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            plain = re.sub(r"\s#\s.*", "", line)
            try:
                words = shlex.split(plain)
            except ValueError:
                continue  # a line of something else than a shell
            while words and (words[0] in ("$", "exec", "srun") or re.match(r"[A-Z_]+=", words[0])):
                words = words[1:]
            ends = [i for i, word in enumerate(words) if word in ("|", "&", ">")]
            yield words[: ends[0]] if ends else words


@cache
def help_of(*command: str) -> str:
    """Return the help of a command of jaxlake, or of one of its actions."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    return printed.getvalue()


def shown(program: str) -> list[tuple[str, list[str]]]:
    """List the commands of a program on all pages, with the page of each."""
    return [
        (page.relative_to(ROOT).as_posix(), words)
        for page in PAGES
        for words in commands(page)
        if words and words[0].rpartition("/")[2] == program
    ]


def test_documented_commands_have_their_options():
    seen = [one for one in shown("jaxlake") if one[1][1:2] and one[1][1].isalpha()]
    assert len(seen) > 30
    for page, (_, *words) in seen:
        if words[0] == "sweep" and words[1] != "plot":
            words.insert(1, "run")  # the default action
        nested = words[0] in ("engineer", "dataset", "sweep")
        text = help_of(*words[: 1 + nested])
        for option in (word.partition("=")[0] for word in words if word.startswith("--")):
            assert re.search(rf"{option}\b", text), f"{page}: jaxlake {' '.join(words)}"


def test_documented_files_and_modules_exist():
    named = shown("jaxlake") + shown("python") + shown("bash")
    assert any(words[0] == "python" for _, words in named)
    for page, words in named:
        for word in words:
            if re.match(r"(configs|examples)/[\w/]+\.yaml$", word):
                assert (ROOT / word).exists(), f"{page}: {word}"
        third_party = words[2:] and words[2].partition(".")[0] in ("vllm", "verl")
        if words[:2] == ["python", "-m"] and not third_party:
            assert importlib.util.find_spec(words[2]), f"{page}: {words[2]}"


def test_documented_make_targets_exist():
    targets = set(_TARGETS.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    seen = shown("make")
    assert len(seen) > 5
    for page, words in seen:
        for word in words[1:]:
            assert "=" in word or word in targets, f"{page}: make {word}"
