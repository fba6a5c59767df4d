"""A request that is read is handled; what that raises becomes an answer, where the API has room for one."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import iscoroutine
from typing import Any

from oncelog.server.api import Api
from oncelog.server.api_listing import listed_apis
from oncelog.server.broker import Broker
from oncelog.server.call import AnswerTooLarge, Call, Encoded
from oncelog.server.eagerly import begun
from oncelog.server.errors import ErrorCode, KafkaError
from oncelog.server.request_reading import read_by_kio
from oncelog.wire.frames import MalformedFrame


class NoAnswer(Exception):
    """Nothing can be said but by closing the connection; why, where the client is to blame."""


def handled(api: Api, request: Any, call: Call) -> Any:
    """The answer, or what becomes one."""
    assert api.handle is not None
    answer = call.timed(partial(api.handle, request, call)) if call.spending else api.handle(request, call)
    if not iscoroutine(answer):
        return answer
    return begun(call.spending.timed(answer) if call.spending else answer)  # the handler may have put it away


async def read_aside(broker: Broker, api: Api, body: bytes, call: Call) -> Any:
    """Read a request by kio, in a thread."""
    unserved = broker.memory.unserved
    unserved.hold(len(body))
    try:
        return await broker.aside.run(read_by_kio, api.name, call.version, body)
    finally:
        unserved.give_back(len(body))


def too_new(call: Call) -> Any:
    """The answer to an ApiVersions that is too new: the client can choose again."""
    return replace(call.schema.refusal(ErrorCode.unsupported_version, None), api_keys=listed_apis(call))


def refused(error: Exception, api: Api, call: Call, log_unexpected: Callable[[str, Exception], None]) -> Any:
    """A refusal that concerns the whole request, or an accident. Raises NoAnswer."""
    if isinstance(error, MalformedFrame):
        raise NoAnswer(str(error))
    if isinstance(error, AnswerTooLarge):
        raise NoAnswer(f"{api.name} asks for {error}")
    if isinstance(error, KafkaError):
        code, message = error.code, error.message
    else:
        log_unexpected(api.name, error)
        code, message = ErrorCode.unknown_server_error, None
    answer = call.schema.refusal(code, message)
    if answer is None:
        raise NoAnswer
    return answer


def drop_answer(broker: Broker, future: "asyncio.Future[Any]") -> None:
    """Drop the answer to a connection that is gone."""
    answer = None if future.cancelled() or future.exception() else future.result()
    if type(answer) is Encoded:
        broker.memory.unsent.give_back(answer.held_bytes)
