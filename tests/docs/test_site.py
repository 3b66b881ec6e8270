"""The documentation site: links resolve, and generated pages are complete."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import jaxlake
from tests.paths import ROOT
from tools.docs_site.links import find_anchors
from tools.docs_site.pages import Site, collect_site, find_navigation_problems
from training.schema import dump, load


@pytest.fixture(scope="module")
def site() -> Site:
    return collect_site()


def test_site_has_no_dead_links(site: Site):
    assert site.problems == []


def test_navigation_lists_each_page_once(site: Site):
    assert find_navigation_problems(ROOT / "zensical.toml", set(site.pages)) == []


def test_reference_lists_each_public_name_once():
    page = (ROOT / "docs/reference/jaxlake.md").read_text()
    documented_names = [name for name in find_anchors(page) if name.startswith("jaxlake.")]
    assert "solve" in jaxlake.__all__
    assert set(jaxlake.__all__) <= {name.removeprefix("jaxlake.") for name in documented_names}
    assert page.count("\n::: ") == len(documented_names)


def test_configuration_page_lists_every_run_key(site: Site):
    page = site.pages["reference/configuration.md"]
    tree = yaml.safe_load(dump(load(ROOT / "configs/paper.yaml")))
    for section, keys in tree.items():
        assert f"| `{section}` |" in page
        for key in keys if isinstance(keys, dict) else ():
            assert f"| `{key}` |" in page, f"{section}.{key}"
    assert "| `learning_rate` | number > 0 | `1e-06` | learning rate of AdamW |" in page
    assert '| `engine` | `vllm` or `server` or `jax` | `"vllm"` |' in page


def test_command_page_shows_each_help_text(site: Site):
    page = site.pages["reference/commands.md"]
    headings = re.findall(r"^##+ (.*)$", page, flags=re.MULTILINE)
    assert {"jaxlake run", "jaxlake solve", "jaxlake engineer replay"} <= set(headings)
    assert len([name for name in headings if name.count(" ") == 1]) >= 12
    assert "--stop-after S" in page.partition("## jaxlake run\n")[2].partition("## ")[0]


def test_prompts_page_shows_each_prompt(site: Site):
    page = site.pages["prompts.md"]
    policy_section, engineer_section = page.split("## The engineer")
    assert policy_section.count("\n<answer>\nAgent 0: RIGHT DOWN DOWN\n") == 1
    assert "after stage 2, which the next stage uses" in engineer_section
    assert '- 4x4, hole at time 3 on board "S F F g / ' in engineer_section
    assert re.search(r'^{"3":{"data_ratio":.*}$', engineer_section, re.MULTILINE)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with two pages and a file and without dead links."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "code.py").write_text("x = 1\n")
    (tmp_path / "docs/a.md").write_text("# A\n\n[b](b.md#in-b) and [code](../code.py)\n")
    (tmp_path / "docs/b.md").write_text("# B\n\n## In `B`\n\n[a](a.md), `[no](link.md)`\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[gone](c.md)", "docs/c.md, which is missing"),
        ("[gone](../no_code.py)", "no_code.py, which is missing"),
        ("[no heading](b.md#elsewhere)", "has no heading"),
        ("[here](#nowhere)", "has no heading"),
        ("![picture](pictures/no.svg)", "no.svg, which is missing"),
        ('<img src="no.svg">', "no.svg, which is missing"),
    ],
)
def test_dead_link_is_reported_with_its_line(checkout: Path, text: str, problem: str):
    (checkout / "docs/a.md").write_text(f"# A\n\n```\n[in code](no.md)\n```\n{text}\n")
    (message,) = collect_site(checkout).problems
    assert message.startswith("docs/a.md:6: ")
    assert problem in message


@pytest.mark.slow
def test_site_builds_without_warnings():
    pytest.importorskip("zensical", reason="make docs installs it")
    process = subprocess.run(
        [sys.executable, "-m", "tools.docs_site"], cwd=ROOT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout + process.stderr
    reference = (ROOT / "build/docs/site/reference/jaxlake.html").read_text()
    assert 'id="jaxlake.solve"' in reference
    assert "Longest plan to look for, in steps" in reference
    assert "True on holes and on every cell outside the board" in reference  # a field's comment
