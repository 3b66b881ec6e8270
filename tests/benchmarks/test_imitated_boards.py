"""Validation boards that were imitated are told apart by their prompts."""

from pathlib import Path

import pytest
import yaml

from benchmarks.imitated_boards import imitated_by_size, main
from jaxlake.language.prompts import render
from tests.paths import ROOT, TINY
from training.phases.validate import validation_set
from training.pretraining.boards import PROMPT_STYLE
from training.schema import load


def test_boards_with_a_prompt_of_the_pretraining_are_counted_by_size():
    boards = validation_set(load(TINY))
    prompts = {render(board, PROMPT_STYLE) for board in list(boards)[:3]}
    sizes = [int(board.size) for board in boards]
    found = imitated_by_size(prompts, boards)
    assert {size: count for size, (_, count) in found.items()} == {
        size: sizes.count(size) for size in (2, 3)
    }
    assert {size: seen for size, (seen, _) in found.items()} == {
        size: sizes[:3].count(size) for size in (2, 3)
    }


@pytest.mark.slow
def test_a_pretraining_that_drew_many_small_boards_has_seen_some_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """There are few boards of 3x3 with a hole, so that some come in both."""
    base = yaml.safe_load((ROOT / "configs/base.yaml").read_text())
    base["boards"] |= {"shares": {3: 1.0}, "hole_ratios": {0.1: 1.0}, "count": 400}
    base["goal"]["boards_per_cell"] = 4
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base))
    run = ["validation.sizes=[3]", "validation.hole_ratios=[0.1]", "validation.per_cell=60"]
    main(
        [str(ROOT / "configs/miniature.yaml"), "--base", str(tmp_path / "base.yaml"), "--set", *run]
    )
    *_, last = capsys.readouterr().out.splitlines()
    words = last.split()
    assert 0 < int(words[1]) < int(words[3])
