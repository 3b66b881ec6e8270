"""Collect the pages and files of the site from the repository, and check their links."""

import ast
import posixpath
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.docs_site.generated import make_commands_page, make_configuration_page
from tools.docs_site.links import find_anchors, rewrite_links
from tools.docs_site.notebooks import make_notebook_page
from tools.docs_site.prompts import make_prompts_page

ROOT = Path(__file__).resolve().parents[2]

_ROOT_PAGES = {
    "README.md": "project/readme.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "benchmarks/results/README.md": "study_tables.md",
}
_PLANS = "benchmarks/results/plans"
_UNLISTED = ("files/", "plans/", "project/readme.md")
_GENERATED = {
    "reference/configuration.md": make_configuration_page,
    "reference/commands.md": make_commands_page,
    "prompts.md": make_prompts_page,
}
_ALL_NAMES = re.compile(r"^<!-- all public names of ([\w.]+) -->$", re.MULTILINE)


@dataclass
class Site:
    """Pages and files by their path on the site, and the problems of their links."""

    pages: dict[str, str] = field(default_factory=dict)  # Markdown
    files: dict[str, Path | bytes] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def collect_site(root: Path = ROOT) -> Site:
    """Collect the site from a checkout, and turn repository links into site links."""
    site = Site()
    sources = {f"docs/{site_path}": (site_path, text) for site_path, text in _read_docs_pages(root)}
    for name, site_path in _ROOT_PAGES.items():
        if (root / name).exists():
            sources[name] = site_path, (root / name).read_text(encoding="utf-8")
    for plan in sorted((root / _PLANS).glob("*.md")):
        sources[f"{_PLANS}/{plan.name}"] = f"plans/{plan.name}", plan.read_text(encoding="utf-8")
    for notebook in sorted((root / "notebooks").glob("*.ipynb")):
        text, pictures = make_notebook_page(notebook, notebook.stem)
        sources[f"notebooks/{notebook.name}"] = f"notebooks/{notebook.stem}.md", text
        site.files |= {f"notebooks/{name}": data for name, data in pictures.items()}
    for path in sorted((root / "docs").rglob("*")):
        if path.is_file() and path.suffix != ".md":
            site.files[path.relative_to(root / "docs").as_posix()] = path
    for source, (site_path, text) in sources.items():

        def follow(line: int, path: str, anchor: str, source: str = source) -> str:
            target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
            target = target if path else source
            location = _find_site_path(target, root, site, sources)
            if location is None:
                site.problems.append(f"{source}:{line}: {path} leads to {target}, which is missing")
                return path
            if anchor and target in sources and anchor not in find_anchors(sources[target][1]):
                site.problems.append(f"{source}:{line}: {target} has no heading #{anchor}")
            return posixpath.relpath(location, posixpath.dirname(sources[source][0]) or ".") * bool(
                path
            )

        site.pages[site_path] = rewrite_links(text, follow)
    return site


def _read_docs_pages(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the site path and the text of each page of `docs/` and of each generated page."""
    docs = root / "docs"
    for path in sorted(docs.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        yield (
            path.relative_to(docs).as_posix(),
            _ALL_NAMES.sub(lambda match: _reference_directives(root, match[1]), text),
        )
    if (docs / "reference").is_dir():
        for site_path, make_page in _GENERATED.items():
            yield site_path, make_page()


def _find_site_path(
    target: str, root: Path, site: Site, sources: dict[str, tuple[str, str]]
) -> str | None:
    """Return the site path of a repository path, or None if it does not exist.

    Linked files outside of `docs/` are added to the site; linked folders become lists of files.
    """
    if target in sources:
        return sources[target][0]
    if target in site.files:  # a picture of a notebook
        return target
    path, file_path = root / target, f"files/{target}"
    if path.is_dir():
        names = sorted(entry.name for entry in path.iterdir() if entry.name[0] not in "._")
        file_list = "".join(f"- `{name}`\n" for name in names)
        site.pages[f"{file_path}/index.md"] = f"# {target}/\n\n{file_list}"
        return f"{file_path}/index.md"
    if not path.is_file():
        return None
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    site.files[file_path] = path
    return file_path


def _reference_directives(root: Path, package: str) -> str:
    """Return mkdocstrings' directive for each public name of a package."""
    return "\n".join(f"::: {package}.{name}" for name in list_public_names(root, package))


def list_public_names(root: Path, package: str) -> list[str]:
    """Return the names that a package's `__init__.py` imports, in order, without importing it."""
    tree = ast.parse((root / package.replace(".", "/") / "__init__.py").read_text("utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    names = [alias.asname or alias.name for node in imports for alias in node.names]
    return [name for name in names if not name.startswith("_")]


def find_navigation_problems(config: Path, pages: set[str]) -> list[str]:
    """Return the pages that are missing, repeated or unknown in `nav` of zensical.toml.

    Plans and copies of linked files need no entry, because pages link to them.
    """
    nav_pages = list(
        _list_nav_pages(tomllib.loads(config.read_text(encoding="utf-8"))["project"]["nav"])
    )
    listed_pages = {page for page in pages if not page.startswith(_UNLISTED)}
    problems = [f"nav: {page} is not listed" for page in sorted(listed_pages - set(nav_pages))]
    problems += [f"nav: {page} does not exist" for page in sorted(set(nav_pages) - pages)]
    repeated_pages = {page for page in nav_pages if nav_pages.count(page) > 1}
    return problems + [f"nav: {page} is listed twice" for page in sorted(repeated_pages)]


def _list_nav_pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            if isinstance(value, list):
                yield from _list_nav_pages(value)
            else:
                yield value
