"""Routes of the HTTP port."""

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from headrace.loop.slices import finish
from headrace.remote.tier_status import PATH as TIER_PATH
from headrace.security.certificates import Certificates
from headrace.web.access import KNOWN
from headrace.web.health import explain_leaving, explain_unready
from headrace.web.metrics import CONTENT_TYPE, NodeMetrics
from headrace.web.node_pages import node_routes
from headrace.web.share_inspection import NothingKnown, inspect_share, split_path

if TYPE_CHECKING:
    from headrace.node.node import Node

NO_TIER: Final = (
    "this node has no tier: start it with remote.log.storage.system.enable=true and "
    "headrace.tier.store\n"
)


def application(node: "Node", certificates: Certificates | None = None) -> Starlette:
    """Return a node's pages as an ASGI application; `certificates` are those of the pages."""
    metrics = NodeMetrics(node, certificates)

    async def healthz(request: Request) -> Response:
        """Report that the loop runs: a response proves it."""
        await asyncio.sleep(0)
        return PlainTextResponse("the loop turns\n")

    async def readyz(request: Request) -> Response:
        """Report whether the node is ready, or why it is not."""
        reason = explain_unready(node)
        if not request.scope.get(KNOWN, True):
            is_ready = reason is None
            words = "ready\n" if is_ready else "not ready\n"
            return PlainTextResponse(words, status_code=200 if is_ready else 503)
        if reason is None:
            leaving = explain_leaving(node)
            return PlainTextResponse("ready\n" if leaving is None else f"ready; {leaving}\n")
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

    async def tier(request: Request) -> Response:
        """Return what the node says of its tier."""
        if (reason := node.explain_waiting()) is not None:
            return PlainTextResponse(f"{reason}\n", status_code=503)
        if (found := node.tier) is None:
            return PlainTextResponse(NO_TIER, status_code=404)
        status = await finish(found.describe())
        data = await asyncio.get_running_loop().run_in_executor(None, msgspec.json.encode, status)
        return Response(data, media_type="application/json")

    routes = [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", page_of_metrics),
        Route("/share/{names:path}", share),
        Route(TIER_PATH, tier),
        *node_routes(node),
    ]
    return Starlette(routes=routes)
