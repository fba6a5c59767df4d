"""What a contestant is told. The other programs run in environments where nothing of ours is installed."""

import os
import sys

# kio looks for hypothesis, which our tests bring along and a user's environment does not: a quarter of a second.
sys.modules["hypothesis"] = None  # type: ignore[assignment]

pipeline = sys.argv[1]
servers = os.environ["FLOW_SERVERS"]
app = os.environ["FLOW_APP"]  # group, application, name
source, between, out = (os.environ[f"FLOW_{which}"] for which in ("IN", "BETWEEN", "OUT"))
state = os.environ["FLOW_STATE"]
files = f"{state}/files"
partitions, out_partitions = int(os.environ["FLOW_PARTITIONS"]), int(os.environ["FLOW_OUT_PARTITIONS"])
