"""What PySpark and py4j print beside raising it."""

import logging
import socket
import struct
from threading import Thread

import pytest
from py4j.clientserver import JavaClient, JavaParameters, PythonParameters
from py4j.java_gateway import GatewayProperty, PythonProxyPool

from oncelog.spark.quiet import quiet_exceptions


@pytest.mark.parametrize("is_quiet", [False, True])
def test_a_jvm_that_ends_in_the_midst_of_a_call_is_not_logged_too(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_quiet: bool
) -> None:
    monkeypatch.setattr(logging.getLogger(), "filters", [])
    if is_quiet:
        quiet_exceptions()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        Thread(target=hung_up, args=[listening], daemon=True).start()
        port = listening.getsockname()[1]
        client = JavaClient(JavaParameters(port=port), PythonParameters(), GatewayProperty(True, PythonProxyPool()))
        assert client.send_command("c\no1\nversion\ne\n").startswith("x")  # py4j's word for an error
    logging.getLogger().error("somebody else's")
    of_py4j = [] if is_quiet else ["Exception while sending command."]
    assert [each.getMessage() for each in caplog.records if each.name == "root"] == [*of_py4j, "somebody else's"]


def hung_up(listening: socket.socket) -> None:
    """Reset the connection once a command has come."""
    connection, _ = listening.accept()
    connection.recv(1024)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
