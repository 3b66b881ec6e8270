"""Draw boards and episodes as text and as still or animated SVG."""

from jaxlake.render.picture import Picture, episode_svg, show
from jaxlake.render.terminal import board_text

__all__ = ["Picture", "board_text", "episode_svg", "show"]
