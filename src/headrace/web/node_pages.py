"""Routes of a node's pages about itself: segments, its view of the cluster, metadata entries."""

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from headrace.client.node_inspection import METADATA_PATH, SEGMENTS_PATH, VIEW_PATH
from headrace.loop.slices import finish
from headrace.web.node_inspection import (
    describe_entries,
    describe_segments,
    describe_view,
    take_entries,
)

if TYPE_CHECKING:
    from headrace.node.node import Node

JSON: Final = "application/json"


def node_routes(node: "Node") -> list[Route]:
    """Return the routes of `/node/...`."""

    async def segments(request: Request) -> Response:
        """Return the segments of the node's replicas, of all topics or of those asked for."""
        if (reason := node.explain_waiting()) is not None:
            return PlainTextResponse(f"{reason}\n", status_code=503)
        topics = frozenset(request.query_params.getlist("topic")) or None
        found = await finish(describe_segments(node, topics))
        data = await asyncio.get_running_loop().run_in_executor(None, msgspec.json.encode, found)
        return Response(data, media_type=JSON)

    async def view(request: Request) -> Response:
        """Return how the node sees itself and the others, even while it waits for them."""
        try:
            found = describe_view(node.cluster.operator.view())
        except RuntimeError as error:  # no cluster yet
            return PlainTextResponse(f"{error}\n", status_code=503)
        return Response(msgspec.json.encode(found), media_type=JSON)

    async def metadata(request: Request) -> Response:
        """Return entries of the metadata log, a page of them."""
        if (reason := node.explain_waiting()) is not None:
            return PlainTextResponse(f"{reason}\n", status_code=503)
        try:
            first = int(request.query_params.get("first", "0"))
            stop = request.query_params.get("stop")
            taken = take_entries(node, first, None if stop is None else int(stop))
        except ValueError:
            return PlainTextResponse("first and stop are indexes of entries\n", status_code=400)
        loop = asyncio.get_running_loop()
        data = await loop.run_in_executor(None, describe_entries, int(node.node_id), taken)
        return Response(data, media_type=JSON)

    return [
        Route(SEGMENTS_PATH, segments),
        Route(VIEW_PATH, view),
        Route(METADATA_PATH, metadata),
    ]
