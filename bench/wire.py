"""The wire codec against kio 0.6, whose encoder is Python and whose decoder is Rust."""

import io
import os
import subprocess
import sys

from kio.schema.metadata.v12.response import MetadataResponse as KioMetadataResponse
from kio.schema.produce.v9.request import ProduceRequest as KioProduceRequest
from kio.serial import entity_reader, entity_writer

from bench.measure import Figure, report, seconds_side_by_side
from headrace.wire import decode, encode
from headrace.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

BATCH_BYTES = 16 * 1024
IMPORT_ROUNDS = 10


def main() -> None:
    report([encode_metadata(), decode_produce(), import_time()])


def encode_metadata() -> Figure:
    brokers = [MetadataResponseBroker(n, f"broker-{n}", 9092, "rack") for n in range(3)]
    partitions = [
        MetadataResponsePartition(0, n, n % 3, 7, [0, 1, 2], [0, 1, 2], []) for n in range(100)
    ]
    topic = MetadataResponseTopic(0, "orders", os.urandom(16), False, partitions)
    response = MetadataResponse(0, brokers, "cluster", 0, [topic])
    theirs, _ = entity_reader(KioMetadataResponse)(encode(response, 12), 0)
    write = entity_writer(KioMetadataResponse)

    def kio() -> bytes:
        out = io.BytesIO()
        write(out, theirs)
        return out.getvalue()

    assert kio() == encode(response, 12)
    ours, peer = seconds_side_by_side(lambda: encode(response, 12), kio)
    detail = f"{ours * 1e6:.0f} us, kio {peer * 1e6:.0f} us"
    return Figure("wire.encode_metadata_100_partitions", peer / ours, 5, False, detail)


def decode_produce() -> Figure:
    partition = PartitionProduceData(0, os.urandom(BATCH_BYTES))
    topic = TopicProduceData("orders", partition_data=[partition])
    frame = encode(ProduceRequest(None, -1, 30_000, [topic]), 9)
    read = entity_reader(KioProduceRequest)
    ours, peer = seconds_side_by_side(
        lambda: decode(ProduceRequest, frame, 9), lambda: read(frame, 0)
    )
    detail = f"{ours * 1e6:.2f} us, kio (Rust) {peer * 1e6:.2f} us"
    return Figure("wire.decode_produce_16_KB", ours / peer, 3, True, detail)


def import_time() -> Figure:
    """Compare with the 60 ms that an import may take, once its byte code is cached."""
    program = (
        "import time; begin = time.perf_counter(); import headrace.wire; "
        "print(time.perf_counter() - begin)"
    )
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", program]
    times = [float(subprocess.check_output(command, env=environment)) for _ in range(IMPORT_ROUNDS)]
    best = min(times)
    return Figure("wire.import", best / 0.060, 1, True, f"{best * 1e3:.0f} ms of 60 ms")


if __name__ == "__main__":
    main()
