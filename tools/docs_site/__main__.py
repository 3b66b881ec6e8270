"""Check the documentation and build the site; see the package."""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from tools.docs_site.navigation import navigation, navigation_problems
from tools.docs_site.pages import ROOT, Site, collect, generate, stale_pages

CONFIG = ROOT / "zensical.toml"
PAGES = ROOT / "build" / "docs" / "pages"
BUILT = ROOT / "build" / "docs" / "site"


def main() -> int:
    """Return 0 if the site is built, or nothing was found, and 1 with what is wrong."""
    parser = argparse.ArgumentParser(description="Check the documentation and build the site.")
    parser.add_argument("--check", action="store_true", help="look for broken links, build nothing")
    parser.add_argument("--generate", action="store_true", help="write the generated pages first")
    options = parser.parse_args()
    if options.generate:
        generate()
    site = collect()
    problems = stale_pages() + site.problems
    problems += navigation_problems(navigation(CONFIG), set(site.pages))
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems or options.check:
        print(f"{len(site.pages)} pages, {len(problems)} problems")
        return bool(problems)
    write(site, PAGES)
    shutil.rmtree(BUILT, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    command += ["--config-file", str(CONFIG)]
    if code := subprocess.run(command, cwd=ROOT).returncode:
        return code
    print(f"{BUILT / 'index.html'}")
    return 0


def write(site: Site, folder: Path) -> None:
    """Write the pages and files of a site into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    for place, text in site.pages.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for place, content in site.files.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.read_bytes())


if __name__ == "__main__":
    sys.exit(main())
