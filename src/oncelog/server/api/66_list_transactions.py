"""ListTransactions, versions 0 to 2 (KIP-664, KIP-994 duration v1, KIP-1152 pattern v2): those that this broker
coordinates."""

from datetime import timedelta
from typing import Any

from oncelog.security.operations import Operation, Resource
from oncelog.security.patterns import REQUESTS_BYTES, BadPattern, compiled
from oncelog.server.api import Api
from oncelog.server.call import Call
from oncelog.server.errors import ErrorCode
from oncelog.server.packing import packed_aside
from oncelog.server.transactions.memory import Entry
from oncelog.transactions.states import State

MS = timedelta(milliseconds=1)
TOLD = {state.told: state for state in State}


@packed_aside
async def handle(request: Any, call: Call) -> Any:
    transactions = call.broker.transactions
    unknown = tuple(each for each in request.state_filters if each not in TOLD)
    error, states = ErrorCode.none, ()
    pattern = getattr(request, "transactional_id_pattern", None)
    try:
        matches = compiled(pattern, REQUESTS_BYTES).fullmatch if pattern else None
    except BadPattern:
        error, matches = ErrorCode.invalid_regular_expression, None
    if not transactions.is_running:
        error = ErrorCode.coordinator_not_available
    elif transactions.is_loading:
        error = ErrorCode.coordinator_load_in_progress
    if error is ErrorCode.none:
        pids, wanted = set(request.producer_id_filters), {TOLD[each] for each in request.state_filters if each in TOLD}
        least_ms = _duration_ms(getattr(request, "duration_filter", None))

        def is_wanted(entry: Entry) -> bool:
            now = entry.now
            return (
                (not pids or now.pid in pids)
                and (not request.state_filters or now.state in wanted)
                and (least_ms < 0 or call.now.wall_ms - now.started_wall_ms > least_ms)
                and call.rights.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, entry.transactional_id)
                and (matches is None or matches(entry.transactional_id) is not None)  # last: it takes time
            )

        found = await call.each(
            list(transactions.entries.values()), lambda each: _state(each, call) if is_wanted(each) else None
        )
        states = tuple(each for each in found if each is not None)
    return call.new(
        "ListTransactionsResponse", error_code=error, unknown_state_filters=unknown, transaction_states=states
    )


def _duration_ms(wanted: Any) -> int:
    if wanted is None:
        return -1
    return wanted // MS if isinstance(wanted, timedelta) else int(wanted)


def _state(entry: Entry, call: Call) -> Any:
    return call.new(
        "TransactionState",
        transactional_id=entry.transactional_id,
        producer_id=entry.now.pid,
        transaction_state=entry.now.state.told,
    )


API = Api(key=66, name="list_transactions", versions=(0, 2), handle=handle)
