"""The navigation of the site in `zensical.toml`, compared with the pages that there are."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_UNLISTED = ("files/", "project/readme.md")
"""Pages that are reached by links alone."""


def navigation(config: Path) -> list[str]:
    """Return the pages that the navigation names, in its order."""
    return list(_pages(tomllib.loads(config.read_text(encoding="utf-8"))["project"]["nav"]))


def navigation_problems(named: list[str], pages: set[str]) -> list[str]:
    """Say which pages are missing in the navigation, are there twice, or do not exist."""
    listed = {page for page in pages if not page.startswith(_UNLISTED)}
    problems = [f"{page}: add it to `nav` in zensical.toml" for page in sorted(listed - set(named))]
    problems += [f"nav: {page} is no page" for page in sorted(set(named) - pages)]
    problems += [
        f"nav: {page} stands twice" for page in sorted(set(named)) if named.count(page) > 1
    ]
    return problems


def _pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            for value in entry.values():
                yield from _pages(value if isinstance(value, list) else [value])
