"""Configurations in the documentation load unchanged."""

import argparse
import re
import shlex

import pytest

from tests.paths import ROOT
from training.commands import run
from training.errors import UserError
from training.schema import load

PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
_OWN = re.compile(r"=\w+:\w+$")
_RUN = re.compile(r"\bjaxlake (run (?:configs|examples)/[^\n`|&>]*)")


def documented_runs() -> list[tuple[str, list[str]]]:
    """List the arguments of each `jaxlake run FILE ...` on a page, with the page."""
    runs = []
    for page in PAGES:
        text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
        for command in _RUN.findall(text):
            words = shlex.split(re.sub(r"\s#\s.*", "", command))
            runs.append((page.relative_to(ROOT).as_posix(), words[1:]))
    return runs


def test_configurations_of_documented_runs_can_be_loaded():
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    runs = documented_runs()
    changed = 0
    for page, words in runs:
        # The number of a process is a variable of a loop in the shell.
        arguments = parser.parse_args([word.replace("$I", "0") for word in words])
        try:
            # Modules that a page writes itself are run by the tests of its code.
            load(
                ROOT / arguments.config,
                [override for override in arguments.set if not _OWN.search(override)],
            )
        except UserError as error:
            pytest.fail(f"{page}: jaxlake run {' '.join(words)}: {error}")
        changed += bool(arguments.set)
    assert len(runs) > 10
    assert changed >= 3
