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
_HOOK_OVERRIDE = re.compile(r"=\w+:\w+$")
_RUN_COMMAND = re.compile(r"\bjaxlake (run (?:configs|examples)/[^\n`|&>]*)")


def find_documented_runs() -> list[tuple[str, list[str]]]:
    """List the arguments of each `jaxlake run FILE ...` on a page, with the page."""
    runs = []
    for page in PAGES:
        text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
        for command in _RUN_COMMAND.findall(text):
            words = shlex.split(re.sub(r"\s#\s.*", "", command))
            runs.append((page.relative_to(ROOT).as_posix(), words[1:]))
    return runs


def test_configurations_of_documented_runs_can_be_loaded():
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    runs = find_documented_runs()
    num_with_overrides = 0
    for page, words in runs:
        # The number of a process is a variable of a loop in the shell.
        arguments = parser.parse_args([word.replace("$I", "0") for word in words])
        try:
            # Modules that a page writes itself are run by the tests of its code.
            load(
                ROOT / arguments.config,
                [override for override in arguments.set if not _HOOK_OVERRIDE.search(override)],
            )
        except UserError as error:
            pytest.fail(f"{page}: jaxlake run {' '.join(words)}: {error}")
        num_with_overrides += bool(arguments.set)
    assert len(runs) > 10
    assert num_with_overrides >= 3
