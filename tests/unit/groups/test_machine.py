"""The machine of groups: what it does with groups that were loaded."""

from headrace.groups.classic.deadlines import session_key
from headrace.groups.classic.group import ClassicGroup, ClassicState
from headrace.groups.classic.members import ClassicMember
from headrace.groups.machine import GROUPS_AT_ONCE
from headrace.groups.state import GroupId, MemberId
from tests.unit.groups.machines import Groups


def test_sessions_of_all_groups_restart_though_not_in_one_turn() -> None:
    groups = Groups()
    member_id = MemberId("m")
    for number in range(2 * GROUPS_AT_ONCE + 1):
        group = ClassicGroup(GroupId(f"g{number}"), state=ClassicState.STABLE)
        member = ClassicMember(
            member_id, None, "", "", rebalance_timeout_ms=1, session_timeout_ms=1000, protocols=()
        )
        group.add(member, "consumer")
        groups.state.groups[group.group_id] = group
    groups.do(groups.machine.on_loaded(groups.now_ms))
    assert len(groups.state.deadlines) < 2 * GROUPS_AT_ONCE
    while (groups.machine.next_deadline_ms() or 0) <= groups.now_ms:
        groups.do(groups.machine.on_deadline(groups.now_ms))
    loaded = [each for each in groups.state.groups.values() if isinstance(each, ClassicGroup)]
    assert all(session_key(each, member_id) in groups.state.deadlines for each in loaded)
