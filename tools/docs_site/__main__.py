"""`python -m tools.docs_site`: check the documentation and build the site."""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from tools.docs_site.pages import ROOT, Site, collect_site, find_navigation_problems

CONFIG = ROOT / "zensical.toml"
PAGES = ROOT / "build" / "docs" / "pages"
SITE = ROOT / "build" / "docs" / "site"


def main() -> int:
    """Build or check the site; return 1 if the check finds problems."""
    parser = argparse.ArgumentParser(description="Check the documentation and build the site.")
    parser.add_argument("--check", action="store_true", help="look for broken links, build nothing")
    options = parser.parse_args()
    site = collect_site()
    problems = site.problems + find_navigation_problems(CONFIG, set(site.pages))
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems or options.check:
        print(f"{len(site.pages)} pages, {len(problems)} problems")
        return bool(problems)
    write_site(site, PAGES)
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    command += ["--config-file", str(CONFIG)]
    if status := subprocess.run(command, cwd=ROOT).returncode:
        return status
    print(f"{SITE / 'index.html'}")
    return 0


def write_site(site: Site, folder: Path) -> None:
    """Write the pages and files of a site into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    contents: dict[str, bytes] = {
        site_path: text.encode() for site_path, text in site.pages.items()
    }
    for site_path, file in site.files.items():
        contents[site_path] = file if isinstance(file, bytes) else file.read_bytes()
    for site_path, data in contents.items():
        (folder / site_path).parent.mkdir(parents=True, exist_ok=True)
        (folder / site_path).write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())
