"""Draw playbacks as self-contained SVG elements, without scripts, fonts, links or `id`s.

Animation names are derived from the content, so that a page can hold any number of pictures.
"""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import quoteattr

from jaxlake.render import scene
from jaxlake.render.playback import Playback
from jaxlake.render.scene import number

_SECONDS_PER_STEP: Final = 0.6
_FADE: Final = 0.35
"""Duration of fading agents in and out, in steps."""

_DARK: Final = {
    ".panel": "fill:#0d141a",
    ".ground": "fill:#16212b",
    ".ice": "fill:#2c3f4f",
    ".hole": "fill:#06090c",
    ".pit": "stroke:#33485a",
    ".ink": "fill:#e6edf3",
    ".quiet": "fill:#93a1ae",
    ".segment": "fill:#3b4d5c",
    ".disc": "stroke:#0d141a",
    ".trail": "stroke-opacity:.85",
}
"""Style overrides for dark pages, by the role of a shape."""


def draw_svg(playback: Playback, cell: float, *, panel: bool = False) -> str:
    """Return a playback as one `<svg>` element.

    Args:
        playback: the playback.
        cell: side of a cell in pixels, above 0.
        panel: whether to paint a background, for pages of unknown colour.

    Raises:
        ValueError: `cell` is not positive.
    """
    if not cell > 0:
        raise ValueError(f"cell must be a positive number of pixels, got {cell}")
    actions = None if playback.actions is None else playback.actions.tolist()
    board = (array.tolist() for array in vars(playback.board).values())
    content = (*board, actions, playback.fault, cell, panel)
    digest = hashlib.sha256(repr(content).encode("utf-8", "replace")).hexdigest()
    name, picture = f"lake-{digest[:10]}", scene.scene(playback, float(cell), panel=panel)
    width, height = number(picture.width), number(picture.height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lake {name}" role="img" '
        f'aria-label={quoteattr(picture.title)} width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" text-anchor="middle" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif\">"
        f"<style>{_style(picture, name)}</style>{picture.elements}</svg>"
    )


def _style(picture: scene.Scene, name: str) -> str:
    """Return the CSS for dark pages and the animation, scoped to this picture."""
    rules = "".join(f".{name} {selector}{{{style}}}" for selector, style in _DARK.items())
    css = f"@media (prefers-color-scheme:dark){{{rules}}}"
    if picture.steps:
        moves = _animations(picture, name)
        css += f"@media screen and (prefers-reduced-motion:no-preference){{{moves}}}"
    return css


def _animations(picture: scene.Scene, name: str) -> str:
    steps = picture.steps
    cycle = scene.LEAD_IN + steps + scene.PAUSE

    def percent(moment: float) -> str:
        return f"{100 * moment / cycle:.3f}%"

    def keyframes(path: Sequence[scene.Point]) -> str:
        """Return keyframes through one point per step, without entries for waits."""
        stops = [("0%", path[0])]
        for t, (point, next_point) in enumerate(pairwise(path)):
            if point != next_point:
                stops.append((percent(scene.LEAD_IN + t), point))
                stops.append((percent(scene.LEAD_IN + t + scene.MOTION), next_point))
        stops.append(("100%", path[-1]))
        return "".join(
            f"{at}{{transform:translate({number(x)}px,{number(y)}px)}}" for at, (x, y) in stops
        )

    def rule(target: str, frames: str, timing: str = "ease-in-out") -> str:
        seconds = number(cycle * _SECONDS_PER_STEP)
        return (
            f"@keyframes {name}-{target}{{{frames}}}"
            f".{name} .{target}{{animation:{name}-{target} {seconds}s {timing} infinite}}"
        )

    rules = [rule(role, keyframes(path)) for role, path in picture.paths.items()]
    if picture.marked:
        start = percent(scene.LEAD_IN + steps - 1 + scene.MOTION)
        end = percent(scene.LEAD_IN + steps)
        rules.append(rule("mark", f"0%,{start}{{opacity:0}}{end},100%{{opacity:1}}"))
    fade = f"0%,100%{{opacity:0}}{percent(_FADE)},{percent(cycle - _FADE)}{{opacity:1}}"
    rules.append(rule("cast", fade, "linear"))
    return "".join(rules)
