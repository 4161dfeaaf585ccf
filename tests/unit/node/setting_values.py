"""Values of settings that differ from what they are by default, for tests that walk over all."""

from headrace.config import InvalidSetting
from headrace.config.setting import AnySetting

NUMBERS = ("1", "2", "3", "5", "100", "1000", "2000", "20000", "100000", "2097152", "0", "0.25")
WORDS = ("true", "false", "on", "json", "records", "gzip", "compact", "LogAppendTime")
GROUP_WORDS = ("earliest", "read_committed", "disabled", "range", "classic", "*")
PREFERRED = {
    "errors.deadletterqueue.topic.name": "dlq.given.up",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "headrace.mirror.source": "cluster/topic",
    "headrace.tier.store": "memory://",
    **dict.fromkeys(("local.retention.bytes", "log.local.retention.bytes"), "1000"),
    **dict.fromkeys(("local.retention.ms", "log.local.retention.ms"), "1000"),
    "log.roll.jitter.ms": "100000000",
    "segment.jitter.ms": "100000000",
    "max.connections.per.ip.overrides": "127.0.0.1:5",
}
TIER = {"remote.log.storage.system.enable": "true", "headrace.tier.store": "memory://"}
"""What gives a node a tier."""
TIERED = {"remote.storage.enable": "true"}
COMPANIONS = {
    "compression.gzip.level": {"compression.type": "gzip"},
    "compression.lz4.level": {"compression.type": "lz4"},
    "compression.zstd.level": {"compression.type": "zstd"},
    "local.retention.bytes": TIERED,
    "local.retention.ms": TIERED,
    "remote.log.copy.disable": TIERED,
}
"""What else has to be set before a setting can be seen to act."""


def another_value(setting: AnySetting) -> str:
    """Return a value that a setting may have and does not have by default."""
    if setting.name in PREFERRED:
        return PREFERRED[setting.name]
    numbers: tuple[str, ...] = ()
    if isinstance(setting.default, int) and not isinstance(setting.default, bool):
        numbers = (str(setting.default + 1), str(setting.default - 1))
    for text in (*numbers, *NUMBERS, *WORDS, *GROUP_WORDS, "text"):
        try:
            if setting.parse(text) != setting.default:
                return text
        except InvalidSetting:
            continue
    raise AssertionError(f"no other value of {setting.name} is known here")
