"""What threads of a process keep open."""

from concurrent.futures import ThreadPoolExecutor

from headrace.spark.kept import Kept


class Connection:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_busy = False
        self.is_closed = False

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True


def opened(kept: Kept[str, Connection], names: str) -> list[Connection]:
    return [kept.get(each, lambda name=each: Connection(name)) for each in names]  # type: ignore[misc]


def test_the_least_recently_used_one_is_closed() -> None:
    kept: Kept[str, Connection] = Kept(2)
    a, b, again, c = opened(kept, "abac")
    assert again is a
    assert [each.is_closed for each in (a, b, c)] == [False, True, False]


def test_each_thread_has_its_own_and_closes_none_of_another_one() -> None:
    kept: Kept[str, Connection] = Kept(1)
    (mine,) = opened(kept, "a")
    with ThreadPoolExecutor(1) as pool:
        (its,) = pool.submit(opened, kept, "a").result()
        assert its is not mine
        (other,) = opened(kept, "b")
        assert (mine.is_closed, its.is_closed) == (True, False)
    opened(kept, "b")
    assert its.is_closed, "its thread is over"
    assert not other.is_closed


def test_what_is_in_use_is_not_closed_at_the_end() -> None:
    kept: Kept[str, Connection] = Kept(4)
    a, b = opened(kept, "ab")
    a.is_busy = True
    kept.close()
    assert (a.is_closed, b.is_closed) == (False, True)
    assert opened(kept, "b") != [b]
