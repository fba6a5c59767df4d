"""Asking other brokers: a few connections to each, kept for the next request."""

import asyncio
from collections.abc import Callable
from typing import Any

from oncelog.cluster.links import Links
from oncelog.cluster.peer import Peer, PeerGone
from oncelog.wire.requests import request_schema

CONNECT_S = 2.0
ANSWER_S = 30.0
MOST_IDLE = 4  # connections to one broker
MOST_AT_ONCE = 16
CLIENT_ID = "oncelog"


class PeerConnections:
    def __init__(self, address: Callable[[int], tuple[str, int] | None], links: Links) -> None:
        self._address = address
        self._links = links
        self._idle: dict[int, list[Peer]] = {}
        self._room: dict[int, asyncio.Semaphore] = {}
        self._is_closed = False

    async def ask(self, node_id: int, name: str, version: int, request: Callable[[Callable[..., Any]], Any]) -> Any:
        """Raises OSError and MalformedFrame."""
        return await asyncio.ensure_future(self._ask(node_id, name, version, request))  # a timeout needs a task

    async def _ask(self, node_id: int, name: str, version: int, request: Callable[[Callable[..., Any]], Any]) -> Any:
        """A connection that has ended while it was idle is no reason to give up."""
        schema = request_schema(name, version)
        frame = schema.encode(request(schema.new), 1, CLIENT_ID)
        async with self._room.setdefault(node_id, asyncio.Semaphore(MOST_AT_ONCE)):
            while idle := self._idle.get(node_id):
                peer = idle.pop()
                try:
                    answer = await peer.ask(frame, ANSWER_S)
                except PeerGone:
                    continue
                return self._read(node_id, peer, schema, answer)
            address = self._address(node_id)
            if address is None:
                raise ConnectionError(f"broker {node_id} is down")
            peer = await self._links.connect(address, CONNECT_S)
            return self._read(node_id, peer, schema, await peer.ask(frame, ANSWER_S))

    def _read(self, node_id: int, peer: Peer, schema: Any, answer: bytearray) -> Any:
        idle = self._idle.setdefault(node_id, [])
        if self._is_closed or len(idle) >= MOST_IDLE:
            peer.close()
        else:
            idle.append(peer)
        return schema.read(answer)

    def close(self) -> None:
        self._is_closed = True
        for idle in self._idle.values():
            for peer in idle:
                peer.close()
        self._idle.clear()
