"""An agent graph as a picture.

Drawn here: an agent graph is a tree, of which tools may have several parents, so that columns by distance from the root
do. Graphviz would need its program on the server; what lays graphs out without it is no longer kept up.
"""

from __future__ import annotations

from typing import NamedTuple
from xml.sax.saxutils import escape

from greenroom.apps.graph import (
    LIGHT,
    LIT_EDGE,
    LIT_NODE,
    LIT_TEXT,
    NOTHING,
    AgentGraph,
    Highlight,
    Kind,
    Palette,
)

_ROW, _HEIGHT, _GAP, _MARGIN, _LETTER = 52.0, 34.0, 70.0, 16.0, 8.2
_CORNERS: dict[Kind, float] = {"agent": _HEIGHT / 2, "tool": 4, "retrieval": 12}


class _Box(NamedTuple):
    x: float
    y: float
    width: float


def to_svg(graph: AgentGraph, *, palette: Palette = LIGHT, highlight: Highlight = NOTHING) -> str:
    """A whole SVG document, with the root on the left."""
    boxes = _places(graph)
    width = max((box.x + box.width for box in boxes.values()), default=0) + _MARGIN
    height = max((box.y + _HEIGHT for box in boxes.values()), default=0) + _MARGIN
    pieces = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="sans-serif" font-size="14">',
        f'<rect width="100%" height="100%" fill="{palette.background}"/>',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="{LIT_EDGE}"/></marker></defs>',
    ]
    for edge in graph.edges:
        start, end = boxes[edge[0]], boxes[edge[1]]
        x1, y1, x2, y2 = start.x + start.width, start.y + _HEIGHT / 2, end.x, end.y + _HEIGHT / 2
        middle = (x1 + x2) / 2
        marker = ' marker-end="url(#arrow)"' if edge in highlight.called else ""
        marker = ' marker-start="url(#arrow)"' if edge in highlight.returned else marker
        color = LIT_EDGE if marker else palette.line
        path = f"M{x1:g} {y1:g}C{middle:g} {y1:g} {middle:g} {y2:g} {x2:g} {y2:g}"
        pieces.append(f'<path d="{path}" fill="none" stroke="{color}"{marker}/>')
    for node in graph.nodes:
        box, is_lit = boxes[node.name], node.name in highlight.nodes
        fill, line, text = (LIT_NODE, LIT_NODE, LIT_TEXT) if is_lit else ("none", palette.line, palette.line)
        place = f'x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{_HEIGHT:g}" rx="{_CORNERS[node.kind]:g}"'
        middle = f'x="{box.x + box.width / 2:g}" y="{box.y + _HEIGHT / 2 + 5:g}" text-anchor="middle"'
        pieces.append(f'<rect {place} fill="{fill}" stroke="{line}"/>')
        pieces.append(f'<text {middle} fill="{text}">{escape(node.caption)}</text>')
    return "\n".join([*pieces, "</svg>\n"])


def _places(graph: AgentGraph) -> dict[str, _Box]:
    """Columns by the shortest way from the root; a parent stands beside the middle of the children first met there."""
    below: dict[str, list[str]] = {node.name: [] for node in graph.nodes}
    for start, end in graph.edges:
        below[start].append(end)
    columns = _columns(graph, below)
    rows: dict[str, float] = {}
    next_row = 0.0

    def place(name: str) -> None:
        nonlocal next_row
        rows[name] = -1.0  # being placed: an edge may lead back to it
        mine: list[float] = []
        for child in below[name]:
            if child not in rows and columns[child] > columns[name]:
                place(child)
                mine.append(rows[child])
        if mine:
            rows[name] = (mine[0] + mine[-1]) / 2
        else:
            rows[name] = next_row
            next_row += 1

    for node in graph.nodes:
        if node.name not in rows:
            place(node.name)
    widths: dict[int, float] = {}
    for node in graph.nodes:
        column = columns[node.name]
        widths[column] = max(widths.get(column, 0.0), len(node.caption) * _LETTER + 28)
    lefts, left = dict[int, float](), _MARGIN
    for column in sorted(widths):
        lefts[column] = left
        left += widths[column] + _GAP
    return {name: _Box(lefts[column], _MARGIN + rows[name] * _ROW, widths[column]) for name, column in columns.items()}


def _columns(graph: AgentGraph, below: dict[str, list[str]]) -> dict[str, int]:
    columns = {graph.nodes[0].name: 0} if graph.nodes else {}
    waiting = list(columns)
    for name in waiting:
        for child in below[name]:
            if child not in columns:
                columns[child] = columns[name] + 1
                waiting.append(child)
    return columns
