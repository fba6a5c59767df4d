"""Who a connection's client is, as far as its transport knows."""

import asyncio
from typing import Final

from oncelog.server.access import ANONYMOUS

PRINCIPAL: Final = "oncelog_principal"  # what a transport is asked for


def principal_of(transport: asyncio.BaseTransport) -> str:
    """By its certificate, where the listener asks for one."""
    return str(transport.get_extra_info(PRINCIPAL) or ANONYMOUS)
