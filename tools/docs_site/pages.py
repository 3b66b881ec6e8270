"""The pages and files of the site, collected from the repository, with their links checked."""

import ast
import posixpath
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.docs_site.generated import commands_page, configuration_page
from tools.docs_site.links import anchors, rewritten
from tools.docs_site.notebooks import notebook_page
from tools.docs_site.prompts import prompts_page

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
    "reference/configuration.md": configuration_page,
    "reference/commands.md": commands_page,
    "prompts.md": prompts_page,
}
_ALL_NAMES = re.compile(r"^<!-- all public names of ([\w.]+) -->$", re.MULTILINE)


@dataclass
class Site:
    """The site by places on it, and what is wrong with its links."""

    pages: dict[str, str] = field(default_factory=dict)  # Markdown
    files: dict[str, Path | bytes] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def collect(root: Path = ROOT) -> Site:
    """Collect the site from a checkout, and turn links of the repository into links of the site."""
    site = Site()
    sources = {f"docs/{place}": (place, text) for place, text in _docs(root)}
    for name, place in _ROOT_PAGES.items():
        if (root / name).exists():
            sources[name] = place, (root / name).read_text(encoding="utf-8")
    for plan in sorted((root / _PLANS).glob("*.md")):
        sources[f"{_PLANS}/{plan.name}"] = f"plans/{plan.name}", plan.read_text(encoding="utf-8")
    for notebook in sorted((root / "notebooks").glob("*.ipynb")):
        text, pictures = notebook_page(notebook, notebook.stem)
        sources[f"notebooks/{notebook.name}"] = f"notebooks/{notebook.stem}.md", text
        site.files |= {f"notebooks/{name}": data for name, data in pictures.items()}
    for path in sorted((root / "docs").rglob("*")):
        if path.is_file() and path.suffix != ".md":
            site.files[path.relative_to(root / "docs").as_posix()] = path
    for source, (place, text) in sources.items():

        def follow(line: int, path: str, anchor: str, source: str = source) -> str:
            target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
            target = target if path else source
            location = _place_of(target, root, site, sources)
            if location is None:
                site.problems.append(f"{source}:{line}: {path} leads to {target}, which is missing")
                return path
            if anchor and target in sources and anchor not in anchors(sources[target][1]):
                site.problems.append(f"{source}:{line}: {target} has no heading #{anchor}")
            return posixpath.relpath(location, posixpath.dirname(sources[source][0]) or ".") * bool(
                path
            )

        site.pages[place] = rewritten(text, follow)
    return site


def _docs(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each page of `docs/`, generated pages included."""
    docs = root / "docs"
    for path in sorted(docs.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        yield (
            path.relative_to(docs).as_posix(),
            _ALL_NAMES.sub(lambda match: _directives(root, match[1]), text),
        )
    if (docs / "reference").is_dir():
        for place, write in _GENERATED.items():
            yield place, write()


def _place_of(
    target: str, root: Path, site: Site, sources: dict[str, tuple[str, str]]
) -> str | None:
    """Return the place on the site of a path in the repository; None if there is no such file.

    Linked files outside of `docs/` become files of the site, and folders lists of their files.
    """
    if target in sources:
        return sources[target][0]
    if target in site.files:  # a picture of a notebook
        return target
    path, place = root / target, f"files/{target}"
    if path.is_dir():
        names = sorted(entry.name for entry in path.iterdir() if entry.name[0] not in "._")
        listed = "".join(f"- `{name}`\n" for name in names)
        site.pages[f"{place}/index.md"] = f"# {target}/\n\n{listed}"
        return f"{place}/index.md"
    if not path.is_file():
        return None
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    site.files[place] = path
    return place


def _directives(root: Path, package: str) -> str:
    """Write mkdocstrings' directive for each public name of a package."""
    return "\n".join(f"::: {package}.{name}" for name in public_names(root, package))


def public_names(root: Path, package: str) -> list[str]:
    """Return the names that a package's `__init__.py` imports, in its order, without running it."""
    tree = ast.parse((root / package.replace(".", "/") / "__init__.py").read_text("utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    names = [alias.asname or alias.name for node in imports for alias in node.names]
    return [name for name in names if not name.startswith("_")]


def navigation_problems(config: Path, pages: set[str]) -> list[str]:
    """Return the pages that `nav` in zensical.toml lacks, repeats, or names although missing.

    Plans and copies of linked files are reached by links alone.
    """
    nav_pages = list(_named(tomllib.loads(config.read_text(encoding="utf-8"))["project"]["nav"]))
    listed = {page for page in pages if not page.startswith(_UNLISTED)}
    problems = [f"nav: {page} is not listed" for page in sorted(listed - set(nav_pages))]
    problems += [f"nav: {page} does not exist" for page in sorted(set(nav_pages) - pages)]
    repeated = {page for page in nav_pages if nav_pages.count(page) > 1}
    return problems + [f"nav: {page} is listed twice" for page in sorted(repeated)]


def _named(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            if isinstance(value, list):
                yield from _named(value)
            else:
                yield value
