"""Pictures of `show` in notebooks and files."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from jaxlake import parse_grid, stack_instances
from jaxlake.render import show

BOARD = parse_grid(["S s F", "F H A", "G g a"], max_size=5, max_agents=4)
HOLE_PLAN = [[2, 0, 2], [2, 2, 0]]
SAFE_PLAN = [[2, 0, 2], [2, 0, 0], [0, 3, 0], [0, 2, 0]]


def test_picture_marks_the_failure_of_its_plan() -> None:
    fault = show(BOARD, HOLE_PLAN).playback.fault
    assert fault is not None
    assert (fault.kind, fault.time, fault.agents, fault.cells) == ("hole", 1, (1,), ((1, 1),))
    assert show(BOARD, SAFE_PLAN, length=2).playback.fault is not None
    fault = show(BOARD, [[2, 0, 9]]).playback.fault
    assert fault is not None
    assert (fault.kind, fault.agents) == ("off_board", (2,))


def test_notebook_svg_is_well_formed_with_background() -> None:
    for picture in (show(BOARD), show(BOARD, HOLE_PLAN)):
        root = ElementTree.fromstring(picture._repr_html_())
        panel = [element for element in root.iter() if element.get("class") == "panel"]
        assert [element.get("width") for element in panel] == [root.get("width")]


def test_save_picture_format_follows_the_suffix(tmp_path: Path) -> None:
    picture = show(BOARD, HOLE_PLAN)
    prefixes = {"svg": b"<svg", "txt": b"t = 0"}
    for suffix, prefix in prefixes.items():
        path = picture.save(tmp_path / f"episode.{suffix}")
        assert path.read_bytes().startswith(prefix)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["episode.svg", "episode.txt"]
    with pytest.raises(ValueError, match=r"path must end in .* got .*episode\.gif"):
        picture.save(tmp_path / "episode.gif")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"plan": -np.ones((3, 4))}, "plan must hold actions, got only -1"),
        ({"plan": [[0, 0]]}, r"plan must have shape .* got \(1, 2\)"),
        ({"plan": HOLE_PLAN, "length": 3}, r"length must be in \[0, 2\], got 3"),
    ],
)
def test_invalid_plans_are_rejected(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        show(BOARD, **arguments)


def test_show_rejects_batches() -> None:
    with pytest.raises(ValueError, match="batch"):
        show(stack_instances([BOARD, BOARD]))
