"""What pyproject.toml can't say: the description that a package index shows.

That is README.md. Its relative links lead somewhere in the repository, and nowhere on an index, so
they become words with the path behind them, and pictures become what they show.
"""

import re
from pathlib import Path

from setuptools import setup

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_PICTURE = re.compile(
    r'<img\s[^>]*?src="([^"]+)"[^>]*?alt="([^"]*)"[^>]*>|!\[([^\]]*)\]\(([^)]+)\)'
)
_ELSEWHERE = ("https://", "http://", "mailto:")


def for_an_index(text: str) -> str:
    """Return Markdown without relative links and pictures; blocks of code stay as they are."""
    parts = re.split(r"(^```.*?^```)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if part.startswith("```") else _LINK.sub(_words, _PICTURE.sub(_shown, part))
        for part in parts
    )


def _words(link: re.Match[str]) -> str:
    words, target = link.groups()
    if target.startswith(_ELSEWHERE):
        return link[0]
    path = target.partition("#")[0]
    return words if path in words else f"{words} (`{path}`)"


def _shown(picture: re.Match[str]) -> str:
    source, alternative = picture[1] or picture[4], picture[2] or picture[3]
    return picture[0] if source.startswith(_ELSEWHERE) else f"<em>{alternative}</em>"


readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
setup(long_description=for_an_index(readme), long_description_content_type="text/markdown")
