"""An episode as an animated GIF, by Pillow (the extra `pictures`)."""

from __future__ import annotations

from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from jaxlake.render.episode import Episode, caption, whereabouts
from jaxlake.render.motion import LEAD_IN, MOTION, PAUSE, Motion, motion
from jaxlake.render.palette import (
    AGENT_COLOURS,
    GROUND,
    HOLE,
    ICE,
    INK,
    MARK,
    PAPER,
    PIT,
    QUIET,
    SEGMENT,
)

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_FRAMES: Final = 240
"""Pictures in one GIF: longer plans get fewer pictures a step."""

_FRAMES_A_STEP: Final = 6
_SHORTEST_FRAME: Final = 20
"""Milliseconds; viewers slow down what is shorter."""

_FINE: Final = 4
"""Shapes are drawn this much larger and then reduced, for smooth edges."""

_MARGIN: Final = 0.8
_SMALLEST_TEXT: Final = 11.0


def episode_gif(episode: Episode, *, side: int = 640, seconds_per_step: float = 0.6) -> bytes:
    """Draw an episode as a GIF that loops; a still one if it has no plan.

    Args:
        episode: what to draw.
        side: largest width in pixels, 64 to 2,048. Cells have at most 44 pixels.
        seconds_per_step: duration of one step of the plan in seconds.

    Returns:
        The bytes of a GIF of at most `MAX_FRAMES` pictures and 256 colours.

    Raises:
        ImportError: Pillow is not installed.
        ValueError: an argument is out of range.
    """
    if not 64 <= side <= 2048:
        raise ValueError(f"side: got {side}, 64 to 2048 pixels are allowed")
    if not 0.02 <= seconds_per_step <= 60:
        raise ValueError(f"seconds_per_step: got {seconds_per_step}, 0.02 to 60 are allowed")
    _pillow()
    canvas = _Canvas(episode, side)
    track = motion(episode)
    out = BytesIO()
    if track is None or track.steps == 0:
        _few_colours(canvas.frame(track, 0.0, ended=True)).save(out, "GIF")
        return out.getvalue()
    pictures, durations = _film(canvas, track, seconds_per_step)
    pictures[0].save(
        out,
        "GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=durations,
        loop=0,
        disposal=1,
    )
    return out.getvalue()


def _pillow() -> Any:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise ImportError(
            "drawing a GIF needs Pillow: install the extra `pictures` (jaxlake[pictures])"
        ) from error
    return Image, ImageDraw, ImageFont


def _film(canvas: _Canvas, track: Motion, seconds_per_step: float) -> tuple[list[Image], list[int]]:
    """All pictures and their milliseconds."""
    whole = track.steps * _FRAMES_A_STEP
    moments = np.linspace(0, track.steps, min(whole, MAX_FRAMES - 1) + 1)
    frames = [canvas.frame(track, float(m), ended=False) for m in moments[:-1]]
    frames.append(canvas.frame(track, float(track.steps), ended=True))
    pictures = [_few_colours(frame) for frame in frames]
    step = 1000 * seconds_per_step
    between = max(step * track.steps / (len(frames) - 1), _SHORTEST_FRAME)
    durations = [LEAD_IN * step + between, *[between] * (len(frames) - 2), PAUSE * step]
    return pictures, [round(d / 10) * 10 for d in durations]


class _Canvas:
    """One board drawn once, and the discs that move over it."""

    def __init__(self, episode: Episode, side: int) -> None:
        size = len(episode.board.holes)
        words = [words for words in (caption(episode), whereabouts(episode)) if words]
        self.size = size
        self.cell = max(min(int(side / (size + 2 * _MARGIN)), 44), 4)
        self.width = max(round((size + 2 * _MARGIN) * self.cell), min(side, 240))
        self.left = (self.width - size * self.cell) / 2
        self.top = _MARGIN * self.cell
        self.timeline = (size + 2 * _MARGIN) * self.cell
        self.line = max(0.36 * self.cell, _SMALLEST_TEXT) * 1.5
        self.height = round(self.timeline + 0.4 * self.cell + self.line * len(words))
        self.episode = episode
        self.ground = self._ground(words)
        self.discs = [self._disc(k) for k in range(len(episode.board.starts))]

    def x(self, column: float) -> float:
        return self.left + (column + 0.5) * self.cell

    def y(self, row: float) -> float:
        return self.top + (row + 0.5) * self.cell

    def frame(self, track: Motion | None, moment: float, *, ended: bool) -> Image:
        """The picture at a moment 0..T; `ended` adds the marks of the fault."""
        picture = self.ground.copy()
        if track is not None:
            self._draw_timeline(picture, track, moment)
            if ended and track.marks:
                self._draw_frames(picture, track)
        for disc, (row, column) in zip(self.discs, self._places(track, moment), strict=True):
            corner = (
                round(self.x(column) - disc.width / 2),
                round(self.y(row) - disc.height / 2),
            )
            picture.paste(disc, corner, disc)
        if track is not None and ended:
            for row, column in track.marks:
                self._draw_cross(picture, row, column)
        return picture

    def _places(self, track: Motion | None, moment: float) -> np.ndarray:
        if track is None:
            return self.episode.board.starts
        t = min(int(moment), max(track.steps - 1, 0))
        share = min((moment - t) / MOTION, 1.0)
        eased = share * share * (3 - 2 * share)
        following = min(t + 1, track.steps)
        return track.frames[t] + eased * (track.frames[following] - track.frames[t])

    def _fine(self, box: tuple[float, float, float, float], draw: Any, onto: Image) -> None:
        """Draw into a box of a picture, enlarged, and reduce it again."""
        Image, ImageDraw, _ = _pillow()
        left, top = int(np.floor(box[0])), int(np.floor(box[1]))
        width, height = int(np.ceil(box[2])) - left, int(np.ceil(box[3])) - top
        area = onto.crop((left, top, left + width, top + height))
        large = area.resize((width * _FINE, height * _FINE), Image.Resampling.NEAREST)
        draw(ImageDraw.Draw(large), lambda x, y: ((x - left) * _FINE, (y - top) * _FINE))
        onto.paste(large.reduce(_FINE), (left, top))

    def _ground(self, words: list[str]) -> Image:
        Image, ImageDraw, _ = _pillow()
        board, cell = self.episode.board, self.cell
        picture = Image.new("RGB", (self.width, self.height), PAPER)

        def paint(pen: Any, at: Any) -> None:
            def box(row: float, column: float, half: float) -> list[tuple[float, float]]:
                x, y = self.x(column), self.y(row)
                return [at(x - half * cell, y - half * cell), at(x + half * cell, y + half * cell)]

            def ring(row: float, column: float, half: float, line: float, colour: str) -> None:
                inner = max(round(line * cell * _FINE), _FINE)
                pen.rounded_rectangle(
                    box(row, column, half), 0.1 * cell * _FINE, outline=colour, width=inner
                )

            middle = (self.size - 1) / 2
            pen.rounded_rectangle(
                box(middle, middle, self.size / 2 + 0.12), 0.2 * cell * _FINE, fill=GROUND
            )
            for r in range(self.size):
                for c in range(self.size):
                    colour = HOLE if board.holes[r, c] else ICE
                    pen.rounded_rectangle(box(r, c, 0.465), 0.13 * cell * _FINE, fill=colour)
                    if board.holes[r, c]:
                        ring(r, c, 0.3, 0.04, PIT)
            for k, (start, goal) in enumerate(
                zip(board.starts.tolist(), board.goals.tolist(), strict=True)
            ):
                colour = AGENT_COLOURS[k][0]
                pen.rounded_rectangle(
                    box(goal[0], goal[1], 0.4),
                    0.1 * cell * _FINE,
                    fill=_pale(colour),
                    outline=colour,
                    width=max(round(0.08 * cell * _FINE), _FINE),
                )
                corners = box(start[0], start[1], 0.37)
                for turn in range(0, 360, 30):
                    width = max(round(0.05 * cell * _FINE), _FINE)
                    pen.arc(corners, turn, turn + 17, fill=colour, width=width)

        self._fine((0, 0, self.width, self.timeline), paint, picture)
        pen = ImageDraw.Draw(picture)
        for k, (row, column) in enumerate(board.goals.tolist()):
            self._write(pen, self.x(column), self.y(row), 0.42 * cell, str(k), INK)
        for k, (row, column) in enumerate(board.starts.tolist()):
            self._write(pen, self.x(column), self.y(row), 0.36 * cell, str(k), QUIET)
        if cell >= 14:
            for i in range(self.size):
                letters = max(0.3 * cell, 8.0)
                self._write(pen, self.x(i), self.top - 0.42 * cell, letters, str(i), QUIET)
                self._write(pen, self.left - 0.42 * cell, self.y(i), letters, str(i), QUIET)
        for i, line in enumerate(words):
            y = self.timeline + 0.4 * cell + (i + 0.4) * self.line
            colour = QUIET if i else INK
            self._write(pen, self.width / 2, y, self.line / 1.5, line, colour)
        return picture

    def _disc(self, k: int) -> Image:
        Image, ImageDraw, _ = _pillow()
        colour, ink = AGENT_COLOURS[k]
        side = 2 * (int(0.33 * self.cell) + 1)
        large = Image.new("RGBA", (side * _FINE, side * _FINE), (255, 255, 255, 0))
        middle, pen = side * _FINE / 2, ImageDraw.Draw(large)
        for radius, fill in ((0.33, PAPER), (0.29, colour)):
            r = max(radius * self.cell, 2.0) * _FINE
            pen.ellipse([middle - r, middle - r, middle + r, middle + r], fill=fill)
        self._write(pen, middle, middle, 0.42 * self.cell * _FINE, str(k), ink)
        return large.reduce(_FINE)

    def _write(self, pen: Any, x: float, y: float, size: float, words: str, colour: str) -> None:
        _, _, ImageFont = _pillow()
        font = ImageFont.load_default(size)
        long = font.getlength(words)
        if long > 0.96 * self.width and len(words) > 1:
            font = ImageFont.load_default(size * 0.96 * self.width / long)
        pen.text((x, y), words, fill=colour, font=font, anchor="mm")

    def _draw_timeline(self, picture: Image, track: Motion, moment: float) -> None:
        span = max(self.size * self.cell, 0.7 * self.width)
        left, slot = (self.width - span) / 2, span / track.slots
        thick = max(0.065 * self.cell, 2.0)
        gap = min(0.035 * self.cell, 0.15 * slot)
        head = max(0.12 * self.cell, 3.5)

        def paint(pen: Any, at: Any) -> None:
            segments = track.steps + track.extra
            for t in range(segments):
                failing = track.failed and t == segments - 1
                pen.rounded_rectangle(
                    [
                        at(left + t * slot + gap, self.timeline - thick),
                        at(left + (t + 1) * slot - gap, self.timeline + thick),
                    ],
                    thick * _FINE,
                    fill=MARK if failing else SEGMENT,
                    outline=INK if failing else None,
                    width=_FINE,
                )
            x = left + min(moment, track.playhead(track.steps)) * slot
            pen.ellipse(
                [at(x - head, self.timeline - head), at(x + head, self.timeline + head)], fill=INK
            )

        reach = head + 1
        box = (left - reach, self.timeline - reach, left + span + reach, self.timeline + reach)
        self._fine(box, paint, picture)

    def _draw_frames(self, picture: Image, track: Motion) -> None:
        half = 0.45 * self.cell
        line = max(0.08 * self.cell, 2.0)

        for row, column in track.struck:
            x, y = self.x(column), self.y(row)

            def paint(pen: Any, at: Any, x: float = x, y: float = y) -> None:
                for grown, colour, width in ((0.35 * line, INK, 1.7 * line), (0.0, MARK, line)):
                    reach = half + grown
                    pen.rounded_rectangle(
                        [at(x - reach, y - reach), at(x + reach, y + reach)],
                        0.12 * self.cell * _FINE,
                        outline=colour,
                        width=round(width * _FINE),
                    )

            reach = half + line
            self._fine((x - reach, y - reach, x + reach, y + reach), paint, picture)

    def _draw_cross(self, picture: Image, row: float, column: float) -> None:
        x, y = self.x(column), self.y(row)
        radius = max(0.19 * self.cell, 5.0)
        arm = 0.42 * radius

        def paint(pen: Any, at: Any) -> None:
            pen.ellipse(
                [at(x - radius, y - radius), at(x + radius, y + radius)],
                fill=MARK,
                outline=INK,
                width=max(round(0.16 * radius * _FINE), _FINE),
            )
            width = max(round(0.3 * radius * _FINE), _FINE)
            for way in (1, -1):
                pen.line([at(x - arm, y - way * arm), at(x + arm, y + way * arm)], INK, width)

        reach = radius + 1
        self._fine((x - reach, y - reach, x + reach, y + reach), paint, picture)


def _few_colours(picture: Image) -> Image:
    """The picture in the colours of `_colours`, the same ones whatever it shows."""
    Image, _, _ = _pillow()
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for colour in _colours() for part in colour])
    return picture.quantize(palette=palette, dither=Image.Dither.NONE)


@cache
def _colours() -> tuple[tuple[int, int, int], ...]:
    """Every colour that is drawn, and shades between those that meet at an edge."""
    shades: dict[tuple[int, int, int], None] = {}

    def between(one: str, other: str, steps: int = 4) -> None:
        for i in range(steps + 1):
            shades[_mixed(one, other, i / steps)] = None

    for colour, ink in AGENT_COLOURS:
        pale = "#{:02x}{:02x}{:02x}".format(*_pale(colour))
        for other in (ink, PAPER, ICE, pale):
            between(colour, other)
        between(pale, INK, 2)
    for one in (INK, QUIET, MARK, HOLE, GROUND):
        for other in (PAPER, ICE, INK, GROUND):
            between(one, other)
    between(PIT, HOLE, 2)
    between(SEGMENT, PAPER, 2)
    return tuple(shades)


def _mixed(one: str, other: str, share: float) -> tuple[int, int, int]:
    """A colour between two, `share` of the way."""
    ends = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in (one, other)]
    red, green, blue = (round(a + share * (b - a)) for a, b in zip(*ends, strict=True))
    return red, green, blue


def _pale(colour: str) -> tuple[int, int, int]:
    """A fifth of a colour on ice."""
    return _mixed(ICE, colour, 0.2)
