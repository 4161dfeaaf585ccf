"""How many files are mapped at once."""

from headrace.log.maps import Maps


class Holder:
    """Something that holds a map."""

    def __init__(self) -> None:
        self.is_mapped = True

    def unmap(self) -> None:
        self.is_mapped = False


def test_the_oldest_map_is_let_go_for_a_new_one() -> None:
    maps = Maps(2)
    holders = [Holder() for _ in range(4)]
    for holder in holders:
        maps.hold(holder)
    assert [holder.is_mapped for holder in holders] == [False, False, True, True]


def test_the_maps_of_one_disk_do_not_count_for_another() -> None:
    first, second = Holder(), Holder()
    Maps(1).hold(first)
    Maps(1).hold(second)
    assert first.is_mapped
    assert second.is_mapped
