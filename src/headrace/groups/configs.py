"""Numeric configs of a group (resource GROUP, `kafka-configs --entity-type groups`)."""

from headrace.config.group_configs import BROKER_RANGES
from headrace.groups.state import GroupsState


def group_config(state: GroupsState, group_id: str, name: str) -> int:
    """Return the value of a config of a group, within what the node allows, or the node's own."""
    bounds = BROKER_RANGES[name]
    text = state.group_configs(group_id).get(name)
    if text is None:
        return state.settings[bounds.synonym]
    value = int(text)
    if bounds.least is not None:
        value = max(value, state.settings[bounds.least])
    return value if bounds.most is None else min(value, state.settings[bounds.most])
