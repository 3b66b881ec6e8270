"""What `show` gives a notebook and writes to files."""

import io
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageColor

from jaxlake import parse_grid, stack_instances
from jaxlake.render import Picture, show
from jaxlake.render.gif import MAX_FRAMES, episode_gif
from jaxlake.render.palette import AGENT_COLOURS, MARK

BOARD = parse_grid(["S s F", "F H A", "G g a"], max_size=5, max_agents=4)
HOLE = [[2, 0, 2], [2, 2, 0]]
SAFE = [[2, 0, 2], [2, 0, 0], [0, 3, 0], [0, 2, 0]]


def colours(image: Image.Image) -> set[str]:
    counted = image.convert("RGB").getcolors(1 << 20) or []
    return {"#{:02X}{:02X}{:02X}".format(*rgb) for n, rgb in counted if n >= 8}  # type: ignore[misc]


def frames(gif: bytes) -> list[Image.Image]:
    film = Image.open(io.BytesIO(gif))
    shots = []
    for i in range(film.n_frames):
        film.seek(i)
        shots.append(film.convert("RGB"))
    return shots


def test_a_picture_verifies_the_plan_itself_and_marks_what_it_finds() -> None:
    fault = show(BOARD, HOLE).playback.fault
    assert fault is not None
    assert (fault.kind, fault.time, fault.agents, fault.cells) == ("hole", 1, (1,), ((1, 1),))
    assert show(BOARD, SAFE, length=2).playback.fault is not None
    unknown = show(BOARD, [[2, 0, 9]]).playback.fault
    assert unknown is not None
    assert (unknown.kind, unknown.agents) == ("off_board", (2,))


def test_padding_after_the_last_move_is_not_played() -> None:
    padded = np.zeros((64, 4), np.int8)
    padded[:2, :3] = [[2, 0, 2], [2, 0, 0]]
    picture = show(BOARD, padded)
    assert picture.playback.actions is not None
    assert picture.playback.actions.shape == (2, 3)


def test_a_notebook_gets_well_formed_svg_that_carries_its_own_background() -> None:
    for picture in (show(BOARD), show(BOARD, HOLE)):
        root = ElementTree.fromstring(picture._repr_html_())
        panel = [one for one in root.iter() if one.get("class") == "panel"]
        assert [one.get("width") for one in panel] == [root.get("width")]


def test_a_file_has_the_format_of_its_name(tmp_path: Path) -> None:
    picture = show(BOARD, HOLE)
    kinds = {"svg": b"<svg", "gif": b"GIF89a", "txt": b"t = 0"}
    for kind, start in kinds.items():
        path = picture.save(tmp_path / f"episode.{kind}")
        assert path.read_bytes().startswith(start)
    assert {path.name for path in tmp_path.iterdir()} == {f"episode.{kind}" for kind in kinds}
    with pytest.raises(ValueError, match=r"path: got .*episode\.jpeg"):
        picture.save(tmp_path / "episode.jpeg")


def test_a_gif_loops_and_ends_with_the_mark_that_no_earlier_picture_has() -> None:
    gif = show(BOARD, HOLE).gif()
    assert Image.open(io.BytesIO(gif)).info["loop"] == 0
    shots = frames(gif)
    marked = [
        int((np.asarray(shot) == ImageColor.getrgb(MARK)).all(axis=-1).sum()) for shot in shots
    ]
    assert marked[-1] > 2 * max(marked[:-1])


def test_every_agent_keeps_its_colour_on_the_largest_board() -> None:
    rows = [["F"] * 32 for _ in range(32)]
    for i, (start, goal) in enumerate(zip("SsABC", "Ggabc", strict=True)):
        rows[7 * i][3], rows[7 * i][28] = start, goal
    picture = show(parse_grid([" ".join(row) for row in rows], max_size=32, max_agents=5))
    (shot,) = frames(picture.gif())
    assert {disc.upper() for disc, _ in AGENT_COLOURS} <= colours(shot)
    assert shot.width <= 640


def test_a_long_plan_gives_a_bounded_gif() -> None:
    plan = np.tile([[2, 0, 2], [1, 0, 1]], (200, 1))
    gif = episode_gif(show(BOARD, plan).playback, side=200, seconds_per_step=0.1)
    assert 200 < len(frames(gif)) <= MAX_FRAMES
    assert len(gif) < 1_500_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"plan": -np.ones((3, 4))}, "plan: got -1 throughout"),
        ({"plan": [[0, 0]]}, r"plan: got shape \(1, 2\)"),
        ({"plan": HOLE, "length": 3}, "length: got 3, 0 to 2"),
    ],
)
def test_what_is_no_plan_is_refused(arguments: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        show(BOARD, **arguments)


def test_other_sizes_and_batches_are_refused() -> None:
    picture = show(BOARD)
    with pytest.raises(ValueError, match="side: got 10"):
        picture.gif(side=10)
    with pytest.raises(ValueError, match="batch"):
        show(stack_instances([BOARD, BOARD]))
    assert isinstance(picture, Picture)


def test_without_pillow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "jaxlake.render.gif")
    with pytest.raises(ImportError, match=r"jaxlake\[pictures\]"):
        show(BOARD).gif()
