"""What the site is made of, as Markdown pages and plain files by their places on the site."""

import ast
import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path

from tools.docs_site.command_help import commands_page
from tools.docs_site.configuration_keys import configuration_page
from tools.docs_site.links import Link, anchors, links, path_between, place_of, rewritten
from tools.docs_site.notebooks import notebook_page

ROOT = Path(__file__).resolve().parents[2]

ROOT_PAGES = {
    "README.md": "project/readme.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
"""Pages in the repository's root, and where they stand on the site."""

GENERATED = {
    "reference/configuration.md": configuration_page,
    "reference/commands.md": commands_page,
}
"""Pages of `docs/` that are generated; they are committed, so that links to them lead somewhere."""

_ALL_NAMES = re.compile(r"^<!-- all public names of ([\w.]+) -->$", re.MULTILINE)
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".toml": "toml", ".sh": "bash"}
_LANGUAGES |= {".jsonl": "json", ".jinja": "jinja", ".cff": "yaml", ".css": "css", ".txt": "text"}
_LONGEST_FILE = 150_000
"""Bytes of a linked file that a page is made of; larger ones are offered as they are."""


@dataclass
class Site:
    """The pages and files of the site, and what is wrong with them."""

    pages: dict[str, str] = field(default_factory=dict)  # Markdown by place on the site
    files: dict[str, Path | bytes] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)  # of the pages as the repository has them
    names: dict[str, str] = field(default_factory=dict)  # place on the site of what has a page


def collect(root: Path = ROOT) -> Site:
    """Put the site together from a checkout, with the links of its pages turned to each other."""
    site, sources = Site(), _sources(root)
    site.names = {source: place for source, (place, _) in sources.items()}
    for source, (place, text) in sources.items():
        found = _Follower(root, site, source, place, sources)
        site.pages[place] = rewritten(text, found.follow)
        site.problems += found.problems
    docs = root / "docs"
    for path in sorted(docs.rglob("*")):
        if path.is_file() and path.suffix != ".md":
            site.files[path.relative_to(docs).as_posix()] = path
    for notebook in sorted((root / "notebooks").glob("*.ipynb")):
        _, pictures = notebook_page(notebook, notebook.stem)
        site.files |= {f"notebooks/{name}": data for name, data in pictures.items()}
    return site


def generate(root: Path = ROOT) -> None:
    """Write the pages that are generated."""
    for place, write in GENERATED.items():
        (root / "docs" / place).write_text(write(), encoding="utf-8")


def stale_pages(root: Path = ROOT) -> list[str]:
    """Name the generated pages that are not what would be generated now."""
    return [
        f"docs/{place}: is not what `python -m tools.docs_site --generate` writes"
        for place, write in GENERATED.items()
        if not (path := root / "docs" / place).exists()
        or path.read_text(encoding="utf-8") != write()
    ]


def _sources(root: Path) -> dict[str, tuple[str, str]]:
    """Return the place on the site and the text of every page, by its place in the repository."""
    sources = {
        name: (place, (root / name).read_text(encoding="utf-8"))
        for name, place in ROOT_PAGES.items()
        if (root / name).exists()
    }
    for path in sorted((root / "docs").rglob("*.md")):
        place = path.relative_to(root / "docs").as_posix()
        text = path.read_text(encoding="utf-8")
        sources[f"docs/{place}"] = place, _ALL_NAMES.sub(lambda m: _described(root, m[1]), text)
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        text, _ = notebook_page(path, path.stem)
        sources[f"notebooks/{path.name}"] = f"notebooks/{path.stem}.md", text
    return sources


class _Follower:
    """Follows the links of one page, and makes pages of the files that they lead to."""

    def __init__(
        self, root: Path, site: Site, source: str, place: str, sources: dict[str, tuple[str, str]]
    ) -> None:
        self._root, self._site, self._source, self._place = root, site, source, place
        self.problems = [
            f"{source}:{link.line}: {problem}"
            for link in links(sources[source][1])
            if (problem := self._problem(link, sources))
        ]

    def _problem(self, link: Link, sources: dict[str, tuple[str, str]]) -> str | None:
        target = place_of(self._source, link.path)
        if (
            target not in sources
            and not (self._root / target).exists()
            and not self._picture(target)
        ):
            return f"{link.path} leads to {target}, which is not there"
        if link.anchor and target in sources and link.anchor not in anchors(sources[target][1]):
            return f"{link.path}#{link.anchor}: {target} has no such heading"
        return None

    def _picture(self, target: str) -> bool:
        """Whether it is an output of a notebook, which is no file in the repository."""
        return posixpath.dirname(target) == "notebooks" and target.endswith((".png", ".svg"))

    def follow(self, path: str) -> str:
        """Return the path on the site for a path in the repository, which stays if it is wrong."""
        target = place_of(self._source, path)
        file = self._root / target
        if target in self._site.names:
            place = self._site.names[target]
        elif target.startswith("docs/"):
            place = target.removeprefix("docs/")
        elif self._picture(target):
            place = target
        elif file.is_dir():
            place = f"files/{target}/index.md"
            names = sorted(entry.name + "/" * entry.is_dir() for entry in file.iterdir())
            listed = [f"- `{name}`" for name in names if not name.startswith(("__pycache__", "."))]
            self._site.pages[place] = f"# {target}/\n\n" + "\n".join(listed) + "\n"
        elif file.is_file():
            place = self._page_of(target, file)
        else:
            return path
        return path_between(self._place, place)

    def _page_of(self, target: str, file: Path) -> str:
        language = _LANGUAGES.get(file.suffix)
        if language is None or file.stat().st_size > _LONGEST_FILE:
            self._site.files[f"files/{target}"] = file
            return f"files/{target}"
        text = file.read_text(encoding="utf-8").rstrip("\n")
        fence = "`" * max([3, *(len(run[0]) + 1 for run in re.finditer("`+", text))])
        page = f"# {target}\n\n{fence}{language}\n{text}\n{fence}\n"
        self._site.pages[f"files/{target}.md"] = page
        return f"files/{target}.md"


def _described(root: Path, package: str) -> str:
    """Write a directive for each public name of a package, in the order of its `__init__.py`."""
    return "\n".join(f"::: {package}.{name}" for name in public_names(root, package))


def public_names(root: Path, package: str) -> list[str]:
    """Return the names that a package imports for others, without importing it."""
    tree = ast.parse((root / package.replace(".", "/") / "__init__.py").read_text("utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    names = [alias.asname or alias.name for node in imports for alias in node.names]
    return [name for name in names if not name.startswith("_")]
