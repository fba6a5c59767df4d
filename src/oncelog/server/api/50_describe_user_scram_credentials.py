"""DescribeUserScramCredentials, version 0 (KIP-554): who there is, and by which mechanisms; nothing to prove it by."""

from typing import Any

from oncelog.security.operations import Operation
from oncelog.security.users import NUMBERS
from oncelog.server.api import Api
from oncelog.server.api_rights import demand_cluster
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.packing import packed_aside

TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
NOBODY = "Attempt to describe a user credential that does not exist: "


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    demand_cluster(call.rights, Operation.DESCRIBE)
    asked: dict[str, bool] = {}  # whether more than once
    for each in request.users or ():
        asked[each.name] = each.name in asked
    names = asked or dict.fromkeys(call.broker.users.now.names, False)
    results = await call.each(names.items(), lambda named: _result(*named, call))
    return call.new(
        "DescribeUserScramCredentialsResponse", error_code=ErrorCode.none, error_message=None, results=results
    )


def _result(name: str, is_twice: bool, call: Call) -> Any:
    mechanisms = call.broker.users.now.mechanisms(name)
    code, message = ErrorCode.none, None
    if is_twice:
        code, message, mechanisms = ErrorCode.duplicate_resource, TWICE + name, {}
    elif not mechanisms:
        code, message = ErrorCode.resource_not_found, NOBODY + name
    return call.new(
        "DescribeUserScramCredentialsResult",
        user=name,
        error_code=code,
        error_message=message,
        credential_infos=tuple(
            call.new("CredentialInfo", mechanism=number, iterations=mechanisms[mechanism])
            for number, mechanism in NUMBERS.items()
            if mechanism in mechanisms
        ),
    )


API = Api(key=50, name="describe_user_scram_credentials", versions=(0, 0), handle=handle)
