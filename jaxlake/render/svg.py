"""Playbacks as SVG: a still picture of a board, or an animated one where there is a plan.

A picture is one SVG element that holds everything it needs: no script, no font, no link, and no
`id` attribute, so any number of pictures can stand in one page. The animation is CSS keyframes with
names derived from the content. Readers who ask for reduced motion see the last frame and every
agent's path.
"""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from jaxlake.board.grids import parse_grid
from jaxlake.render import scene
from jaxlake.render.playback import MAX_AGENTS, Playback, actions_of_agents, board_of_instance, play

_FADE: Final = 0.35
"""How long the agents take to come and to go, in steps."""

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
"""What differs on dark pages, by the role of a shape."""


def episode_svg(
    grid: Sequence[str],
    plan: Sequence[Sequence[str | int]] | None,
    *,
    failure: str | None = None,
    failure_agent: int | None = None,
    failure_time: int | None = None,
    cell: float = 36,
    seconds_per_step: float = 0.6,
) -> str:
    """Draw one board, with the plan played on it, as one `<svg>` element of well-formed XML.

    Args:
        grid: the rows of the board in the published symbols, as `parse_grid` reads them; 1 to 5
            agents.
        plan: one sequence of actions (names, or numbers 0..4) for each agent; an agent whose
            sequence is shorter waits. None gives a still picture.
        failure: one of `FAILURES`, or None. The plan is played up to it, and it is marked there.
        failure_agent: the lowest agent involved, as the verifier says it; None or -1: none.
        failure_time: the 0-based step in which it happens; None or -1: none.
        cell: side of a cell in pixels.
        seconds_per_step: duration of one step of the plan in seconds.

    Raises:
        ValueError: names the row, agent, step or argument that is wrong, and what is allowed
            (for the grid, a `GridError`).
    """
    instance = parse_grid(grid, max_size=max(len(grid), 1), max_agents=MAX_AGENTS)
    board = board_of_instance(instance)
    actions = None if plan is None else actions_of_agents(plan, len(board.starts))
    playback = play(board, actions, failure=failure, agent=failure_agent, time=failure_time)
    return draw_svg(playback, cell, seconds_per_step)


def draw_svg(playback: Playback, cell: float, seconds_per_step: float, panel: bool = False) -> str:
    """Draw a playback as one `<svg>` element, with cells of so many pixels.

    A `panel` paints the background, for pages whose own colour is not known. A `cell` or
    `seconds_per_step` that is not positive is a `ValueError`.
    """
    if not cell > 0 or not seconds_per_step > 0:
        raise ValueError(
            f"cell, seconds_per_step: got {cell}, {seconds_per_step}; both must be positive"
        )
    actions = None if playback.actions is None else playback.actions.tolist()
    board = (array.tolist() for array in vars(playback.board).values())
    content = (*board, actions, playback.fault, cell, seconds_per_step, panel)
    digest = hashlib.sha256(repr(content).encode("utf-8", "replace")).hexdigest()
    name, picture = f"lake-{digest[:10]}", scene.scene(playback, float(cell), panel=panel)
    width, height = _number(picture.width), _number(picture.height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lake {name}" role="img" '
        f'aria-label={quoteattr(picture.title)} width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" text-anchor="middle" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif\">"
        f"<style>{_style(picture, name, float(seconds_per_step))}</style>"
        f"{''.join(map(_element, picture.content))}</svg>"
    )


def _element(item: scene.Shape | scene.Group) -> str:
    if isinstance(item, scene.Group):
        role = f' class="{item.role}"' if item.role else ""
        content = "".join(map(_element, item.content))
        place = ""
        if item.path:
            place = ' transform="translate({} {})"'.format(*map(_number, item.path[-1]))
        return f"<g{role}{place}>{content}</g>"
    paint = _paint(item.paint)
    role = f'class="{item.paint.role}" ' if item.paint.role else ""
    if isinstance(item, scene.Rectangle):
        place = _attributes(
            x=item.x, y=item.y, width=item.width, height=item.height, rx=item.radius
        )
        return f"<rect {place} {role}{paint}/>"
    if isinstance(item, scene.Text):
        place = _attributes(x=item.x, y=item.y, font_size=item.size)
        weight = "" if item.weight is None else f' font-weight="{item.weight}"'
        return f"<text {place} {role}{paint}{weight}>{escape(item.words)}</text>"
    if isinstance(item, scene.Circle):
        place = _attributes(cx=item.x, cy=item.y) + " " if item.x or item.y else ""
        return f'<circle {role}{place}r="{_number(item.radius)}" {paint}/>'
    parts = [[f"{_number(x)},{_number(y)}" for x, y in part] for part in item.parts]
    if len(parts) == 1:
        ends = 'stroke-linecap="round" stroke-linejoin="round"'
        return f'<polyline {role}points="{" ".join(parts[0])}" {paint} {ends}/>'
    stroke = paint.removeprefix('fill="none" ')
    d = "".join("M" + "L".join(part).replace(",", " ") for part in parts)
    return f'<path {role}d="{d}" {stroke} stroke-linecap="round"/>'


def _paint(paint: scene.Paint) -> str:
    parts = [f'fill="{paint.fill or "none"}"']
    if paint.fill is not None and paint.opacity != 1:
        parts.append(f'fill-opacity="{paint.opacity:g}"')
    if paint.stroke is not None:
        parts.append(f'stroke="{paint.stroke}" stroke-width="{_number(paint.width)}"')
    if paint.fill is None and paint.opacity != 1:
        parts.append(f'stroke-opacity="{paint.opacity:g}"')
    if paint.dashes is not None:
        parts.append(f'stroke-dasharray="{" ".join(map(_number, paint.dashes))}"')
    return " ".join(parts)


def _attributes(**values: float) -> str:
    return " ".join(f'{key.replace("_", "-")}="{_number(v)}"' for key, v in values.items())


def _number(value: float) -> str:
    """At most two decimals and no trailing zeros: pixels need no more."""
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def _style(picture: scene.Scene, name: str, seconds_per_step: float) -> str:
    """Dark colours, and the animation; every selector is scoped to this picture."""
    rules = "".join(f".{name} {selector}{{{style}}}" for selector, style in _DARK.items())
    css = f"@media (prefers-color-scheme:dark){{{rules}}}"
    if picture.steps:
        moves = _animations(picture, name, seconds_per_step)
        css += f"@media screen and (prefers-reduced-motion:no-preference){{{moves}}}"
    return css


def _animations(picture: scene.Scene, name: str, seconds_per_step: float) -> str:
    steps = picture.steps
    cycle = scene.LEAD_IN + steps + scene.PAUSE

    def percent(moment: float) -> str:
        return f"{100 * moment / cycle:.3f}%"

    def keyframes(path: Sequence[scene.Point]) -> str:
        """Keyframes through one point per moment; a point that is waited at costs nothing."""
        stops = [("0%", path[0])]
        for t, (here, there) in enumerate(pairwise(path)):
            if here != there:
                stops.append((percent(scene.LEAD_IN + t), here))
                stops.append((percent(scene.LEAD_IN + t + scene.MOTION), there))
        stops.append(("100%", path[-1]))
        return "".join(
            f"{at}{{transform:translate({_number(x)}px,{_number(y)}px)}}" for at, (x, y) in stops
        )

    def rule(target: str, frames: str, timing: str = "ease-in-out") -> str:
        seconds = _number(cycle * seconds_per_step)
        return (
            f"@keyframes {name}-{target}{{{frames}}}"
            f".{name} .{target}{{animation:{name}-{target} {seconds}s {timing} infinite}}"
        )

    groups = list(scene.groups_in(picture.content))
    rules = [rule(group.role, keyframes(group.path)) for group in groups if group.path]
    if any(group.at_the_end for group in groups):
        struck = percent(scene.LEAD_IN + steps - 1 + scene.MOTION)
        shown = percent(scene.LEAD_IN + steps)
        rules.append(rule("mark", f"0%,{struck}{{opacity:0}}{shown},100%{{opacity:1}}"))
    fade = f"0%,100%{{opacity:0}}{percent(_FADE)},{percent(cycle - _FADE)}{{opacity:1}}"
    rules.append(rule("cast", fade, "linear"))
    return "".join(rules)
