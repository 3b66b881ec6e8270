"""Rewrite the links of Markdown pages outside of code, and list their anchors."""

import re
from collections.abc import Callable, Iterator

_FENCE = re.compile(r"^( *)(`{3,}|~{3,})")
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_LINK = re.compile(r"(?<=\]\()[^()\s]+(?=[\s)])|(?<=src=\")[^\"]+(?=\")")
_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*\s*$")
_OBJECT = re.compile(r"^::: ([\w.]+)")
_EXTERNAL = re.compile(r"^[a-z][a-z0-9+.-]*:")


def rewrite_links(page: str, follow: Callable[[int, str, str], str]) -> str:
    """Replace the path of each link in a page.

    Args:
        page: Markdown text. Code and links to other sites are unchanged.
        follow: Maps a line number (from 1), a path (empty for this page) and an anchor (empty for
            none) to the new path.
    """
    lines = page.splitlines()
    for number, line in _find_text_lines(page):
        text_without_code = _CODE.sub(lambda code: " " * len(code[0]), line)

        def replace(
            match: re.Match[str], number: int = number, text_without_code: str = text_without_code
        ) -> str:
            in_code = text_without_code[match.start() : match.end()] != match[0]
            if in_code or _EXTERNAL.match(match[0]):
                return match[0]
            path, sign, anchor = match[0].partition("#")
            return follow(number, path, anchor) + sign + anchor

        lines[number - 1] = _LINK.sub(replace, line)
    return "\n".join(lines) + "\n"


def find_anchors(page: str) -> set[str]:
    """Return the anchors of a page: GitHub's anchors of headings, and documented objects."""
    anchor_names: set[str] = set()
    counts: dict[str, int] = {}
    for _, line in _find_text_lines(page):
        if heading := _HEADING.match(line):
            name = slug(heading[2])
            count = counts[name] = counts.get(name, -1) + 1
            anchor_names.add(f"{name}-{count}" if count else name)
        elif directive := _OBJECT.match(line):
            anchor_names.add(directive[1])
    return anchor_names


def slug(heading: str) -> str:
    """Return the anchor that GitHub and `pymdownx.slugs` give a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def _find_text_lines(page: str) -> Iterator[tuple[int, str]]:
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
