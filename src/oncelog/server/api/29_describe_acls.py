"""DescribeAcls, versions 1 to 3: there are no access rules, said in the words of a Kafka without an authorizer."""

from typing import Any

from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode


def handle(request: Any, call: Call) -> Any:
    return call.new(
        "DescribeAclsResponse",
        error_code=ErrorCode.security_disabled,
        error_message="No Authorizer is configured.",
        resources=(),
    )


API = Api(key=29, name="describe_acls", versions=(1, 3), handle=handle)
