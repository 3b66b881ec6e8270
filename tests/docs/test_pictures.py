"""The pictures of the README are small, without scripts, and what their script draws."""

from xml.etree import ElementTree

import pytest

import jaxlake
from tests.paths import ROOT
from tools.docs_pictures import LAKE, LAKE_FILE, lake_svg


@pytest.mark.parametrize("name", ["lake.svg", "loop.svg"])
def test_pictures_are_small_and_hold_all_that_they_need(name: str):
    text = (ROOT / "docs/pictures" / name).read_text(encoding="utf-8")
    assert len(text) < 20_000
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
    assert not tags & {"script", "image", "foreignObject", "use"}
    assert "prefers-color-scheme:dark" in text


def test_the_lake_of_the_readme_shows_the_board_of_its_script():
    board = jaxlake.parse_grid(LAKE)
    assert int(board.agent_mask.sum()) == 4
    still = jaxlake.show(board, cell=30).playback.board
    drawn = LAKE_FILE.read_text(encoding="utf-8")
    assert f"{len(still.starts)} agents" in drawn


@pytest.mark.slow
def test_the_lake_of_the_readme_is_what_its_script_draws():
    assert lake_svg() == LAKE_FILE.read_text(encoding="utf-8")
