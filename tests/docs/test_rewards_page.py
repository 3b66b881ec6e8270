"""The examples of docs/how_to/rewards.md run unchanged."""

import doctest
import re
from typing import Any

import pytest

from tests.paths import ROOT

FILE = ROOT / "docs/how_to/rewards.md"
PAGE = FILE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
EXAMPLES = [block for block in BLOCKS if block.startswith(">>>")]


def run_examples(blocks: list[str]) -> dict[str, Any]:
    """Run the blocks as doctests; return the names that they define."""
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "rewards.md", None, 0)
    report: list[str] = []
    results = doctest.DocTestRunner().run(test, out=report.append, clear_globs=False)
    assert results.failed == 0, "".join(report)
    assert results.attempted > 4 * len(blocks)
    return test.globs


def test_rewards_page_examples_give_shown_values():
    assert len(EXAMPLES) == 4
    run_examples(EXAMPLES[:3])


@pytest.mark.slow
def test_rewards_page_dataset_trains_a_model(tmp_path, monkeypatch):
    namespace = run_examples(EXAMPLES)
    (block,) = [block for block in BLOCKS if block not in EXAMPLES]
    code = block.replace('"runs/trl"', repr(str(tmp_path)))
    assert code != block
    monkeypatch.chdir(ROOT)
    exec(code, namespace)
    assert namespace["trainer"].state.global_step == 1
