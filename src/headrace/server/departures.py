"""Whether the client of a connection that nothing is read from has gone.

The loop hears of the end of a connection by reading. What is left to read then is left to be done:
only a client that has nothing more to say, but for the farewell of TLS, has gone.
"""

import fcntl
import select
import termios
from array import array
from typing import Final

FAREWELL_BYTES_MAX: Final = 31
"""The alert that closes TLS; no request that changes anything is as short."""
_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def has_left(descriptor: int, missing_bytes: int = FAREWELL_BYTES_MAX + 1) -> bool:
    """Return whether the other end of a socket has closed it, and has sent too little before that.

    `missing_bytes` is how much is needed to do anything more for it.
    """
    look = select.poll()
    look.register(descriptor, _HUNG_UP)
    if not look.poll(0):
        return False
    unread = array("i", [0])
    try:
        fcntl.ioctl(descriptor, termios.FIONREAD, unread)
    except OSError:
        return True  # it was reset
    return unread[0] < missing_bytes
