"""What a script speaks through: questions whose answers are kept, and quiet steps between them."""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import msgspec

from headrace.wire import APIS, ApiKey, WireError, read_response
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.create_topics_response import CreateTopicsResponse
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.messages.list_offsets_response import ListOffsetsResponse
from headrace.wire.messages.metadata_response import MetadataResponse
from headrace.wire.messages.produce_request import ProduceRequest
from headrace.wire.messages.produce_response import ProduceResponse
from headrace.wire.schema import Message
from tests.differential.connection import (
    ANSWER_SECONDS_MAX,
    Connection,
    Ending,
    all_versions,
    newest_version,
)
from tests.differential.plain import SCRIPTED_PREFIX, Plain, Plainer
from tests.differential.requests import EARLIEST, Topic, list_offsets, metadata, produce

R = TypeVar("R", bound=Message)
Asked = Message | tuple[Message, int]
"""A request, with its version or in the newest one."""

SETTLE_SECONDS_MAX: Final = 20.0
SETTLE_POLL_SECONDS: Final = 0.02


class Exchange(msgspec.Struct, frozen=True):
    """A question of a script and what one peer made of it."""

    name: str
    question: str
    answer: Plain


class Conversation:
    """One script with one peer. `ask` and its like keep an answer; all else is left out."""

    def __init__(self, address: str, script: str) -> None:
        self.address = address
        self.prefix = f"{SCRIPTED_PREFIX}{script}-"
        self.exchanges: list[Exchange] = []
        self._plainer = Plainer(script)
        self._standing = Connection(address)

    def close(self) -> None:
        self._standing.close()

    def ask(
        self,
        name: str,
        request: Message,
        version: int | None = None,
        hide: Iterable[str] = (),
        patience_seconds: float = ANSWER_SECONDS_MAX,
    ) -> Message:
        """Ask and keep the answer. What `hide` names is known to differ: only whether it is set.

        Where there is no answer, that is kept, and the script goes on with an empty one.
        """
        if version is None:
            version = newest_version(type(request))
        answer = self._answer(request, version, patience_seconds)
        if isinstance(answer, Message):
            self.keep(name, request, version, self.plain(answer, frozenset(hide)))
            return answer
        self.keep(name, request, version, answer)
        return APIS[request.API_KEY].response()

    def ask_settled(
        self, name: str, request: Message, version: int | None = None, hide: Iterable[str] = ()
    ) -> Message:
        """Ask again while a coordinator says that it is at something else; keep what comes then."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            answer = self.ask(name, request, version, hide)
            if time.monotonic() >= deadline or not _is_passing(self.exchanges[-1].answer):
                return answer
            self.exchanges.pop()
            time.sleep(SETTLE_POLL_SECONDS)  # polls, up to the deadline

    def ask_at_once(
        self, name: str, requests: Iterable[Asked], hide: Iterable[str] = ()
    ) -> list[Any]:
        """Ask several things in one write on one connection; keep every answer and return them.

        A request without a version is sent in the newest one. The answer to a request that gets
        none is None.
        """
        asked = _with_versions(requests)
        answers = self._answers(asked)
        hidden, given = frozenset(hide), list[Any]()
        for number, ((request, version), answer) in enumerate(zip(asked, answers, strict=True)):
            plain = self.plain(answer, hidden) if isinstance(answer, Message) else answer
            self.keep(f"{name}, {number}: {type(request).__name__}", request, version, plain)
            is_missing = isinstance(answer, str)
            given.append(APIS[request.API_KEY].response() if is_missing else answer)
        return given

    def quietly_at_once(self, requests: Iterable[Asked]) -> list[Any]:
        """Ask several things in one write without keeping the answers, of which none may lack."""
        answers = self._answers(_with_versions(requests))
        missing = [answer for answer in answers if isinstance(answer, str)]
        assert not missing, missing
        return answers

    def begin(self, name: str, request: Message, version: int | None = None) -> "PendingExchange":
        """Ask on a connection of its own, without waiting: `finish` keeps and gives the answer."""
        if version is None:
            version = newest_version(type(request))
        connection = Connection(self.address)
        connection.send(request, version)
        return PendingExchange(self, connection, name, request, version)

    def ask_all_versions(
        self, name: str, request: Message, versions: Iterable[int] = (), hide: Iterable[str] = ()
    ) -> None:
        """Ask in every version, or in those given."""
        for version in versions or all_versions(type(request)):
            self.ask(f"{name} v{version}", request, version, hide)

    def ask_bytes(
        self,
        name: str,
        data: bytes,
        answers: tuple[type[Message], int] | None = None,
        hide: Iterable[str] = (),
    ) -> None:
        """Send bytes as they are, on a connection of their own; keep what comes back.

        `answers` names the request, and its version, that the bytes are taken for.
        """
        with Connection(self.address) as connection:
            connection.send_bytes(data)
            frame = connection.receive()
        plain: Plain
        if isinstance(frame, Ending):
            plain = frame.value
        elif answers is None:
            plain = frame.hex()
        else:
            plain = self._read(frame, *answers, frozenset(hide))
        self.exchanges.append(Exchange(name, data[:80].hex(), plain))

    def _read(
        self, frame: bytes, request: type[Message], version: int, hidden: frozenset[str]
    ) -> Plain:
        try:
            header, body = read_response(frame, ApiKey(request.API_KEY), version)
        except WireError as error:
            return f"an answer that cannot be read: {error}"
        plain = self.plain(body, hidden)
        return {"correlation_id": header.correlation_id, "body": plain}

    def tell(self, name: str, request: Message, version: int) -> None:
        """Send what gets no answer; keep whether the next request on that connection gets one."""
        with Connection(self.address) as connection:
            connection.send(request, version)
            expected = connection.send(ApiVersionsRequest(), 0)
            answer = connection.answer(ApiVersionsRequest, 0)
        if isinstance(answer, Ending):
            plain = answer.value
        else:
            plain = "no answer, and the next request has one"
            plain = plain if answer[0] == expected else "an answer"
        self.keep(name, request, version, plain)

    def plain(self, answer: Message, hidden: frozenset[str] = frozenset()) -> Plain:
        return self._plainer.plain(answer, hidden)

    def keep(self, name: str, request: Message, version: int, answer: Plain) -> None:
        self.exchanges.append(Exchange(name, f"v{version} {request!r}", answer))

    def quietly(self, request: Message, answer: type[R], version: int | None = None) -> R:
        """Ask without keeping the answer, which must be one."""
        if version is None:
            version = newest_version(type(request))
        got = self._answer(request, version)
        assert isinstance(got, answer), f"{type(request).__name__}: {got}"
        return got

    def until(
        self,
        request: Message,
        answer: type[R],
        is_so: Callable[[R], bool],
        version: int | None = None,
    ) -> R:
        """Ask quietly again and again until the answer is as wanted."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while not is_so(got := self.quietly(request, answer, version)):
            assert time.monotonic() < deadline, f"{type(request).__name__} stays at {got}"
            time.sleep(SETTLE_POLL_SECONDS)  # polls, up to the deadline
        return got

    def until_so(self, is_so: Callable[[], object]) -> None:
        """Look again and again until it is so."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while not is_so():
            assert time.monotonic() < deadline, "it does not come to be so"
            time.sleep(SETTLE_POLL_SECONDS)  # polls, up to the deadline

    def name(self, suffix: str) -> str:
        """Give a name that no other script uses."""
        return self.prefix + suffix

    def topic(self, suffix: str, partitions: int = 1, **configs: str) -> Topic:
        """Create a topic, wait until its partitions have a leader, and give its name and id.

        A config's name is written with `_` for `.`.
        """
        name = self.name(suffix)
        rows = [CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()]
        creatable = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=rows
        )
        created = self.quietly(CreateTopicsRequest(topics=[creatable]), CreateTopicsResponse)
        assert created.topics[0].error_code == 0, created
        return self.settled(name, partitions)

    def settled(self, name: str, partitions: int = 1) -> Topic:
        """Wait until a topic's partitions are served; give its name and id."""
        found = self.until(
            metadata(name),
            MetadataResponse,
            lambda m: m.topics[0].error_code == 0 and len(m.topics[0].partitions) == partitions,
        )
        topic = Topic(name, found.topics[0].topic_id)
        self._plainer.number("topic id", topic.id)  # so that numbers do not depend on answers
        self.until(
            list_offsets(topic, *((p, EARLIEST) for p in range(partitions))),
            ListOffsetsResponse,
            lambda m: all(p.error_code == 0 for p in m.topics[0].partitions),
        )
        return topic

    def gone(self, name: str) -> None:
        """Wait until a topic is no more."""
        self.until(metadata(name), MetadataResponse, lambda m: m.topics[0].error_code != 0)

    def append(self, topic: Topic, *batches: bytes, partition: int = 0) -> None:
        """Produce each batch in a request of its own."""
        for batch in batches:
            got = self.quietly(produce(topic, batch, partition=partition), ProduceResponse)
            assert got.responses[0].partition_responses[0].error_code == 0, got

    def producer_id(self) -> int:
        """Get an id for an idempotent producer."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        got = self.until(request, InitProducerIdResponse, lambda m: m.error_code == 0)
        return got.producer_id

    def _answer(
        self, request: Message, version: int, patience_seconds: float = ANSWER_SECONDS_MAX
    ) -> Message | str:
        (answer,) = self._answers([(request, version)], patience_seconds)
        assert answer is not None, "use `tell` for what gets no answer"
        return answer

    def _answers(
        self, requests: list[tuple[Message, int]], patience_seconds: float = ANSWER_SECONDS_MAX
    ) -> list[Message | str | None]:
        """Send all in one write; return each answer, a text in place of one that did not come."""
        if not self._standing.is_open:
            self._standing = Connection(self.address)
        self._standing.patience_seconds = patience_seconds
        sent = self._standing.send_all(requests)
        return [
            self._next_answer(request, version, expected) if _is_answered(request) else None
            for (request, version), expected in zip(requests, sent, strict=True)
        ]

    def _next_answer(self, request: Message, version: int, expected: int) -> Message | str:
        try:
            answer = self._standing.answer(type(request), version)
        except WireError as error:
            self._standing.close()
            return f"an answer that cannot be read: {error}"
        if isinstance(answer, Ending):
            self._standing.close()
            return answer.value
        correlation_id, body = answer
        if correlation_id == expected:
            return body
        return f"an answer to request {correlation_id - expected:+}"


class PendingExchange:
    """A question that is asked and not yet answered."""

    def __init__(
        self,
        talk: Conversation,
        connection: Connection,
        name: str,
        request: Message,
        version: int,
    ) -> None:
        self._talk = talk
        self._connection = connection
        self._name = name
        self._request = request
        self._version = version

    def finish(self) -> Message:
        """Wait for the answer, keep and give it; an empty one where there is none."""
        with self._connection as connection:
            answer = connection.answer(type(self._request), self._version)
        if isinstance(answer, Ending):
            self._talk.keep(self._name, self._request, self._version, answer.value)
            return APIS[self._request.API_KEY].response()
        self._talk.keep(self._name, self._request, self._version, self._talk.plain(answer[1]))
        return answer[1]


def _with_versions(requests: Iterable[Asked]) -> list[tuple[Message, int]]:
    return [
        (each, newest_version(type(each))) if isinstance(each, Message) else each
        for each in requests
    ]


def _is_answered(request: Message) -> bool:
    return not (isinstance(request, ProduceRequest) and request.acks == 0)


_PASSING: Final = frozenset(
    {"CONCURRENT_TRANSACTIONS", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"}
)
"""What a coordinator answers while it is at something that ends by itself."""


def _is_passing(answer: Plain) -> bool:
    if isinstance(answer, dict):
        return any(_is_passing(value) for value in answer.values())
    if isinstance(answer, list):
        return any(_is_passing(value) for value in answer)
    return answer in _PASSING
