"""Headrace: a Kafka-compatible distributed log.

Nothing else is imported here, so that `import headrace` costs nothing; docs/design.md has the map.
"""

import os

__version__ = "0.1.0.dev0"

if os.environ.get("HEADRACE_PURE") == "1":
    from headrace import _mode

    _mode.use_sources()
