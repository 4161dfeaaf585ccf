"""The table of APIs."""

import subprocess
import sys

from headrace.wire import APIS, ApiKey, message_type


def test_every_api_has_a_request_and_a_response_of_its_versions() -> None:
    assert len(APIS) == 89
    for api in APIS.values():
        for message in (api.request, api.response):
            assert api.key == message.API_KEY
        first, last = api.request.VERSIONS.split("-")[0], api.request.VERSIONS.split("-")[-1]
        assert (api.versions.first, api.versions.last) == (int(first), int(last))


def test_versions_are_those_of_kafka() -> None:
    produce, fetch = APIS[ApiKey.PRODUCE], APIS[ApiKey.FETCH]
    assert (str(produce.versions), str(fetch.versions)) == ("3-13", "4-18")
    assert produce.flexible.first == 9
    assert APIS[ApiKey.INIT_PRODUCER_ID].is_newest_unstable
    assert APIS[ApiKey.VOTE].listeners == ("controller",)


def test_messages_load_when_they_are_asked_for() -> None:
    program = (
        "import sys, headrace.wire\n"
        "loaded = [name for name in sys.modules if name.startswith('headrace.wire.messages.')]\n"
        "print(*sorted(loaded))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.decode().split() == [
        "headrace.wire.messages.request_header",
        "headrace.wire.messages.response_header",
    ]
    assert message_type("OffsetCommitKey").__name__ == "OffsetCommitKey"
