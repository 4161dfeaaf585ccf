"""What fsck and audit print of a report."""

from collections.abc import Sequence
from typing import Any

from headrace.cli.output import print_json, print_table
from headrace.cli.streams import say
from headrace.ids import TopicId, topic_id_text
from headrace.remote.audit import HEALTHY, LOST, JudgedSegment, Report
from headrace.remote.inventory import Inventory
from headrace.remote.repair import Skipped

LINES_MAX = 50
"""How many findings are printed as text; JSON has all."""


def print_report(report: Report, inventory: Inventory) -> None:
    """Print the classes with their sums, then what needs attention."""
    rows = [
        (str(kind), tally.segments, tally.objects, tally.uploads, tally.stored_bytes)
        for kind, tally in report.tallies().items()
    ]
    counts = [sum(each) for each in zip(*(row[1:] for row in rows), strict=True)] or [0] * 4
    print_table(("class", "segments", "objects", "uploads", "bytes"), [*rows, ("total", *counts)])
    lines = findings(report, inventory)
    for line in lines[:LINES_MAX]:
        say(line)
    if len(lines) > LINES_MAX:
        say(f"and {len(lines) - LINES_MAX} more: --json prints all")


def findings(report: Report, inventory: Inventory) -> list[str]:
    """Return a line for each thing that needs attention, losses first."""
    segments = sorted(report.segments, key=lambda each: each.verdict not in LOST)
    lines = [
        f"{each.verdict}: segment {each.segment.text}, offsets {each.segment.start_offset} to "
        f"{each.segment.end_offset}: {each.why}"
        for each in segments
        if each.verdict not in HEALTHY
    ]
    lines += [
        f"gap: offsets {each.first} to {each.last} of {each.partition.text} are nowhere"
        for each in report.gaps
    ]
    lines += [
        f"{each.verdict}: {each.object.key}: {each.why}"
        for each in report.objects
        if each.verdict not in HEALTHY
    ]
    lines += [f"unfinished_upload: {each.key}" for each in report.uploads]
    lines += [
        f"dangling: the deletion of {each.partition.text} was begun and not finished"
        for each in report.deletions
    ]
    lines += [f"refused event: {each}" for each in inventory.after.refused]
    if inventory.uploads_unknown:
        lines.append(f"unfinished uploads are not known: {inventory.uploads_unknown}")
    return lines


def print_report_json(
    report: Report, inventory: Inventory, repaired: Sequence[str], skipped: Sequence[Skipped]
) -> None:
    """Print everything as one JSON document."""
    print_json(
        {
            "is_clean": report.is_clean,
            "listed_bytes": inventory.listed_bytes,
            "classes": {str(kind): tally for kind, tally in report.tallies().items()},
            "segments": [_segment(each) for each in report.segments],
            "objects": [
                {"key": each.object.key, "class": str(each.verdict), "why": each.why}
                for each in report.objects
            ],
            "uploads": [each.key for each in report.uploads],
            "uploads_unknown": inventory.uploads_unknown,
            "gaps": [
                {
                    "topic": each.partition.topic,
                    "partition": each.partition.index,
                    "first": each.first,
                    "last": each.last,
                }
                for each in report.gaps
            ],
            "refused_events": inventory.after.refused,
            "repaired": list(repaired),
            "skipped": list(skipped),
        }
    )


def _segment(judged: JudgedSegment) -> dict[str, Any]:
    segment = judged.segment
    return {
        "id": topic_id_text(TopicId(segment.id)),
        "topic": segment.partition.topic,
        "topic_id": topic_id_text(segment.partition.topic_id),
        "partition": segment.partition.index,
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "state": segment.state.name,
        "class": str(judged.verdict),
        "why": judged.why,
        "bytes": judged.stored_bytes,
    }
