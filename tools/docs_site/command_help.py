"""The page with the help of every command, as `jaxlake COMMAND --help` prints it."""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from unittest import mock

_PAGE = """\
# All commands in full

What `jaxlake COMMAND --help` prints. In short, and what else there is to know:
[The command line](../command_line.md).
"""
_WIDTH = "100"
_NAME = re.compile(r"^ {4}([a-z][\w-]*)(?:\s{2,}\S.*)?$", re.MULTILINE)


def commands_page() -> str:
    """Write the page; it needs what `training` needs."""
    return _PAGE + "".join(_described())


def _described(*command: str) -> Iterator[str]:
    """Write the help of a command, and then that of the commands below it."""
    text = _help_of(*command)
    if command:
        yield f"\n{'#' * (len(command) + 1)} jaxlake {' '.join(command)}\n\n```text\n{text}```\n"
    nested = re.search(r"^ {2}(?:COMMAND|ACTION)\n((?: {4}.*\n)+)", text, re.MULTILINE)
    for name in _NAME.findall(nested[1]) if nested else ():
        yield from _described(*command, name)


def _help_of(*command: str) -> str:
    from jaxlake.command_line.entry import main

    printed = io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": _WIDTH}),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        main([*command, "--help"])
    return printed.getvalue()
