"""Links in Markdown: found outside of code, followed, rewritten, and checked with their anchors."""

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^( *)(`{3,}|~{3,})")
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_LINK = re.compile(r"(?<=\]\()(?P<markdown>[^()\s]+)(?=[\s)])|(?<=src=\")(?P<html>[^\"]+)(?=\")")
_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*\s*$")
_OBJECT = re.compile(r"^::: ([\w.]+)")
_ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:")


@dataclass(frozen=True)
class Link:
    """A link of a page to a place in the repository or the site."""

    line: int  # from 1
    path: str  # as it is written, without the anchor; empty: the page itself
    anchor: str  # empty: none


def lines_of_text(page: str) -> Iterator[tuple[int, str]]:
    """Yield the number, from 1, and the text of each line that stands in no fence of code."""
    fence = ""
    for number, line in enumerate(page.splitlines(), 1):
        opening = _FENCE.match(line)
        if fence:
            if opening and line.strip() == opening[2] and opening[2].startswith(fence):
                fence = ""
        elif opening:
            fence = opening[2]
        else:
            yield number, line


def links(page: str) -> Iterator[Link]:
    """Yield every link of a page that leads nowhere else than to a place here."""
    for number, line in lines_of_text(page):
        for target in _targets(line):
            path, _, anchor = target.partition("#")
            yield Link(number, path, anchor)


def rewritten(page: str, follow: Callable[[str], str]) -> str:
    """Return the page with each path of a link replaced by what `follow` gives for it.

    Anchors, code, links to elsewhere and links within the page stay as they are.
    """
    lines = page.splitlines()
    for number, line in lines_of_text(page):
        plain = _without_code(line)

        def moved(match: re.Match[str], plain: str = plain) -> str:
            path, sign, anchor = match[0].partition("#")
            in_code = plain[match.start() : match.end()] != match[0]
            if in_code or not path or _ELSEWHERE.match(path):
                return match[0]
            return follow(path) + sign + anchor

        lines[number - 1] = _LINK.sub(moved, line)
    return "\n".join(lines) + "\n"


def anchors(page: str) -> set[str]:
    """Return the anchors of a page: its headings, as GitHub writes them, and documented objects."""
    found: set[str] = set()
    for _, line in lines_of_text(page):
        if heading := _HEADING.match(line):
            name = slug(heading[2])
            repeated = sum(
                1 for other in found if re.fullmatch(re.escape(name) + r"(-\d+)?", other)
            )
            found.add(f"{name}-{repeated}" if name in found else name)
        elif described := _OBJECT.match(line):
            found.add(described[1])
    return found


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and `pymdownx.slugs` make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def place_of(page: str, path: str) -> str:
    """Return the place that a path on a page leads to, both from the same root."""
    if not path:
        return page
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))


def path_between(page: str, place: str) -> str:
    """Return the path that leads from a page to a place, both from the same root."""
    return posixpath.relpath(place, posixpath.dirname(page) or ".")


def _targets(line: str) -> Iterator[str]:
    for match in _LINK.finditer(_without_code(line)):
        if not _ELSEWHERE.match(match[0]):
            yield match[0]


def _without_code(line: str) -> str:
    """Blank out code within a line, so that places in it stay the same."""
    return _CODE.sub(lambda code: " " * len(code[0]), line)
