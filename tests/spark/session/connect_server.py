"""A Spark Connect server as an administrator starts it: by spark-submit, in a process of its own."""

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from oncelog.chaos.life import Life
from oncelog.spark.java import find_java, launching_home
from tests.spark.cluster import spark_home
from tests.spark.session.running import environment

START_SECONDS = 120
STOP_SECONDS = 30
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
LOGGING = """
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n%ex
logger.server.name = org.apache.spark.sql.connect.service
logger.server.level = info
"""


class ConnectServer(Life):
    def __init__(self, folder: Path) -> None:
        super().__init__("the Connect server", folder / "connect.log")
        self.url = ""
        self._folder = folder

    def __enter__(self) -> Self:
        logging, java = self._folder / "log4j2.properties", self._folder / "java"
        logging.write_text(LOGGING)
        java.mkdir()
        conf = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
        }
        order = [str(spark_home() / "bin/spark-submit"), "--class", SERVER, "--master", "local[2]"]
        order += ["--driver-memory", "600m"]
        for key, value in conf.items():
            order += ["--conf", f"{key}={value}"]
        variables = environment(
            SPARK_HOME=str(spark_home()),
            SPARK_LOCAL_IP="127.0.0.1",
            PYSPARK_PYTHON=sys.executable,
            PYSPARK_DRIVER_PYTHON=sys.executable,
            JAVA_HOME=str(launching_home(find_java(os.environ), java)),
        )
        self.launch([*order, "spark-internal"], env=variables, cwd=self._folder)
        try:
            self.url = "sc://" + self.await_words(r"Spark Connect server started at: (\S+:\d+)", START_SECONDS)
        except BaseException:
            self.stop(STOP_SECONDS)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop(STOP_SECONDS)
