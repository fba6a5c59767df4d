"""oncelog: the flow of `ours.py` in two processes, which share its cells. SIGTERM reaches both."""

import logging
import os
import signal
import sys

from bench.flow_peers import setting
from bench.flow_peers.ours import flow

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    other = os.fork()  # before anything has threads
    if other:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        flow().run({"bootstrap.servers": setting.servers}, share=True)
    finally:
        if other:
            os.kill(other, signal.SIGTERM)
