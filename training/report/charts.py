"""Charts as inline SVG, drawn small, so that their type keeps its size on a phone.

Colours come from the page: a mark has the class `c0`..`c7` and takes `var(--c)`. Every text is
escaped. A number that isn't finite is a gap.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

COLOURS = 8

_HEIGHT = 240.0
_LEFT, _TOP, _BOTTOM = 46.0, 26.0, 40.0
_WIDE, _NARROW = 360.0, 280.0
_WIDE_LABELS, _NARROW_LABELS = 104.0, 58.0
_SECTION_NAMES = 16.0
_LABEL_HEIGHT = 14.0

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A curve: (x, y) points in order, and the colour 0..7 it has."""

    name: str
    points: Sequence[tuple[float, float | None]]
    colour: int = 0


@dataclass(frozen=True)
class Intervals:
    """One (value, low, high) a category, None where there is none, and the colour 0..7."""

    name: str
    values: Sequence[tuple[float, float, float] | None]
    colour: int = 0


@dataclass(frozen=True)
class _Frame:
    """Data ranges and the rectangle they are drawn in; `log` is for the y axis."""

    x: tuple[float, float]
    y: tuple[float, float]
    log: bool = False
    width: float = _WIDE
    labels: float = _WIDE_LABELS
    top: float = _TOP

    @property
    def right(self) -> float:
        """Pixel where the drawing ends and the labels of its curves begin."""
        return self.width - self.labels

    def at(self, x: float, y: float) -> Point:
        """Pixels of a data point."""
        low, high, value = (math.log10(v) if self.log else v for v in (*self.y, y))
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1)
        up = (value - low) / ((high - low) or 1)
        return (
            _LEFT + across * (self.right - _LEFT),
            _HEIGHT - _BOTTOM - up * (_HEIGHT - self.top - _BOTTOM),
        )


def line_chart(
    title: str,
    lines: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    percent: bool = False,
    log: bool = False,
    zero: bool = True,
    boundaries: Sequence[tuple[float, str]] = (),
    limit: tuple[float, str] | None = None,
) -> str | None:
    """Draw curves over a common x axis.

    Args:
        title: read out by screen readers.
        lines: the curves; those of more than 24 points also get a running mean, which stands out.
        x_label: what x is, with its unit.
        y_label: what y is, with its unit.
        percent: y values are shares, labelled as per cent.
        log: logarithmic y axis; values that are not positive are gaps.
        zero: the y axis shows 0.
        boundaries: x and name of each section, marked by a hairline where it begins.
        limit: a y that must not be exceeded, and its name.

    Returns:
        One `<svg>`, or None where there is nothing to draw.
    """
    clean = [(line, _segments(line.points, log)) for line in lines]
    clean = [(line, segments) for line, segments in clean if segments]
    if not clean:
        return None
    xs = [x for _, segments in clean for segment in segments for x, _ in segment]
    ys = [y for _, segments in clean for segment in segments for _, y in segment]
    if limit is not None:
        ys.append(limit[0])
    ticks = _decades(min(ys), max(ys)) if log else nice_ticks(*_span(ys, zero))
    frame = _Frame(
        (min(xs), max(xs)),
        (ticks[0], ticks[-1]),
        log,
        top=_TOP + (_SECTION_NAMES if boundaries else 0),
    )

    parts = [_y_axis(frame, ticks, y_label, percent)]
    whole = [x for x in nice_ticks(*frame.x, count=4) if frame.x[0] <= x <= frame.x[1]]
    parts.append(_x_axis(frame, [(x, _short(x)) for x in whole], x_label))
    for x, name in boundaries:
        (left, top), (_, bottom) = frame.at(x, frame.y[1]), frame.at(x, frame.y[0])
        parts.append(f'<path class="boundary" d="M{left:.1f} {top:.1f}V{bottom:.1f}"/>')
        parts.append(_text(left + 3, top - 5, name, "tick start"))
    if limit is not None:
        left, y = frame.at(frame.x[0], limit[0])
        parts.append(f'<path class="limit" d="M{left:.1f} {y:.1f}H{frame.right:.1f}"/>')
        parts.append(_text(left + 4, y + 14, limit[1], "tick start"))
    ends = []
    for line, segments in clean:
        smooth = [running_mean(segment, _window(len(segment))) for segment in segments]
        noisy = any(len(segment) > 24 for segment in segments)
        if noisy:
            parts += [_curve(frame, segment, line.colour, "raw") for segment in segments]
        parts += [_curve(frame, segment, line.colour, "line") for segment in smooth]
        last = smooth[-1][-1]
        words = f"{line.name} {f'{100 * last[1]:.0f}%' if percent else f'{last[1]:.3g}'}".strip()
        ends.append((frame.at(*last)[1], words, line.colour))
    parts += _end_labels(ends, frame)
    return _svg(title, parts, frame.width)


def interval_chart(
    title: str,
    series: Sequence[Intervals],
    categories: Sequence[str],
    *,
    x_label: str,
    y_label: str,
) -> str | None:
    """Draw shares with interval whiskers, one column a category, 0 to 100 per cent.

    It is narrow; the last values stand beside it, and the key of the colours is the page's.

    Returns:
        One `<svg>`, or None where no category has a value.
    """
    series = [one for one in series if any(value is not None for value in one.values)]
    if not series or not categories:
        return None
    frame = _Frame(
        (-0.4, max(len(categories) - 0.6, 0.6)), (0.0, 1.0), False, _NARROW, _NARROW_LABELS
    )
    parts = [_y_axis(frame, [0.0, 0.25, 0.5, 0.75, 1.0], y_label, percent=True)]
    parts.append(_x_axis(frame, list(enumerate(categories)), x_label))
    ends = []
    for rank, one in enumerate(series):
        aside = (rank - (len(series) - 1) / 2) * 9
        dots = []
        for x, value in enumerate(one.values):
            if value is None:
                continue
            middle, low, high = (frame.at(x, y) for y in value)
            px = middle[0] + aside
            parts.append(
                f'<path class="whisker c{one.colour}" d="M{px:.1f} {low[1]:.1f}V{high[1]:.1f}'
                f'M{px - 3:.1f} {low[1]:.1f}h6M{px - 3:.1f} {high[1]:.1f}h6"/>'
            )
            dots.append((px, middle[1]))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
        parts.append(f'<polyline class="thread c{one.colour}" points="{path}"/>')
        parts += [
            f'<circle class="dot c{one.colour}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in dots
        ]
        latest = [value for value in one.values if value is not None][-1]
        ends.append((dots[-1][1], _value(latest[0], True), one.colour))
    parts += _end_labels(ends, frame)
    return _svg(title, parts, frame.width)


def stacked_bars(
    title: str,
    bars: Sequence[tuple[str, Mapping[str, float], str]],
    kinds: Mapping[str, int],
    *,
    x_label: str,
    percent: bool = False,
    wide: bool = False,
) -> str | None:
    """Draw one horizontal bar a row, its parts side by side.

    Args:
        title: read out by screen readers.
        bars: name, parts by kind, and what to write at the bar's end.
        kinds: the kinds in the order they are stacked, with their colours.
        x_label: what the length is, with its unit.
        percent: lengths are shares, labelled as per cent.
        wide: as wide as a line chart, for longer ends of bars.

    Returns:
        One `<svg>`, or None where there are no bars.
    """
    if not bars:
        return None
    longest = max(sum(parts.values()) for _, parts, _ in bars)
    ticks = nice_ticks(0.0, longest or 1.0, count=4)
    row, thick, left, right = 34.0, 20.0, 76.0, 78.0
    full = _WIDE if wide else _NARROW
    height = _TOP + row * len(bars) + _BOTTOM
    scale = (full - left - right) / ticks[-1]
    bottom = height - _BOTTOM
    out = []
    for tick in ticks:
        x = left + tick * scale
        out.append(f'<path class="grid" d="M{x:.1f} {_TOP - 6:.1f}V{bottom:.1f}"/>')
        out.append(_text(x, bottom + 15, _value(tick, percent), "tick middle"))
    out.append(_text(left + ticks[-1] * scale / 2, height - 6, x_label, "axis middle"))
    for rank, (name, parts, end) in enumerate(bars):
        y = _TOP + rank * row + (row - thick) / 2 - 4
        out.append(_text(left - 8, y + thick / 2 + 4, name, "name end"))
        x = left
        for kind, colour in kinds.items():
            width = parts.get(kind, 0.0) * scale
            if width <= 0:
                continue
            words = escape(f"{name}: {kind} {_value(parts[kind], percent)}")
            out.append(
                f'<rect class="part c{colour}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{thick}"><title>{words}</title></rect>'
            )
            x += width
        out.append(_text(x + 6, y + thick / 2 + 4, end, "name start"))
    return _svg(title, out, full, height)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers that cover `low`..`high`: steps of 1, 2, 2.5 or 5 times 10^k."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / max(count - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def running_mean(points: Sequence[Point], window: int) -> list[Point]:
    """Mean of y over the points up to `window // 2` before and after each."""
    half = window // 2
    means = []
    for i, (x, _) in enumerate(points):
        near = [y for _, y in points[max(i - half, 0) : i + half + 1]]
        means.append((x, math.fsum(near) / len(near)))
    return means


def _window(count: int) -> int:
    return 1 if count <= 24 else max(5, count // 12)


def _span(ys: Sequence[float], zero: bool) -> tuple[float, float]:
    return (min(0.0, *ys), max(0.0, *ys)) if zero else (min(ys), max(ys))


def _segments(points: Sequence[tuple[float, float | None]], log: bool) -> list[list[Point]]:
    """Runs of points between gaps."""
    segments: list[list[Point]] = [[]]
    for x, y in points:
        if y is None or not math.isfinite(y) or (log and y <= 0):
            segments.append([])
        else:
            segments[-1].append((x, y))
    return [segment for segment in segments if segment]


def _decades(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    if first == last:
        last += 1
    step = max(1, math.ceil((last - first) / 5))
    return [10.0**power for power in range(first, last + step, step)]


def _y_axis(frame: _Frame, ticks: Sequence[float], label: str, percent: bool) -> str:
    parts = [_text(4, 10, label, "axis start")]
    for tick in ticks:
        x, y = frame.at(frame.x[0], tick)
        kind = "base" if tick == ticks[0] else "grid"
        parts.append(f'<path class="{kind}" d="M{x:.1f} {y:.1f}H{frame.right:.1f}"/>')
        parts.append(_text(x - 6, y + 4, _value(tick, percent), "tick end"))
    return "".join(parts)


def _x_axis(frame: _Frame, ticks: Sequence[tuple[float, str]], label: str) -> str:
    parts = []
    for x, words in ticks:
        px, py = frame.at(x, frame.y[0])
        parts.append(_text(px, py + 16, words, "tick middle"))
    if label:
        middle = (_LEFT + frame.right) / 2
        parts.append(_text(middle, _HEIGHT - 6, label, "axis middle"))
    return "".join(parts)


def _curve(frame: _Frame, points: Sequence[Point], colour: int, kind: str) -> str:
    if len(points) == 1:
        x, y = frame.at(*points[0])
        return f'<circle class="dot c{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (frame.at(*point) for point in points))
    return f'<polyline class="{kind} c{colour}" points="{path}"/>'


def _end_labels(ends: Sequence[tuple[float, str, int]], frame: _Frame) -> list[str]:
    """Names at the right end of their curves, moved apart where they would overlap."""
    parts = []
    order = sorted(ends)
    heights = spread([y for y, _, _ in order], _LABEL_HEIGHT, frame.top, _HEIGHT - _BOTTOM)
    x = frame.right + 10
    for (_, words, colour), y in zip(order, heights, strict=True):
        parts.append(f'<circle class="dot c{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
        parts.append(_text(x + 7, y + 4, words, "label start"))
    return parts


def spread(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Ascending heights moved as little as a sweep down and up needs to be `gap` apart.

    They stay within `low`..`high` where they all fit.
    """
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap if placed else low))
    for i in range(len(placed) - 1, -1, -1):
        ceiling = high if i == len(placed) - 1 else placed[i + 1] - gap
        placed[i] = min(placed[i], ceiling)
    return placed


def _short(value: float) -> str:
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    return f"{value:.5g}"


def _value(value: float, percent: bool) -> str:
    return f"{100 * value:.3g}%" if percent else _short(value)


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def _svg(title: str, parts: Sequence[str], width: float, height: float = _HEIGHT) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" '
        f'aria-label={quoteattr(title)} viewBox="0 0 {width:.0f} {height:.0f}">'
        + "".join(parts)
        + "</svg>"
    )
