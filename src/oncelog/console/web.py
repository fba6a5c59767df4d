"""The page's addresses: its files, the views as JSON, and signing in. Nothing else can be changed from here."""

import json
from asyncio import Lock, to_thread
from collections.abc import Awaitable, Callable, Collection
from hashlib import sha256
from importlib import import_module
from importlib.resources import files
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from oncelog.console import cluster, groups, messages, overview, producers, sinks, topics
from oncelog.console.errors import Refused
from oncelog.console.faults import Faults, faults_view
from oncelog.console.guard import App, Guard
from oncelog.console.query import Query
from oncelog.console.sign_in import SignIn
from oncelog.server.broker import Broker
from oncelog.server.turns import Turns

View = Callable[[Query], Awaitable[dict[str, Any]]]

KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
ASKS_AGAIN: Final = {"cache-control": "no-cache"}
KEEPS_NOTHING: Final = {"cache-control": "no-store"}


def application(broker: Broker, faults: Faults, sign_in: SignIn, own_names: Collection[str]) -> App:
    answering = _Answering(broker.turns, sign_in)
    routes = [Route(path, answering.by(view)) for path, view in _views(broker, faults).items()]
    signing = [
        Route("/api/session", sign_in.session),
        Route("/api/sign-in", sign_in.begin, methods=["POST"]),
        Route("/api/sign-out", sign_in.end, methods=["POST"]),
    ]
    return Guard(Starlette(routes=[*_files(), *routes, *signing]), own_names)


def _views(broker: Broker, faults: Faults) -> dict[str, View]:
    def on_broker(view: Callable[[Broker, Query], Awaitable[dict[str, Any]]]) -> View:
        return lambda query: view(broker, query)

    async def faults_now(query: Query) -> dict[str, Any]:
        query.refuse_unless_cluster()
        return faults_view(faults)

    async def overview_now(query: Query) -> dict[str, Any]:
        query.refuse_unless_cluster()
        return await overview.overview(broker, faults)

    def of_flows(name: str) -> View:
        """Imported when it is first asked for: the page is there without the extra [flow]."""

        async def view(query: Query) -> dict[str, Any]:
            try:
                module = await to_thread(import_module, "oncelog.console.flows")
            except ImportError as missing:
                raise Refused(501, str(missing)) from missing
            found: dict[str, Any] = await getattr(module, name)(broker, query)
            return found

        return view

    return {
        "/api/overview": overview_now,
        "/api/topics": on_broker(topics.topics_view),
        "/api/topic": on_broker(topics.topic_view),
        "/api/messages": on_broker(messages.messages_view),
        "/api/message": on_broker(messages.message_view),
        "/api/producers": on_broker(producers.producers_view),
        "/api/partition-producers": on_broker(producers.partition_producers_view),
        "/api/groups": on_broker(groups.groups_view),
        "/api/group": on_broker(groups.group_view),
        "/api/sinks": on_broker(sinks.sinks_view),
        "/api/sink": on_broker(sinks.sink_view),
        "/api/flows": of_flows("flows_view"),
        "/api/flow": of_flows("flow_view"),
        "/api/cluster": on_broker(cluster.cluster_view),
        "/api/faults": faults_now,
    }


class _Answering:
    """One look after the other, for all clients together: they never read and unfold more than one look may."""

    def __init__(self, turns: Turns, sign_in: SignIn) -> None:
        self._turns = turns
        self._sign_in = sign_in
        self._look = Lock()

    def by(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                rights = self._sign_in.rights(request)
            except Refused as refused:
                return _told({"error": refused.message}, refused.status)
            async with self._look:
                if await request.is_disconnected():
                    return Response(status_code=503)  # nobody gets it
                if self._turns.is_over():
                    await self._turns.next()
                return await _answer(view, Query(request.query_params, rights))

        return answer


async def _answer(view: View, query: Query) -> Response:
    try:
        found, status = await view(query), 200
    except Refused as refused:
        found, status = {"error": refused.message}, refused.status
    return _told(found, status)


def _told(found: dict[str, Any], status: int) -> Response:
    text = json.dumps(found, ensure_ascii=True, separators=(",", ":"))
    return Response(text, status, headers=KEEPS_NOTHING, media_type="application/json")


def _files() -> list[Route]:
    """All of them in memory: they are few and small, and the disk has better things to do."""
    folder = files(__package__) / "static"
    routes = []
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        kind = KINDS.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/static/{file.name}"
            routes.append(Route(path, _serving(file.read_bytes(), kind)))
    return routes


def _serving(body: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    tag = f'"{sha256(body).hexdigest()[:16]}"'
    headers = {**ASKS_AGAIN, "etag": tag}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=kind)

    return answer
