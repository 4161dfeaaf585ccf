"""The decorator of Python steps.

    from headrace.spark.pipelines import step

    @step(writes="totals", mode="complete")
    def totals(orders):                     # reads what its parameters name
        return orders.groupBy("customer").sum("amount")

    @step(reads="changes", writes="customers", per_batch=True)
    def upsert(batch, batch_id, sink):      # writes each batch itself
        ...

Only what the functions are marked with; `definition` finds them.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, overload

import msgspec

F = TypeVar("F", bound=Callable[..., Any])

MARK: Final = "__headrace_step__"


class Marked(msgspec.Struct, frozen=True):
    """What a function was marked with."""

    reads: tuple[str, ...]
    writes: str | None
    mode: str
    trigger: str | None
    watermark: str | None
    is_per_batch: bool
    name: str


@overload
def step(function: F, /) -> F: ...
@overload
def step(
    *,
    reads: str | Sequence[str] | None = None,
    writes: str | None = None,
    mode: str = "append",
    trigger: str | None = None,
    watermark: str | None = None,
    per_batch: bool = False,
    name: str | None = None,
) -> Callable[[F], F]: ...
def step(
    function: F | None = None,
    *,
    reads: str | Sequence[str] | None = None,
    writes: str | None = None,
    mode: str = "append",
    trigger: str | None = None,
    watermark: str | None = None,
    per_batch: bool = False,
    name: str | None = None,
) -> Any:
    """Mark a function as a step of a pipeline; see docs/pipelines.md.

    `reads` names its inputs, by default its parameters do. It gets a DataFrame for each and returns
    one. With `per_batch` it is called with each micro-batch as a plain DataFrame instead, and
    writes by itself; it may also ask for `batch_id`, `sink` and `parameters`.
    """

    def mark(marked: F) -> F:
        parameters = list(inspect.signature(marked).parameters)
        inputs: Sequence[str]
        if reads is not None:
            inputs = [reads] if isinstance(reads, str) else reads
        else:
            inputs = parameters[:1] if per_batch else parameters
        found = Marked(
            tuple(inputs),
            writes,
            mode,
            trigger,
            watermark,
            per_batch,
            name or marked.__name__,
        )
        setattr(marked, MARK, found)
        return marked

    return mark if function is None else mark(function)
