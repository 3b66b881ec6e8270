"""Drawing of playbacks as self-contained SVG elements, without scripts, fonts, links or `id`s.

Class and animation names are derived from the content, so a page can hold many pictures.
"""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import quoteattr

from jaxlake.render.playback import Playback
from jaxlake.render.scene import LEAD_IN, MOTION, PAUSE, Point, Scene, format_number, make_scene

_SECONDS_PER_STEP: Final = 0.6
_FADE: Final = 0.35
"""Duration of fading agents in and out, in steps."""

_DARK_STYLES: Final = {
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
    name, scene = f"lake-{digest[:10]}", make_scene(playback, float(cell), panel=panel)
    width, height = format_number(scene.width), format_number(scene.height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lake {name}" role="img" '
        f'aria-label={quoteattr(scene.title)} width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" text-anchor="middle" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif\">"
        f"<style>{_make_style(scene, name)}</style>{scene.elements}</svg>"
    )


def _make_style(scene: Scene, name: str) -> str:
    """Return the CSS for dark pages and the animation, scoped to this picture."""
    rules = "".join(f".{name} {selector}{{{style}}}" for selector, style in _DARK_STYLES.items())
    css = f"@media (prefers-color-scheme:dark){{{rules}}}"
    if scene.steps:
        animations = _make_animations(scene, name)
        css += f"@media screen and (prefers-reduced-motion:no-preference){{{animations}}}"
    return css


def _make_animations(scene: Scene, name: str) -> str:
    duration = LEAD_IN + scene.steps + PAUSE

    def percent(time: float) -> str:
        return f"{100 * time / duration:.3f}%"

    def make_keyframes(path: Sequence[Point]) -> str:
        """Return keyframes through one point per step, without entries for waits."""
        keyframes = [("0%", path[0])]
        for t, (point, next_point) in enumerate(pairwise(path)):
            if point != next_point:
                keyframes.append((percent(LEAD_IN + t), point))
                keyframes.append((percent(LEAD_IN + t + MOTION), next_point))
        keyframes.append(("100%", path[-1]))
        css = ""
        for time, point in keyframes:
            x, y = map(format_number, point)
            css += f"{time}{{transform:translate({x}px,{y}px)}}"
        return css

    def make_rule(role: str, keyframes: str, timing: str = "ease-in-out") -> str:
        seconds = format_number(duration * _SECONDS_PER_STEP)
        return (
            f"@keyframes {name}-{role}{{{keyframes}}}"
            f".{name} .{role}{{animation:{name}-{role} {seconds}s {timing} infinite}}"
        )

    rules = [make_rule(role, make_keyframes(path)) for role, path in scene.paths.items()]
    if scene.has_marks:
        start, end = percent(LEAD_IN + scene.steps - 1 + MOTION), percent(LEAD_IN + scene.steps)
        rules.append(make_rule("mark", f"0%,{start}{{opacity:0}}{end},100%{{opacity:1}}"))
    fade = f"0%,100%{{opacity:0}}{percent(_FADE)},{percent(duration - _FADE)}{{opacity:1}}"
    rules.append(make_rule("cast", fade, "linear"))
    return "".join(rules)
