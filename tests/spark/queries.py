"""Streaming queries of tests, run to their end."""

from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

QUERY_SECONDS_MAX = 120
STARTS_MAX = 4
POLL_SECONDS = 0.1
NOT_STARTED = "Python worker failed to connect back"


def run(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query and wait for its end; what it fails with is raised.

    Spark gives a stream's Python process ten seconds to come up, whatever is set, which a busy
    machine may exceed. Nothing of the query has run then, and it is started again.
    """
    for attempt in range(1, STARTS_MAX + 1):
        query = start()
        try:
            assert query.awaitTermination(QUERY_SECONDS_MAX), "the query does not end"
        except StreamingQueryException as error:
            if NOT_STARTED not in str(error) or attempt == STARTS_MAX:
                raise
        else:
            break
    return query


def revived(query: StreamingQuery, start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Give a query that has no end, started again if it could not come up; see `run`."""
    error = query.exception()
    if error is None:
        return query
    if NOT_STARTED not in str(error):
        raise error
    return start()
