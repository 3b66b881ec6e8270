"""Playbacks as animated GIFs, drawn by Pillow: importing this module needs the extra `pictures`."""

import math
from collections import Counter
from collections.abc import Sequence
from io import BytesIO
from typing import Any, Final

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from jaxlake.render import scene
from jaxlake.render.palette import PAPER
from jaxlake.render.playback import Playback

MAX_FRAMES: Final = 240
"""Pictures in one GIF: longer plans get fewer pictures per step."""

_FRAMES_PER_STEP: Final = 6
_SHORTEST_FRAME: Final = 20
"""Milliseconds; viewers slow down what is shorter."""

_FINE: Final = 4
"""Shapes are drawn this much larger and then reduced, for smooth edges."""

_LETTERS: Final = 1.15
"""Pillow's letters are that much smaller than those of browsers."""
_SMALLEST_TEXT: Final = 5.0
"""Pixels; smaller letters would be grey spots."""

_APART: Final = 10
"""The least distance of two colours in the palette, in the channel where it is largest."""


def episode_gif(playback: Playback, *, side: int = 640, seconds_per_step: float = 0.6) -> bytes:
    """Draw a playback as a GIF that loops, or a still one if it has no plan.

    It has at most `MAX_FRAMES` pictures and 256 colours. `side` is its largest width in pixels, 64
    to 2,048, with 4 to 44 pixels for a cell; a step takes `seconds_per_step`, 0.02 to 60.

    Raises:
        ValueError: an argument is out of range.
    """
    if not 64 <= side <= 2048:
        raise ValueError(f"side: got {side}, 64 to 2048 pixels are allowed")
    if not 0.02 <= seconds_per_step <= 60:
        raise ValueError(f"seconds_per_step: got {seconds_per_step}, 0.02 to 60 are allowed")
    cell = max(min(int(scene.cell_that_fits(playback, side)), 44), 4)
    film = _Film(scene.scene(playback, float(cell)))
    steps = film.steps
    moments = np.linspace(0, steps, min(steps * _FRAMES_PER_STEP, MAX_FRAMES - 1) + 1).tolist()
    palette = _palette(film.frame(0.0), film.frame(steps))
    frames = [
        film.frame(moment).quantize(palette=palette, dither=Image.Dither.NONE) for moment in moments
    ]
    options: dict[str, Any] = {}
    if steps:
        step = 1000 * seconds_per_step
        between = max(step * steps / (len(frames) - 1), _SHORTEST_FRAME)
        times = [scene.LEAD_IN * step + between, *[between] * (len(frames) - 2), scene.PAUSE * step]
        options = {"duration": [round(time / 10) * 10 for time in times], "loop": 0, "disposal": 1}
    out = BytesIO()
    frames[0].save(out, "GIF", save_all=steps > 0, append_images=frames[1:], **options)
    return out.getvalue()


class _Film:
    """What stands still, drawn once, and what moves or comes last, each on a layer of its own."""

    def __init__(self, picture: scene.Scene) -> None:
        self.steps = picture.steps
        self.size = math.ceil(picture.width), math.ceil(picture.height)
        self.ground = _drawn("RGB", self.size, picture.content)
        self.layers = [
            (group, self._layer(group))
            for group in scene.groups_in(picture.content)
            if group.path or group.at_the_end
        ]

    def frame(self, moment: float) -> Image.Image:
        picture = self.ground.copy()
        for group, layer in self.layers:
            if group.path:
                x, y = _place(group.path, moment)
                corner = round(x - layer.width / 2), round(y - layer.height / 2)
                picture.paste(layer, corner, layer)
            elif moment == self.steps:
                picture.paste(layer, (0, 0), layer)
        return picture

    def _layer(self, group: scene.Group) -> Image.Image:
        """A group on a transparent ground: around the origin if it moves, else where it stands."""
        if not group.path:
            return _drawn("RGBA", self.size, group.content)
        discs = [shape for shape in group.content if isinstance(shape, scene.Circle)]
        reach = math.ceil(max(disc.radius + disc.paint.width for disc in discs))
        return _drawn("RGBA", (2 * reach, 2 * reach), group.content, origin=reach)


def _drawn(
    mode: str,
    size: tuple[int, int],
    content: Sequence[scene.Shape | scene.Group],
    origin: float = 0.0,
) -> Image.Image:
    """Shapes, and groups that stand still, on paper (RGB) or on nothing (RGBA)."""
    ground = PAPER if mode == "RGB" else (255, 255, 255, 0)
    large = Image.new(mode, (_FINE * size[0], _FINE * size[1]), ground)
    # On a picture without transparency this blends colours that are not opaque.
    pen = ImageDraw.Draw(large, "RGBA")

    def at(x: float, y: float) -> scene.Point:
        return (origin + x) * _FINE, (origin + y) * _FINE

    def draw(item: scene.Shape | scene.Group) -> None:
        if isinstance(item, scene.Group):
            if not (item.path or item.at_the_end):
                for part in item.content:
                    draw(part)
            return
        paint = item.paint
        fill = None
        if paint.fill is not None:
            fill = (*ImageColor.getrgb(paint.fill)[:3], round(255 * paint.opacity))
        line = max(round(paint.width * _FINE), _FINE)
        # Half of a stroke lies outside of the outline; Pillow draws all of it inside of the box.
        out = paint.width / 2
        if isinstance(item, scene.Rectangle):
            right, bottom = item.x + item.width + out, item.y + item.height + out
            corners = [at(item.x - out, item.y - out), at(right, bottom)]
            radius = (item.radius + out) * _FINE
            pen.rounded_rectangle(corners, radius, fill, paint.stroke, line)
        elif isinstance(item, scene.Circle):
            reach = item.radius + out
            box = [at(item.x - reach, item.y - reach), at(item.x + reach, item.y + reach)]
            if paint.dashes is None:
                pen.ellipse(box, fill, paint.stroke, line)
            else:
                dash, gap = (math.degrees(length / item.radius) for length in paint.dashes)
                for start in np.arange(0, 360 - dash, dash + gap).tolist():
                    pen.arc(box, start, start + dash, paint.stroke, line)
        elif isinstance(item, scene.Lines):
            # Trails would need a shade of every agent's colour on every other colour.
            for points in () if paint.role == "trail" else item.parts:
                pen.line([at(*point) for point in points], paint.stroke, line)
        elif item.size >= _SMALLEST_TEXT:
            font = ImageFont.load_default(item.size * _LETTERS * _FINE)
            pen.text(at(item.x, item.y), item.words, fill, font, anchor="ms")

    for item in content:
        draw(item)
    return large.reduce(_FINE)


def _place(path: Sequence[scene.Point], moment: float) -> scene.Point:
    """The point of a path at a moment, eased: it rests at the end of each step."""
    t = min(int(moment), max(len(path) - 2, 0))
    share = min((moment - t) / scene.MOTION, 1.0)
    eased = share * share * (3 - 2 * share)
    (x, y), (next_x, next_y) = path[t], path[min(t + 1, len(path) - 1)]
    return x + eased * (next_x - x), y + eased * (next_y - y)


def _palette(*pictures: Image.Image) -> Image.Image:
    """The most frequent colours of some pictures: all flat ones, and most shades of edges."""
    counts: Counter[Any] = Counter()
    for picture in pictures:
        for count, colour in picture.getcolors(picture.width * picture.height) or ():
            counts[colour] += count
    colours = np.array(sorted(counts, key=lambda colour: (-counts[colour], colour)))
    taken = colours[:1]
    for colour in colours[1:]:
        # Pillow looks colours up in coarse boxes: of two in one box either may be found.
        if len(taken) < 256 and np.abs(taken - colour).max(axis=1).min() >= _APART:
            taken = np.concatenate([taken, colour[None]])
    palette = Image.new("P", (1, 1))
    palette.putpalette(taken.reshape(-1).tolist())
    return palette
