"""Users that were put into a node's folder for its next start: the first ones of a cluster.

    headrace cluster init-admin alice --data data      # writes the file; the password is not in it
    headrace up ...                                    # takes it into the metadata log

Whoever can write into the folder could change everything in it anyway, so the file needs no other
proof. It has what SCRAM checks proofs with, for each mechanism.
"""

import logging
import os
import secrets
from pathlib import Path
from typing import Final

import msgspec

from headrace.errors import HeadraceError
from headrace.log.disk import Disk
from headrace.metadata.ddl import SetScramCredential, encode_ddl
from headrace.metadata.entries import Batch, CatalogDdl
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.state import ScramCredential
from headrace.sasl import scram
from headrace.security.made_up import SALT_BYTES

FILE: Final = "first-users.json"
USERS_MAX: Final = 100
ITERATIONS: Final = 8192

logger = logging.getLogger(__name__)


class FirstUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user and what SCRAM needs of it."""

    name: str
    mechanism: int
    credential: ScramCredential


class CannotTakeUsers(HeadraceError):
    """A file of first users that cannot be read."""


def write_first_user(folder: Path, name: str, password: str) -> Path:
    """Add a user to those of the next start, or give it another password; return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    users = _decode(path.read_bytes()) if path.exists() else []
    users = [each for each in users if each.name != name]
    for mechanism in scram.MECHANISMS.values():
        made = scram.make_credential(
            mechanism, password, secrets.token_bytes(SALT_BYTES), ITERATIONS
        )
        row = ScramCredential(made.salt, made.stored_key, made.server_key, made.iterations)
        users.append(FirstUser(name, mechanism.type_id, row))
    if len(users) > USERS_MAX:
        raise CannotTakeUsers(f"{path}: has more than {USERS_MAX} credentials")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(users))
    return path


async def take_first_users(disk: Disk, quorum: MetadataQuorum) -> None:
    """Take the users of the file into the metadata log, if there is one, and remove the file."""
    try:
        data = disk.read(FILE)
    except FileNotFoundError:
        return
    users = _decode(data)
    entries = [
        CatalogDdl(encode_ddl(SetScramCredential(each.name, each.mechanism, each.credential)))
        for each in users
    ]
    if entries:
        await quorum.propose(Batch(tuple(entries)))
    disk.remove(FILE)
    logger.info("users of %s are in the metadata log: %s", FILE, ", ".join(_names(users)))


def _names(users: list[FirstUser]) -> list[str]:
    return sorted({each.name for each in users})


def _decode(data: bytes) -> list[FirstUser]:
    try:
        users = msgspec.json.decode(data, type=list[FirstUser])
    except (ValueError, RecursionError):
        raise CannotTakeUsers(
            f"{FILE}: cannot be read; remove it, and run `headrace cluster init-admin` again"
        ) from None
    if len(users) > USERS_MAX:
        raise CannotTakeUsers(f"{FILE}: has more than {USERS_MAX} credentials")
    return users
