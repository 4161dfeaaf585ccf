"""What waits to be sent: bounded, the newest kept, requests never dropped in silence."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.transport.queues import Queued, SendQueue


def message(name: bytes, size: int = 1) -> Queued:
    return Queued([name], size)


def names(queue: SendQueue) -> list[bytes]:
    taken = []
    while (queued := queue.pop()) is not None:
        taken.append(bytes(queued.parts[0]))
    return taken


def test_the_newest_messages_are_kept() -> None:
    queue = SendQueue(100, 3)
    for name in (b"a", b"b", b"c", b"d", b"e"):
        assert queue.push(message(name))
    assert queue.dropped == 2
    assert names(queue) == [b"c", b"d", b"e"]


def test_bytes_are_bounded_too() -> None:
    queue = SendQueue(10, 100)
    for name in (b"a", b"b", b"c"):
        queue.push(message(name, 4))
    assert queue.size_bytes == 8
    assert not queue.push(message(b"huge", 11))
    assert queue.size_bytes == 8, "what can never fit drops nothing else"


def test_urgent_messages_overtake_and_make_room() -> None:
    queue = SendQueue(100, 2)
    queue.push(message(b"a"))
    queue.push(message(b"b"))
    queue.push(message(b"now"), is_urgent=True)
    assert names(queue) == [b"now", b"b"]


def test_a_request_is_kept_or_refused() -> None:
    queue = SendQueue(100, 2)
    assert queue.push(Queued([b"r1"], 1, 1))
    assert queue.push(message(b"m"))
    assert queue.push(Queued([b"r2"], 1, 2))
    assert queue.dropped == 1
    assert not queue.push(Queued([b"r3"], 1, 3))
    assert not queue.push(message(b"n"))
    assert queue.dropped == 2
    assert names(queue) == [b"r1", b"r2"]


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.booleans(), st.booleans())))
def test_the_bounds_hold_whatever_is_pushed(pushes: list[tuple[int, bool, bool, bool]]) -> None:
    queue = SendQueue(50, 5)
    for size, is_request, is_urgent, is_popped in pushes:
        queue.push(Queued([b""], size, int(is_request)), is_urgent=is_urgent)
        assert len(queue) <= 5
        assert queue.size_bytes <= 50
        if is_popped:
            queue.pop()
    queue.clear()
    assert queue.size_bytes == len(queue) == 0
