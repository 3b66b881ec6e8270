"""The code and configuration of docs/tutorials/your_hooks.md run for one stage."""

import re
import sys
from pathlib import Path

import pytest
import yaml

from jaxlake import format_grid, parse_grid
from jaxlake.language.rewards import score
from tests.paths import ROOT, TINY
from training import loop
from training.audit import audit_run
from training.run.directory import RunDirectory
from training.schema import load, read_yaml

PAGE = (ROOT / "docs/tutorials/your_hooks.md").read_text(encoding="utf-8")


def read_block(language: str) -> str:
    """Return the page's first block of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0]


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny run with the page's section, in a folder with the page's module."""
    tree = read_yaml(TINY) | {"sampling": {"engine": "jax", "max_model_len": 1024}}
    for section, keys in yaml.safe_load(read_block("yaml")).items():
        tree[section] = tree[section] | keys if section in tree else keys
    tree["stages"] |= {"count": 1, "instances": 16}
    tree["warm_start"] |= {"steps": 10, "engineer_batch_size": 0}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    (tmp_path / "hooks.py").write_text(read_block("python"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "hooks", raising=False)
    return tmp_path / "tiny.yaml"


def test_page_template_is_read_from_a_file(tmp_path: Path):
    (tmp_path / "prompt.txt").write_text(read_block("text"), encoding="utf-8")
    assert load(TINY, [f"prompt.template={tmp_path}/prompt.txt"]).prompt.template == read_block(
        "text"
    )


@pytest.mark.slow
def test_page_hooks_complete_a_stage(configuration: Path, tmp_path: Path):
    config = load(configuration)
    loop.run(config, tmp_path / "run")
    import hooks

    files = RunDirectory(tmp_path / "run").stage(1)
    assert files.decision.read().engineer == "weakest"
    assert files.decision.read().kind in ("accepted", "unchanged")
    for episode in files.episodes.read():
        board = parse_grid(episode.lines)
        facts = score(episode.text, board, episode.lake.optimum, max_steps=16)
        assert episode.reward == pytest.approx(hooks.reasoning_bonus(episode.text, board, facts))
    assert not any(audit.problems for audit in audit_run(tmp_path / "run"))
    board = parse_grid(["S g H", "F F F", "G s F"])
    assert format_grid(board)[0] in hooks.name_holes(board)
    assert hooks.name_holes(board).endswith("Holes: (0, 2). Number your steps: Step 1, Step 2.\n")
    plan = "Step 1: none.\nStep 2: none.\nAgent 0: DOWN DOWN\nAgent 1: UP UP"
    facts = score(plan, board, 4)
    assert hooks.reasoning_bonus(plan, board, facts) == pytest.approx(1.04)
