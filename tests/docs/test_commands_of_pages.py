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
_CODE_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", flags=re.DOTALL | re.MULTILINE)
_MAKE_TARGET = re.compile(r"^([a-z][\w-]*):", flags=re.MULTILINE)


def read_commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command in a page's code blocks, up to a pipe or redirection."""
    blocks = _CODE_BLOCK.findall(page.read_text(encoding="utf-8"))
    for block in (text for language, text in blocks if language in ("", "bash")):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            command = re.sub(r"\s#\s.*", "", line)
            try:
                words = shlex.split(command)
            except ValueError:
                continue  # not a shell command
            while words and (words[0] in ("$", "exec", "srun") or re.match(r"[A-Z_]+=", words[0])):
                words = words[1:]
            end_indices = [i for i, word in enumerate(words) if word in ("|", "&", ">")]
            yield words[: end_indices[0]] if end_indices else words


@cache
def read_help(*command: str) -> str:
    """Return the help text of a command of jaxlake."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    return output.getvalue()


def find_commands(program: str) -> list[tuple[str, list[str]]]:
    """List the commands of a program on all pages, each with its page."""
    return [
        (page.relative_to(ROOT).as_posix(), words)
        for page in PAGES
        for words in read_commands(page)
        if words and words[0].rpartition("/")[2] == program
    ]


def test_documented_commands_have_their_options():
    commands = [
        command
        for command in find_commands("jaxlake")
        if command[1][1:2] and command[1][1].isalpha()
    ]
    assert len(commands) > 30
    for page, (_, *words) in commands:
        if words[0] == "sweep" and words[1] != "plot":
            words.insert(1, "run")  # the default action
        has_subcommand = words[0] in ("engineer", "dataset", "sweep")
        help_text = read_help(*words[: 1 + has_subcommand])
        for option in (word.partition("=")[0] for word in words if word.startswith("--")):
            assert re.search(rf"{option}\b", help_text), f"{page}: jaxlake {' '.join(words)}"


def test_documented_files_and_modules_exist():
    commands = find_commands("jaxlake") + find_commands("python") + find_commands("bash")
    assert any(words[0] == "python" for _, words in commands)
    for page, words in commands:
        for word in words:
            if re.match(r"(configs|examples)/[\w/]+\.yaml$", word):
                assert (ROOT / word).exists(), f"{page}: {word}"
        is_third_party = words[2:] and words[2].partition(".")[0] in ("vllm", "verl")
        if words[:2] == ["python", "-m"] and not is_third_party:
            assert importlib.util.find_spec(words[2]), f"{page}: {words[2]}"


def test_documented_make_targets_exist():
    targets = set(_MAKE_TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    commands = find_commands("make")
    assert len(commands) > 5
    for page, words in commands:
        for word in words[1:]:
            assert "=" in word or word in targets, f"{page}: make {word}"
