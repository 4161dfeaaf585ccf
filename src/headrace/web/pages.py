"""Routes of the HTTP port."""

import asyncio
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from headrace.web.health import explain_unready
from headrace.web.metrics import CONTENT_TYPE, NodeMetrics
from headrace.web.share_inspection import NothingKnown, inspect_share, split_path

if TYPE_CHECKING:
    from headrace.node.node import Node


def application(node: "Node") -> Starlette:
    """Return a node's pages as an ASGI application."""
    metrics = NodeMetrics(node)

    async def healthz(request: Request) -> Response:
        """Report that the loop runs: a response proves it."""
        await asyncio.sleep(0)
        return PlainTextResponse("the loop turns\n")

    async def readyz(request: Request) -> Response:
        """Report whether the node is ready, or why it is not."""
        reason = explain_unready(node)
        if reason is None:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"{reason}\n", status_code=503)

    async def page_of_metrics(request: Request) -> Response:
        if (reason := node.explain_waiting()) is not None:
            return PlainTextResponse(f"{reason}\n", status_code=503)
        return Response(await metrics.page(), media_type=CONTENT_TYPE)

    async def share(request: Request) -> Response:
        """Return the in-flight records of a share group's topic and the members that hold them."""
        if (reason := node.explain_waiting()) is not None:
            return PlainTextResponse(f"{reason}\n", status_code=503)
        try:
            group_id, topic = split_path(request.scope["raw_path"])
            found = await inspect_share(node.broker, group_id, topic)
            # Plain data that no longer changes; with many partitions it is a long text.
            return await asyncio.get_running_loop().run_in_executor(None, JSONResponse, found)
        except NothingKnown as reason:
            return PlainTextResponse(f"{reason}\n", status_code=404)

    routes = [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", page_of_metrics),
        Route("/share/{names:path}", share),
    ]
    return Starlette(routes=routes)
