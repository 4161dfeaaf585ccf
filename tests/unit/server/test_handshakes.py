"""Who makes room where too many have not authenticated: whoever has the most."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.transport.crowd import network_of
from headrace.server.handshakes import Handshakes

HOSTS = ("10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1")


def test_a_host_that_opens_many_drives_out_its_own() -> None:
    handshakes: Handshakes[str] = Handshakes()
    handshakes.add("patient", "10.0.0.1")
    for number in range(9):
        handshakes.add(f"flood-{number}", "10.0.0.2")
    for number in range(9, 100):
        assert handshakes.take_from_most() == f"flood-{number - 9}"
        handshakes.add(f"flood-{number}", "10.0.0.2")
    handshakes.discard("patient")
    assert len(handshakes) == 9


def test_the_oldest_goes_where_everybody_has_one() -> None:
    handshakes: Handshakes[str] = Handshakes()
    for number in range(5):
        handshakes.add(f"{number}", f"10.0.0.{number}")
    assert [handshakes.take_from_most() for _ in range(5)] == list("01234")
    assert len(handshakes) == 0


@given(st.lists(st.tuples(st.sampled_from(["add", "discard", "take"]), st.integers(0, 40))))
def test_it_is_always_one_of_a_network_that_has_the_most(steps: list[tuple[str, int]]) -> None:
    handshakes: Handshakes[int] = Handshakes()
    there: dict[int, str] = {}
    for number, (what, which) in enumerate(steps):
        if what == "add":
            host = HOSTS[which % len(HOSTS)]
            handshakes.add(number, host)
            there[number] = network_of(host)
        elif what == "discard":
            handshakes.discard(which)
            there.pop(which, None)
        elif there:
            counts = list(there.values())
            most = max(map(counts.count, counts))
            leaving = handshakes.take_from_most()
            network = there[leaving]
            assert counts.count(network) == most
            assert leaving == min(each for each in there if there[each] == network)
            del there[leaving]
        assert len(handshakes) == len(there)
