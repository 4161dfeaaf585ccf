"""The flow graph of a pipeline as SVG, and as Mermaid text. Pure.

Layers from left to right: what feeds something is to the left of it. Within a layer, boxes are
ordered by the boxes that feed them, which keeps most lines from crossing.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from headrace.spark.pipelines.model import Pipeline, edges

BOX_HEIGHT: Final = 46
GAP_X: Final = 70
GAP_Y: Final = 22
MARGIN: Final = 24
CHARACTER: Final = 7.4
"""The width of a character of the font, about."""
WIDTH_MIN: Final = 110
_COLOURS: Final = {
    "source": ("#e8f1fb", "#2f6db3"),
    "step": ("#ffffff", "#555555"),
    "sink": ("#e9f6ec", "#2e8b57"),
}


def svg(pipeline: Pipeline, notes: Mapping[str, str] | None = None) -> str:
    """Return the drawing; `notes` are for third lines in the boxes of steps."""
    labels = _labels(pipeline, notes or {})
    columns = layers(pipeline)
    widths = [max(_width(labels[node]) for node in column) for column in columns]
    lines = 3 if any(len(each) > 2 for each in labels.values()) else 2
    height = BOX_HEIGHT + 15 * (lines - 2)
    tallest = max(map(len, columns), default=0)
    total_height = 2 * MARGIN + tallest * height + max(tallest - 1, 0) * GAP_Y
    boxes: dict[str, tuple[float, float, float]] = {}
    x = float(MARGIN)
    for column, width in zip(columns, widths, strict=True):
        used = len(column) * height + (len(column) - 1) * GAP_Y
        y = (total_height - used) / 2
        for node in column:
            boxes[node] = (x, y, width)
            y += height + GAP_Y
        x += width + GAP_X
    total_width = x - GAP_X + MARGIN if columns else 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total_width:.0f}" '
        f'height="{total_height:.0f}" viewBox="0 0 {total_width:.0f} {total_height:.0f}" '
        'font-family="sans-serif" font-size="13">',
        f"<title>{escape(pipeline.name)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#888"/></marker></defs>',
    ]
    parts += [_line(boxes[giver], boxes[taker], height) for giver, taker in edges(pipeline)]
    parts += [_box(node, labels[node], boxes[node], height) for node in boxes]
    return "\n".join([*parts, "</svg>"]) + "\n"


def mermaid(pipeline: Pipeline) -> str:
    """Return the graph as Mermaid draws it, for READMEs."""
    shapes = {"source": ('[("', '")]'), "step": ('["', '"]'), "sink": ('[("', '")]')}
    lines = ["flowchart LR"]
    for node, label in _labels(pipeline, {}).items():
        kind = node.partition(":")[0]
        left, right = shapes[kind]
        text = "<br/>".join(escape(each) for each in label)
        lines.append(f"  {_identifier(node)}{left}{text}{right}")
    lines += [
        f"  {_identifier(giver)} --> {_identifier(taker)}" for giver, taker in edges(pipeline)
    ]
    return "\n".join(lines) + "\n"


def layers(pipeline: Pipeline) -> list[list[str]]:
    """Return the nodes in layers: each is behind everything that feeds it."""
    before: dict[str, list[str]] = {node: [] for node in _labels(pipeline, {})}
    for giver, taker in edges(pipeline):
        before[taker].append(giver)
    depth: dict[str, int] = {}

    def depth_of(node: str) -> int:
        if node not in depth:
            depth[node] = 1 + max(map(depth_of, before[node]), default=-1)
        return depth[node]

    columns: list[list[str]] = []
    for node in before:
        at = depth_of(node)
        columns += [[] for _ in range(at + 1 - len(columns))]
        columns[at].append(node)
    place: dict[str, float] = {}
    for column in columns:
        column.sort(key=lambda node: _middle([place[each] for each in before[node]]))
        place.update({node: float(at) for at, node in enumerate(column)})
    return columns


def _labels(pipeline: Pipeline, notes: Mapping[str, str]) -> dict[str, list[str]]:
    labels = {f"source:{each.name}": [each.name, each.kind] for each in pipeline.sources.values()}
    for step in pipeline.steps.values():
        note = notes.get(step.name)
        labels[f"step:{step.name}"] = [step.name, step.file, *([note] if note else [])]
    for each in pipeline.sinks.values():
        labels[f"sink:{each.name}"] = [each.name, each.kind]
    return labels


def _middle(places: Sequence[float]) -> float:
    return sum(places) / len(places) if places else 0.0


def _width(label: Sequence[str]) -> float:
    return max(WIDTH_MIN, max(map(len, label)) * CHARACTER + 20)


def _line(giver: tuple[float, float, float], taker: tuple[float, float, float], height: int) -> str:
    x1, y1 = giver[0] + giver[2], giver[1] + height / 2
    x2, y2 = taker[0], taker[1] + height / 2
    bend = max((x2 - x1) / 2, 20)
    return (
        f'<path d="M{x1:.1f},{y1:.1f} C{x1 + bend:.1f},{y1:.1f} {x2 - bend:.1f},{y2:.1f} '
        f'{x2:.1f},{y2:.1f}" fill="none" stroke="#888" stroke-width="1.3" marker-end="url(#tip)"/>'
    )


def _box(node: str, label: Sequence[str], at: tuple[float, float, float], height: int) -> str:
    x, y, width = at
    kind = node.partition(":")[0]
    fill, stroke = _COLOURS[kind]
    radius = 5 if kind == "step" else 20
    texts = [
        f'<text x="{x + width / 2:.1f}" y="{y + 19 + 16 * number:.1f}" text-anchor="middle" '
        f'fill="{"#111" if number == 0 else "#666"}" '
        f'font-weight="{"600" if number == 0 else "400"}">{escape(text)}</text>'
        for number, text in enumerate(label)
    ]
    return (
        f'<g id="{escape(node)}"><rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{height}" rx="{radius}" fill="{fill}" stroke="{stroke}"/>{"".join(texts)}</g>'
    )


def _identifier(node: str) -> str:
    return node.replace(":", "_")
