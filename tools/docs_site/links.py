"""Links in Markdown: rewritten outside of code, and the anchors that they may lead to."""

import re
from collections.abc import Callable, Iterator

_FENCE = re.compile(r"^( *)(`{3,}|~{3,})")
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_LINK = re.compile(r"(?<=\]\()[^()\s]+(?=[\s)])|(?<=src=\")[^\"]+(?=\")")
_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*\s*$")
_OBJECT = re.compile(r"^::: ([\w.]+)")
_ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:")


def rewritten(page: str, follow: Callable[[int, str, str], str]) -> str:
    """Return a page with the path of each link replaced.

    Args:
        page: Markdown. Code and links to other sites stay as they are.
        follow: maps a line number from 1, a path (empty: this page) and an anchor (empty: none) to
            the new path.
    """
    lines = page.splitlines()
    for number, line in _lines_of_text(page):
        plain = _CODE.sub(lambda code: " " * len(code[0]), line)

        def moved(match: re.Match[str], number: int = number, plain: str = plain) -> str:
            in_code = plain[match.start() : match.end()] != match[0]
            if in_code or _ELSEWHERE.match(match[0]):
                return match[0]
            path, sign, anchor = match[0].partition("#")
            return follow(number, path, anchor) + sign + anchor

        lines[number - 1] = _LINK.sub(moved, line)
    return "\n".join(lines) + "\n"


def anchors(page: str) -> set[str]:
    """Return the anchors of a page: headings as GitHub writes them, and documented objects."""
    names: set[str] = set()
    counts: dict[str, int] = {}
    for _, line in _lines_of_text(page):
        if heading := _HEADING.match(line):
            name = slug(heading[2])
            count = counts[name] = counts.get(name, -1) + 1
            names.add(f"{name}-{count}" if count else name)
        elif described := _OBJECT.match(line):
            names.add(described[1])
    return names


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and `pymdownx.slugs` make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def _lines_of_text(page: str) -> Iterator[tuple[int, str]]:
    """Yield the number, from 1, and the text of each line outside of fenced code."""
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
