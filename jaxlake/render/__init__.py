"""Pictures of boards and episodes: text, SVG (still and animated) and GIF."""

from jaxlake.render.episode import FAILURES
from jaxlake.render.picture import Picture, show
from jaxlake.render.svg import episode_svg
from jaxlake.render.text import board_text

__all__ = ["FAILURES", "Picture", "board_text", "episode_svg", "show"]
