"""Pictures of boards and episodes: text, SVG (still and animated) and GIF."""

from jaxlake.render.picture import Picture, show
from jaxlake.render.playback import FAILURES
from jaxlake.render.svg import episode_svg
from jaxlake.render.terminal import board_text

__all__ = ["FAILURES", "Picture", "board_text", "episode_svg", "show"]
