"""oncelog: the flow of `ours.py` in tasks of Spark, three at a time.

handed_over  `count`; a task holds its cells for 6 s
"""

import logging

from bench.flow_peers import setting
from bench.flow_peers.ours import flow
from oncelog.spark import session
from oncelog.spark.flows.driving import TENURE_S

SHORT_S = 6.0

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    tenure_s = SHORT_S if setting.pipeline == "handed_over" else TENURE_S
    spark = session("oncelog", {"spark.master": "local[4]"}, progress=False)
    flow().run({"bootstrap.servers": setting.servers}, spark=spark, tenure=tenure_s)
