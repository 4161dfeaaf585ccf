"""A client that costs next to nothing: the same request again and again, one in flight.

As a program it is one of many that press a broker at once. It connects to a port, reads a request
from standard input, asks a few times for warmth and prints `ready`; given a line, it asks for some
seconds and prints how many answers came.
"""

import socket
import struct
import sys
import time
from typing import Final

WARM_UP_REQUESTS: Final = 300
ANSWER_SECONDS_MAX: Final = 30
_SIZE: Final = struct.Struct(">i")


def ask(connection: socket.socket, request: bytes) -> bytes:
    """Send a whole frame; give the answer without its size."""
    connection.sendall(request)
    answer = connection.recv(65536)
    while len(answer) < 4 or len(answer) < 4 + _SIZE.unpack_from(answer)[0]:
        more = connection.recv(65536)
        if not more or not answer:
            raise ConnectionResetError("the broker closed the connection")
        answer += more
    return answer[4:]


def main(port: int, seconds: float) -> None:
    request = bytes.fromhex(sys.stdin.readline())
    with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS_MAX) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(WARM_UP_REQUESTS):
            ask(connection, request)
        print("ready", flush=True)
        sys.stdin.readline()
        count = 0
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ask(connection, request)
            count += 1
    print(count, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
