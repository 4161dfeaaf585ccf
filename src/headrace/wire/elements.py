"""How many elements a message holds, which is what encoding it costs."""

from functools import cache

from headrace.wire.schema import Struct


def has_elements(message: Struct, count: int) -> bool:
    """Return whether a message's arrays, nested ones included, have at least `count` elements.

    The cost is bounded by `count`, whatever the message holds.
    """
    return _counted(message, 0, count) >= count


def _counted(struct: Struct, counted: int, enough: int) -> int:
    primitives, structs = _arrays(type(struct))
    for name in primitives:
        counted += len(getattr(struct, name) or ())
    for name in structs:
        elements = getattr(struct, name)
        if not elements:
            continue
        counted += len(elements)
        for element in elements:
            if counted >= enough:
                return counted
            counted = _counted(element, counted, enough)
    return counted


@cache
def _arrays(kind: type[Struct]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the arrays of primitives and of the arrays of structs."""
    of_primitives, of_structs = [], []
    for field in kind.FIELDS:
        match field.type:
            case [str()]:
                of_primitives.append(field.name)
            case [_]:
                of_structs.append(field.name)
    return tuple(of_primitives), tuple(of_structs)
