"""The table of record types against the schemas."""

from headrace.groups.record_types import RECORD_TYPES


def test_a_record_type_has_the_number_of_its_key_and_a_value_of_the_same_number() -> None:
    for number, (key, value) in RECORD_TYPES.items():
        assert key.API_KEY == value.API_KEY == number


def test_a_number_that_no_record_has_is_not_in_the_table() -> None:
    assert 9 not in RECORD_TYPES
    assert RECORD_TYPES.get(9) is None
    assert len(RECORD_TYPES) == len(list(RECORD_TYPES))
