"""A plot of evaluated tokens at each key, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 860, 320, 60, 40, 36
_COLOURS = ("#1b7837", "#762a83")
_TICKS = (1, 10, 100, 1000)


def plot_keys(values: Mapping[str, Mapping[int, int]], compared: Iterable[int], title: str) -> str:
    """One dot a key and server, by the key's number; the vertical axis is logarithmic.

    The keys that are compared have a grey background.
    """
    n_keys = 1 + max(max(series) for series in values.values())
    top = max(max(series.values()) for series in values.values())
    width = max((_WIDTH - _LEFT - 10) / max(n_keys - 1, 1), 1.5)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{title}</text>',
    ]
    for n in compared:
        parts.append(
            f'<rect x="{_x(n, n_keys) - width / 2:.1f}" y="{_TOP}" width="{width:.1f}"'
            f' height="{_HEIGHT - _BOTTOM - _TOP}" fill="#eee"/>'
        )
    for tick in _TICKS:
        y = _y(tick, top)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{tick}</text>')
    for index, (name, series) in enumerate(values.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        for n, value in series.items():
            x = _x(n, n_keys)
            parts.append(
                f'<circle cx="{x:.1f}" cy="{_y(value, top)}" r="2" fill="{colour}" opacity="0.7"/>'
            )
        x = _WIDTH - 260 + 130 * index
        parts.append(f'<circle cx="{x}" cy="16" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 8}" y="20">{name}</text>')
    parts.append(
        f'<text x="{_WIDTH // 2}" y="{_HEIGHT - 10}" text-anchor="middle">'
        "key (grey: those that both were asked at)</text>"
    )
    return "\n".join([*parts, "</svg>", ""])


def _x(n: int, n_keys: int) -> float:
    return _LEFT + n * (_WIDTH - _LEFT - 10) / max(n_keys - 1, 1)


def _y(value: int, top: int) -> float:
    share = math.log10(max(value, 1)) / math.log10(max(top, 10))
    return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP), 1)


_BARS = ("#999999", "#c994c7", "#762a83", "#5aae61", "#1b7837")


def plot_bars(groups: Mapping[str, Mapping[str, tuple[float, float]]], title: str) -> str:
    """A bar for each name and group, its value written on it, with a whisker for its error."""
    names = list(next(iter(groups.values())))
    values = [value for group in groups.values() for value, _ in group.values()]
    bottom, top = min(*values, 0.0), max(values) * 1.08
    floor, roof = _HEIGHT - _BOTTOM, _TOP + 30

    def y(value: float) -> float:
        return floor - (value - bottom) / (top - bottom) * (floor - roof)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{title}</text>',
        f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y(0):.1f}" y2="{y(0):.1f}" stroke="#888"/>',
    ]
    for index, name in enumerate(names):
        x = _LEFT + index * 155
        parts.append(f'<rect x="{x}" y="32" width="10" height="10" fill="{_BARS[index]}"/>')
        parts.append(f'<text x="{x + 14}" y="41">{name}</text>')
    room = (_WIDTH - _LEFT - 10) / len(groups)
    width = room / (len(names) + 1)
    for column, (group, bars) in enumerate(groups.items()):
        start = _LEFT + column * room + width / 2
        parts.append(
            f'<text x="{start + width * len(names) / 2:.1f}" y="{_HEIGHT - 12}"'
            f' text-anchor="middle">{group}</text>'
        )
        for index, (value, error) in enumerate(bars.values()):
            left, middle = start + index * width, start + (index + 0.5) * width
            high, low = min(y(value), y(0)), max(y(value), y(0))
            parts.append(
                f'<rect x="{left:.1f}" y="{high:.1f}" width="{width - 4:.1f}"'
                f' height="{max(low - high, 1):.1f}" fill="{_BARS[index]}"/>'
            )
            parts.append(
                f'<line x1="{middle - 2:.1f}" x2="{middle - 2:.1f}" y1="{y(value + error):.1f}"'
                f' y2="{y(value - error):.1f}" stroke="black"/>'
            )
            parts.append(
                f'<text x="{middle - 2:.1f}" y="{y(max(value + error, 0)) - 4:.1f}"'
                f' text-anchor="middle" font-size="11">{round(value, 2) + 0.0:.2f}</text>'
            )
    return "\n".join([*parts, "</svg>", ""])


_LINES = ("#1b7837", "#762a83", "#d95f02", "#1f78b4", "#999999", "#e7298a", "#000000")
Line = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over the same horizontal axis; the vertical one is logarithmic and has `ticks`."""

    title: str
    across: str
    lines: Mapping[str, Line]
    ticks: Sequence[float]


def plot_panels(panels: Sequence[Panel], title: str) -> str:
    """Panels side by side, whose lines have the same names and colours."""
    width = (_WIDTH - 10) // len(panels)
    names = list(panels[0].lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT + 60}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT + 60}" fill="white"/>',
        f'<text x="20" y="20" font-size="14">{title}</text>',
    ]
    for index, name in enumerate(names):
        x, y = 20 + index % 4 * 205, 34 + index // 4 * 16
        parts.append(f'<rect x="{x}" y="{y}" width="14" height="4" fill="{_LINES[index]}"/>')
        parts.append(f'<text x="{x + 20}" y="{y + 6}">{name}</text>')
    for index, panel in enumerate(panels):
        parts += _panel(panel, index * width + 50, width - 66)
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, left: float, width: float) -> list[str]:
    floor, roof = _HEIGHT + 18.0, 96.0
    furthest = max(x for line in panel.lines.values() for x, _ in line)
    low, high = math.log10(panel.ticks[0]), math.log10(panel.ticks[-1])

    def at(x: float, y: float) -> tuple[float, float]:
        share = (math.log10(min(max(y, panel.ticks[0]), panel.ticks[-1])) - low) / (high - low)
        return round(left + x / furthest * width, 1), round(floor - share * (floor - roof), 1)

    parts = [f'<text x="{left}" y="{roof - 14}">{panel.title}</text>']
    for tick in panel.ticks:
        y = at(0, tick)[1]
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{tick:g}</text>')
    for x in sorted({x for line in panel.lines.values() for x, _ in line}):
        parts.append(f'<text x="{at(x, 1)[0]}" y="{floor + 16}" text-anchor="middle">{x:g}</text>')
    parts.append(
        f'<text x="{left + width / 2}" y="{floor + 34}" text-anchor="middle">{panel.across}</text>'
    )
    for index, line in enumerate(panel.lines.values()):
        points = " ".join("{},{}".format(*at(x, y)) for x, y in line)
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{_LINES[index]}" stroke-width="2"'
            ' opacity="0.8"/>'
        )
    return parts
