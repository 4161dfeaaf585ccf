"""Whatever a request says, it is answered with its id, and no handler of it fails."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.cluster.protocol import PROTOCOL_VERSION, ClusterErrorCode, requests
from headrace.cluster.protocol.messages import REQUESTS
from tests.unit.cluster.protocol.values import any_of
from tests.unit.harness import Harness
from tests.unit.server.interchange.programs import Program, batch, partition, talk

HERE = [partition("orders", 0), partition("orders", 1), partition("orders", 9)]


def askable(asked: Any, source: str, place: int, is_ours: bool, records: bytes) -> Any:
    """Return a request of our version, of a partition that may be there."""
    header = replace(asked.header, version=PROTOCOL_VERSION, source=source, timeout_ms=2000)
    asked = replace(asked, header=header)
    if is_ours and hasattr(asked, "partition"):
        asked = replace(asked, partition=HERE[place])
    if is_ours and isinstance(asked, requests.Append):
        asked = replace(asked, records=records)
    return asked


@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.builds(
            askable,
            any_of(REQUESTS.plan),
            st.sampled_from(["1", "2", "rivven", ""]),
            st.integers(0, len(HERE) - 1),
            st.booleans(),
            st.sampled_from([b"", batch(), batch(b"a", b"b")]),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_every_request_is_answered(harness: Harness, asked: list[Any]) -> None:
    if not harness.has_topic("orders"):
        harness.create_topic("orders", partitions=2)

    async def work(program: Program) -> list[Any]:
        program.send(*asked)
        return [await program.receive() for _ in asked]

    for each, answer in zip(asked, talk(harness, work), strict=True):
        assert answer.header.correlation_id == each.header.correlation_id
        assert answer.header.error_code != ClusterErrorCode.UNKNOWN, (each, answer)
        assert answer.header.error_code != ClusterErrorCode.UNSUPPORTED_VERSION
