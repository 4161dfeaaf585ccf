"""Write `headrace/config/accepted.py`: the settings of a Kafka broker that have no effect here.

    python -m tools.configs [--check]

Apache Kafka's own classes are asked (`make jars` fetches them). With --check nothing is written;
the exit code is 1 if what is there differs. A setting leaves the list when Headrace begins to use
it: define it in `headrace/config`, then run this again.

Facts carry over (names, types, defaults, bounds), Kafka's prose does not.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from headrace.config.registry import SETTINGS
from tools.jvm.oracles import ConfigOracle

ACCEPTED = Path(__file__).parent.parent / "src" / "headrace" / "config" / "accepted.py"
HEADER = '''"""Settings of a Kafka broker that are checked and kept but have no effect here.

Written by `tools/configs.py` from Apache Kafka's classes; do not edit. The columns: name, type,
default, what is allowed (the least and the most, or the words), scope, whether Kafka hides it.
"""

from typing import Final

Row = tuple[str, str, str | None, tuple[float | None, float | None] | tuple[str, ...], str, bool]

ACCEPTED: Final[tuple[Row, ...]] = (
'''
_RANGE = re.compile(r"\[(-?[\d.]+?),\.\.\.(?:,(-?[\d.]+))?\]")
_WORDS = re.compile(r"(?:\(case insensitive\) )?\[([\w, ]+)\]")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say whether it differs")
    arguments = parser.parse_args()
    with ConfigOracle() as oracle:
        wanted = accepted_module(oracle.define("broker"))
    if arguments.check:
        is_same = ACCEPTED.read_text() == wanted
        print(f"{ACCEPTED.name} {'is up to date' if is_same else 'differs'}")
        return 0 if is_same else 1
    ACCEPTED.write_text(wanted)
    return 0


def accepted_module(rows: list[dict[str, Any]]) -> str:
    """The text of the module for what Kafka says of its broker settings."""
    lines = (_line(row) for row in rows if row["name"] not in SETTINGS)
    return HEADER + "".join(lines) + ")\n"


def _line(row: dict[str, Any]) -> str:
    columns = (
        _quoted(row["name"]),
        _quoted(row["type"]),
        _quoted(row["default"]),
        _allowed(row["validator"] or ""),
        _quoted(row["scope"] or "read-only"),
        str(row["internal"]),
    )
    line = f"    ({', '.join(columns)}),\n"
    if len(line) <= 101:
        return line
    return "    (\n" + "".join(f"        {column},\n" for column in columns) + "    ),\n"


def _allowed(validator: str) -> str:
    if found := _RANGE.fullmatch(validator):
        return f"({found[1]}, {found[2]})"
    if found := _WORDS.fullmatch(validator):
        words = [_quoted(word) for word in found[1].split(", ")]
        return f"({', '.join(words)})"
    return "()"


def _quoted(text: str | None) -> str:
    return "None" if text is None else f'"{text}"'


if __name__ == "__main__":
    sys.exit(main())
