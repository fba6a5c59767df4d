"""Many connections of one host to the port of the metrics, and a scraper of another."""

import asyncio

from oncelog.metrics.http import MAX_OPEN, MetricsServer
from tests.server.test_metrics import Scraped


async def test_who_connects_again_and_again_pushes_out_none_of_another_host() -> None:
    """Who comes from afar has connected long before its request arrives."""
    server = MetricsServer(lambda: iter(("text\n",)))
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.3", 0))
    crowd = []
    for _ in range(2 * MAX_OPEN):
        crowd.append(await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0)))
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert Scraped(await reader.read()).unchunked() == b"text\n"
    for _, each in (*crowd, (reader, writer)):
        each.close()
    await server.stop()
