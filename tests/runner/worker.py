"""The flow of these tests in a process of its own: `python -m tests.runner.worker SERVERS NAME [PARTITIONS [end]]`."""

import atexit
import gc
import logging
import sys

from tests.runner.flows import Billing


def main(servers: str, name: str, partitions: str = "2", until: str | None = None) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    atexit.register(lambda: logging.info("and left %d objects behind", gc.get_freeze_count()))
    billing = Billing(name, servers, partitions=int(partitions))
    billing.flow().run(billing.properties, until=until)
    logging.info("it has ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
