"""Pictures of boards and episodes: text and SVG, still and animated."""

from jaxlake.render.picture import Picture, episode_svg, show
from jaxlake.render.terminal import board_text

__all__ = ["Picture", "board_text", "episode_svg", "show"]
