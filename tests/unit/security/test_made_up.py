"""Challenges for names that there are not: nobody can tell them from others."""

import secrets
from collections import Counter
from random import Random

from headrace.metadata.credential_shapes import CredentialShapes, Shape
from headrace.metadata.state import ScramCredential
from headrace.sasl import scram
from headrace.security.made_up import USUAL, make_up
from headrace.security.passwords import Passwords

SHA_256, SHA_512 = scram.SCRAM_SHA_256, scram.SCRAM_SHA_512
SECRET = b"s" * 32
OURS = ScramCredential(bytes(range(200, 224)), b"", b"", 8192)
KAFKAS = ScramCredential(b"1f8xk2q0c5n7w3m9z4v6b1l2a0", b"", b"", 4096)


def shapes_of(*credentials: ScramCredential) -> CredentialShapes:
    rows = {(f"user-{i}", SHA_256.type_id): each for i, each in enumerate(credentials)}
    return CredentialShapes(rows)


def challenge(name: str, shapes: CredentialShapes, secret: bytes = SECRET) -> tuple[int, bytes]:
    made = make_up(SHA_256, name, secret, lambda number: shapes.pick(SHA_256.type_id, number))
    return made.iterations, made.salt


def test_iterations_and_salts_are_of_the_kinds_that_users_have() -> None:
    shapes = shapes_of(OURS, OURS, OURS, KAFKAS)
    seen = Counter(challenge(f"nobody-{number}", shapes)[0] for number in range(400))
    assert set(seen) == {8192, 4096}
    assert 50 < seen[4096] < 150, "as many as there are"
    for number in range(400):
        iterations, salt = challenge(f"nobody-{number}", shapes)
        assert len(salt) == {8192: 24, 4096: 26}[iterations]
        # A number of 130 bits with 26 digits to the base 36 begins with a 1.
        assert iterations == 8192 or (salt.isalnum() and salt.startswith(b"1"))


def test_a_name_has_the_same_challenge_wherever_the_secret_is_the_same() -> None:
    shapes = shapes_of(OURS, KAFKAS)
    assert challenge("nobody", shapes) == challenge("nobody", shapes_of(OURS, KAFKAS))
    assert challenge("nobody", shapes) != challenge("nobody", shapes, b"another secret")
    assert challenge("nobody", shapes) != challenge("somebody", shapes)


def test_a_name_has_another_salt_with_another_mechanism() -> None:
    """As a user has, whose two credentials are made one by one."""
    salts = {make_up(each, "nobody", SECRET).salt for each in (SHA_256, SHA_512)}
    assert len(salts) == 2


def test_where_there_are_no_users_challenges_are_those_of_our_own_tools() -> None:
    made = make_up(SHA_256, "nobody", SECRET)
    assert (made.iterations, len(made.salt)) == (USUAL.iterations, USUAL.salt_bytes)


def test_shapes_that_come_and_go_leave_what_was_counted_before() -> None:
    random = Random(1)
    shapes, kept = CredentialShapes({}), [OURS]
    shapes.count(SHA_256.type_id, OURS, 1)
    for _ in range(200):
        if len(kept) > 1 and random.random() < 0.5:
            shapes.count(SHA_256.type_id, kept.pop(), -1)
        else:
            kept.append(random.choice([OURS, KAFKAS]))
            shapes.count(SHA_256.type_id, kept[-1], 1)
        fresh, number = shapes_of(*kept), random.getrandbits(64)
        assert shapes.pick(SHA_256.type_id, number) == fresh.pick(SHA_256.type_id, number)
    assert shapes.pick(SHA_512.type_id, 0) is None
    assert shapes.pick(SHA_256.type_id, 2**64 - 1) in (Shape(8192, 24), Shape(4096, 26, True))


def test_a_password_of_nobody_is_compared_as_often_as_that_of_a_user() -> None:
    """As many computations of as many iterations: what takes time is the same."""
    real = {
        (name, mechanism): scram.make_credential(mechanism, "right", secrets.token_bytes(24), 8192)
        for name in ("alice", "bob")
        for mechanism in (SHA_256, SHA_512)
    }
    passwords = Passwords(
        lambda name, mechanism: real.get((name, mechanism)),
        SECRET,
        lambda mechanism, number: Shape(8192, 24),
    )

    def work(name: str) -> list[tuple[str, int, int]]:
        return [
            (mechanism.name, each.iterations, len(each.salt))
            for mechanism, each in passwords.credentials_of(name)
        ]

    assert work("nobody") == work("alice")
    assert passwords.is_right("right", passwords.credentials_of("alice"))
    assert not passwords.is_right("right", passwords.credentials_of("nobody"))
