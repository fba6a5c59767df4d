"""ListPartitionReassignments, version 0 (KIP-455): nothing is ever on its way; kafka-topics --describe asks."""

from typing import Any

from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode


def handle(request: Any, call: Call) -> Any:
    return call.new("ListPartitionReassignmentsResponse", error_code=ErrorCode.none, error_message=None, topics=())


API = Api(key=46, name="list_partition_reassignments", versions=(0, 0), handle=handle)
