"""A connection's transport, as the connection needs it: who its client is, and how much it keeps."""

import asyncio
from typing import Final

from oncelog.server.access import ANONYMOUS

PRINCIPAL: Final = "oncelog_principal"
KEPT_BYTES: Final = "oncelog_kept_bytes"  # by TLS, of what may not be read yet
HAS_KEPT: Final = "oncelog_has_kept"  # whether something of it is to be read, though nothing more comes


def principal_of(transport: asyncio.BaseTransport) -> str:
    """The principal by its certificate, where the listener asks for one."""
    return str(transport.get_extra_info(PRINCIPAL) or ANONYMOUS)
