"""The classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from headrace.errors import ErrorCode
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.messages.join_group_request import JoinGroupRequest
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.leave_group_request import MemberIdentity
from tests.differential.conversation import Conversation
from tests.differential.group_requests import (
    RANGE,
    group_coordinator,
    heartbeat,
    join,
    joined,
    leave,
    stable,
    sync,
)

FIRST_WITH_MEMBER_IDS = 4
SHORT_MS = 300
OTHER_SUBSCRIPTION = bytes(9) + b"\x01x"


def classic_group_of_one(talk: Conversation) -> None:
    """One member's whole life, in every version of each request."""
    group_coordinator(talk)
    for version in range(10):
        group = talk.name(f"join-v{version}")
        answer = ask_join(talk, f"join v{version}", join(group), version)
        if version >= FIRST_WITH_MEMBER_IDS:
            again = join(group, answer.member_id)
            answer = ask_join(talk, f"join with the id that it got v{version}", again, version)
        member, generation = answer.member_id, answer.generation_id
        talk.ask(f"heartbeat before the sync v{version}", heartbeat(group, generation, member), 4)
        own = sync(group, generation, member, (member, b"everything"))
        if version >= 5:
            own.protocol_type, own.protocol_name = "consumer", "range"
        talk.ask(f"sync v{min(version, 5)} of join v{version}", own, min(version, 5))
        talk.ask(f"sync again v{min(version, 5)} of join v{version}", own, min(version, 5))
        beat = heartbeat(group, generation, member)
        talk.ask(f"heartbeat v{min(version, 4)} of join v{version}", beat, min(version, 4))
        answer = ask_join(talk, f"join again v{version}", join(group, member), version)
        talk.ask(f"the old generation v{version}", heartbeat(group, generation, member))
        number = min(version, 5)
        gone = leave(group, MemberIdentity(member_id=member), version=number)
        talk.ask(f"leave v{number} of join v{version}", gone, number)
        talk.ask(f"leave again v{number} of join v{version}", gone, number)
        talk.ask(f"heartbeat of one that left v{version}", beat, min(version, 4))


def classic_join_errors(talk: Conversation) -> None:
    group_coordinator(talk)
    for version in (0, 3, 4, 5, 9):
        talk.ask(f"no group v{version}", join(""), version)
        unknown = join(talk.name("new"), "nobody")
        talk.ask(f"an unknown member of no group v{version}", unknown, version)
        for timeout in (-1, 0, 5_999, 1_800_001):
            request = join(talk.name("timeouts"), session_ms=timeout)
            talk.ask(f"a session timeout of {timeout} v{version}", request, version)
        request = join(talk.name("type"), protocol_type="")
        talk.ask(f"no protocol type v{version}", request, version)
        request = join(talk.name("protocols"))
        request.protocols = []
        talk.ask(f"no protocols v{version}", request, version)
    for timeout in (6_000, 1_800_000):
        request = join(talk.name(f"timeout-{timeout}"), session_ms=timeout)
        talk.ask(f"a session timeout of {timeout}", request, 3)
    for timeout in (-1, 0, 1):
        request = join(talk.name(f"rebalance-{timeout}"), rebalance_ms=timeout)
        talk.ask(f"a rebalance timeout of {timeout}", request, 3)
    group = talk.name("known")
    first = stable(talk, group, RANGE, ("roundrobin", b"r"))
    for version in (0, 4, 9):
        talk.ask(f"an unknown member v{version}", join(group, "nobody"), version)
        other = join(group, "", protocol_type="connect")
        talk.ask(f"another protocol type v{version}", other, version)
        other = join(group, "", ("sticky", b""))
        talk.ask(f"no protocol in common v{version}", other, version)
        other = join(group, first.member_id, ("sticky", b""), protocol_type="connect")
        talk.ask(f"another protocol type by the member v{version}", other, version)
    talk.ask("it lives on", heartbeat(group, first.generation_id, first.member_id))
    ask_join(
        talk, "the same member, other protocols", join(group, first.member_id, ("sticky", b""))
    )
    ask_join(talk, "and the first again", join(group, first.member_id), 9)
    long = "g" * 300
    ask_join(talk, "a long name", join(talk.name(long)), 3)
    odd = join(talk.name("a group/with ä"), protocol_type="connect")
    ask_join(talk, "an odd name and type", odd, 3)
    group = talk.name("unreadable")
    unreadable = join(group, "", ("range", b"changed"))
    talk.ask("a subscription that cannot be read", unreadable, 3, patience_seconds=2)
    twice = join(talk.name("twice"), "", RANGE, ("range", OTHER_SUBSCRIPTION))
    talk.ask("a protocol twice", twice, 3, patience_seconds=2)


def classic_rejoin(talk: Conversation) -> None:
    """What a member of a stable group is told when it joins again."""
    group_coordinator(talk)
    group = talk.name("plain")
    first = stable(talk, group)
    second = ask_join(talk, "the leader joins again", join(group, first.member_id))
    talk.ask("nobody is assigned yet", heartbeat(group, second.generation_id, first.member_id))
    talk.ask("the old generation", heartbeat(group, first.generation_id, first.member_id))
    ask_join(talk, "again before the assignment", join(group, first.member_id))
    changed = join(group, first.member_id, ("range", OTHER_SUBSCRIPTION))
    third = ask_join(talk, "with other metadata", changed)
    request = sync(group, third.generation_id, first.member_id, ("nobody", b"x"))
    talk.ask("an assignment for somebody else", request, 4)
    two = sync(group, third.generation_id, first.member_id, (first.member_id, b"x"))
    talk.ask("an assignment comes too late", two, 4)


def classic_sync_errors(talk: Conversation) -> None:
    group_coordinator(talk)
    for version in range(6):
        request = sync(talk.name("none"), 1, "nobody")
        if version == 5:
            request.protocol_type, request.protocol_name = "consumer", "range"
        talk.ask(f"no such group v{version}", request, version)
        request = sync("", 1, "nobody")
        if version == 5:
            request.protocol_type, request.protocol_name = "consumer", "range"
        talk.ask(f"an empty group id v{version}", request, version)
    group = talk.name("plain")
    first = joined(talk, group)
    member, generation = first.member_id, first.generation_id

    def ask(
        name: str, generation: int, member: str, kind: str | None, protocol: str | None
    ) -> None:
        request = sync(
            group, generation, member, (member, b"x"), protocol_type=kind, protocol=protocol
        )
        talk.ask(name, request, 5)

    ask("no protocol", generation, member, None, None)
    ask("a protocol without a type", generation, member, None, "range")
    ask("a type without a protocol", generation, member, "consumer", None)
    ask("another type", generation, member, "connect", "range")
    ask("another protocol", generation, member, "consumer", "sticky")
    ask("an unknown member", generation, "nobody", "consumer", "range")
    ask("no member", generation, "", "consumer", "range")
    ask("an old generation", generation - 1, member, "consumer", "range")
    ask("a generation ahead", generation + 1, member, "consumer", "range")
    ask("generation -1", -1, member, "consumer", "range")
    ask("as it should be", generation, member, "consumer", "range")
    ask("another protocol in a stable group", generation, member, "consumer", "sticky")
    ask("an old generation of a stable group", generation - 1, member, "consumer", "range")
    none = talk.name("nothing")
    second = joined(talk, none)
    talk.ask("no assignments", sync(none, second.generation_id, second.member_id), 4)


def classic_heartbeat_errors(talk: Conversation) -> None:
    group_coordinator(talk)
    group = talk.name("plain")
    first = stable(talk, group)
    member, generation = first.member_id, first.generation_id
    for version in range(5):
        talk.ask(f"no such group v{version}", heartbeat(talk.name("none"), 1, "a"), version)
        talk.ask(f"an empty group id v{version}", heartbeat("", 1, "a"), version)
        talk.ask(f"an unknown member v{version}", heartbeat(group, generation, "a"), version)
        talk.ask(f"no member v{version}", heartbeat(group, generation, ""), version)
        talk.ask(f"an old generation v{version}", heartbeat(group, generation - 1, member), version)
        ahead = heartbeat(group, generation + 1, member)
        talk.ask(f"a generation ahead v{version}", ahead, version)
        talk.ask(f"as it should be v{version}", heartbeat(group, generation, member), version)
    waiting = talk.name("pending")
    answer = ask_join(talk, "one that got an id and does not use it", join(waiting))
    talk.ask("its heartbeat", heartbeat(waiting, -1, answer.member_id))
    talk.ask("its heartbeat in generation 1", heartbeat(waiting, 1, answer.member_id))
    talk.ask("its sync", sync(waiting, 1, answer.member_id), 4)
    gone = MemberIdentity(member_id=answer.member_id)
    talk.ask("it leaves", leave(waiting, gone))
    talk.ask("it leaves again", leave(waiting, gone))
    ask_join(talk, "it joins all the same", join(waiting, answer.member_id))


def classic_leave(talk: Conversation) -> None:
    group_coordinator(talk)
    for version in range(6):
        one = MemberIdentity(member_id="nobody")
        none = leave(talk.name("none"), one, version=version)
        talk.ask(f"no such group v{version}", none, version)
        talk.ask(f"an empty group id v{version}", leave("", one, version=version), version)
        group = talk.name(f"plain-{version}")
        stable(talk, group)
        talk.ask(f"an unknown member v{version}", leave(group, one, version=version), version)
    group = talk.name("several")
    first = stable(talk, group, instance=talk.name("i"))
    static = MemberIdentity(member_id="", group_instance_id=talk.name("i"))
    talk.ask("nobody", leave(group))
    stranger = MemberIdentity(member_id="nobody", group_instance_id="no-instance")
    talk.ask("an unknown instance", leave(group, stranger))
    wrong = MemberIdentity(member_id="nobody", group_instance_id=talk.name("i"))
    talk.ask("an instance with another's id", leave(group, wrong))
    by_id = MemberIdentity(member_id=first.member_id)
    talk.ask("strangers and an instance", leave(group, stranger, static, static))
    talk.ask("its id afterwards", leave(group, by_id))
    group = talk.name("by-id")
    first = stable(talk, group, instance=talk.name("i"))
    by_id = MemberIdentity(member_id=first.member_id)
    talk.ask("a static member by its id alone", leave(group, by_id), 3)
    talk.ask("its heartbeat", heartbeat(group, first.generation_id, first.member_id))


def classic_static_members(talk: Conversation) -> None:
    group_coordinator(talk)
    group, instance = talk.name("plain"), talk.name("i")
    first = ask_join(talk, "a static member", join(group, instance=instance), 5)
    member, generation = first.member_id, first.generation_id
    own = sync(group, generation, member, (member, b"x"), instance=instance)
    talk.ask("its sync", own, 3)
    for version in (3, 4):
        beat = heartbeat(group, generation, member, instance)
        talk.ask(f"its heartbeat v{version}", beat, version)
    beat = heartbeat(group, generation, member, "no-instance")
    talk.ask("the heartbeat of an unknown instance", beat)
    beat = heartbeat(group, generation, "nobody", instance)
    talk.ask("the heartbeat of another id", beat)
    talk.ask("its heartbeat without the instance", heartbeat(group, generation, member))
    ask_join(talk, "an unknown id", join(group, "nobody", instance=instance))
    unknown = join(group, member, instance="no-instance")
    ask_join(talk, "its id, an unknown instance", unknown)
    again = ask_join(talk, "it is started again", join(group, instance=instance), 9)
    talk.ask("the old one's heartbeat", heartbeat(group, generation, member, instance))
    old = sync(group, generation, member, (member, b"x"), instance=instance)
    talk.ask("the old one's sync", old, 3)
    ask_join(talk, "the old one joins", join(group, member, instance=instance))
    new = sync(group, again.generation_id, again.member_id, instance=instance)
    talk.ask("the new one's sync", new, 3)
    ask_join(talk, "started again v5", join(group, instance=instance), 5)
    changed = join(group, "", ("sticky", b"s"), instance=instance)
    ask_join(talk, "started again with other protocols", changed)
    ask_join(talk, "an instance without a name", join(talk.name("empty"), instance=""), 5)
    ask_join(talk, "a long instance", join(talk.name("long"), instance="i" * 250), 5)
    ask_join(talk, "an invalid instance", join(talk.name("invalid"), instance="a b"), 5)
    ask_join(talk, "an instance of dots", join(talk.name("dots"), instance=".."), 5)


def classic_group_of_two(talk: Conversation) -> None:
    group_coordinator(talk)
    group = talk.name("plain")
    first = stable(talk, group, RANGE, ("roundrobin", b"r"))
    beat = heartbeat(group, first.generation_id, first.member_id)
    answer = ask_join(talk, "a second gets its id", join(group))
    talk.ask("the first is not disturbed by that", beat)
    second_join = join(group, answer.member_id, ("roundrobin", b"R"))
    waiting = talk.begin("the second joins", second_join)
    _until_rebalance(talk, beat)
    talk.ask("the first is told", beat)
    own = sync(group, first.generation_id, first.member_id)
    talk.ask("the first syncs in the old generation", own, 4)
    again = join(group, first.member_id, RANGE, ("roundrobin", b"r"))
    leader = ask_join(talk, "the first joins again", again)
    waiting.finish()
    generation = leader.generation_id
    follower = talk.begin("the second syncs", sync(group, generation, answer.member_id), 4)
    rows = ((first.member_id, b"one"), (answer.member_id, b"two"), ("nobody", b"three"))
    talk.ask("the first assigns", sync(group, generation, first.member_id, *rows), 4)
    follower.finish()
    talk.ask("the second syncs again", sync(group, generation, answer.member_id), 4)
    talk.ask("the second beats", heartbeat(group, generation, answer.member_id))
    same = join(group, answer.member_id, ("roundrobin", b"R"))
    ask_join(talk, "the second joins again, nothing changed", same)
    talk.ask(
        "the first is not disturbed by that either", heartbeat(group, generation, first.member_id)
    )
    talk.ask("the second leaves", leave(group, MemberIdentity(member_id=answer.member_id)))
    beat = heartbeat(group, generation, first.member_id)
    talk.ask("the first is told of it", beat)
    ask_join(talk, "the first is alone", again)


def classic_late_members(talk: Conversation) -> None:
    """Members that do not join again, or do not bring the assignment, in their time."""
    group_coordinator(talk)
    group = talk.name("join")
    first = ask_join(talk, "a hasty member", join(group, rebalance_ms=SHORT_MS), 3)
    member, generation = first.member_id, first.generation_id
    talk.ask("its assignment", sync(group, generation, member, (member, b"x")), 3)
    second = ask_join(talk, "a second gets its id", join(group, rebalance_ms=SHORT_MS))
    request = join(group, second.member_id, rebalance_ms=SHORT_MS)
    second = ask_join(talk, "the second joins when the first is late", request)
    talk.ask("the heartbeat of the first", heartbeat(group, generation, member))
    ask_join(talk, "the first comes back", join(group, member))
    member, generation = second.member_id, second.generation_id
    beat = heartbeat(group, generation, member)
    talk.until(beat, HeartbeatResponse, lambda m: m.error_code == ErrorCode.UNKNOWN_MEMBER_ID)
    talk.ask("one that never brings the assignment", beat)
    talk.ask("its sync", sync(group, generation, member, (member, b"x")), 4)


def _until_rebalance(talk: Conversation, beat: HeartbeatRequest) -> None:
    """Wait until a join that is under way has reached the group."""
    talk.until(
        beat,
        HeartbeatResponse,
        lambda m: m.error_code == ErrorCode.REBALANCE_IN_PROGRESS,
    )


def ask_join(
    talk: Conversation, name: str, request: JoinGroupRequest, version: int = 9
) -> JoinGroupResponse:
    answer = talk.ask(name, request, version)
    assert isinstance(answer, JoinGroupResponse)
    return answer


SCRIPTS = (
    classic_group_of_one,
    classic_join_errors,
    classic_rejoin,
    classic_sync_errors,
    classic_heartbeat_errors,
    classic_leave,
    classic_static_members,
    classic_group_of_two,
    classic_late_members,
)
