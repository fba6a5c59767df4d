"""A server in this process, and the command that serves."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import oncelog
from oncelog.embedded import Server
from oncelog.settings import SettingsError
from tests.raw import RawConnection, batch

SOURCES = Path(__file__).parents[2] / "src"


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONUNBUFFERED": "1"}


def run_python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_the_server_is_at_hand_and_imported_when_used() -> None:
    assert oncelog.Server is Server
    program = "import sys, oncelog; print([name for name in ('asyncio', 'kio', 'uvloop') if name in sys.modules])"
    assert run_python(program).strip() == "[]"


def test_serving_leaves_the_column_libraries_out() -> None:
    program = (
        "import sys\n"
        "from oncelog import Server\n"
        "from confluent_kafka import Producer\n"
        "with Server() as server:\n"
        "    producer = Producer({'bootstrap.servers': server.bootstrap_servers, 'enable.idempotence': True})\n"
        "    producer.produce('t', b'x')\n"
        "    assert producer.flush(20) == 0\n"
        "print([name for name in ('numpy', 'numba', 'pyarrow') if name in sys.modules])\n"
    )
    assert run_python(program).splitlines()[-1] == "[]"


def test_an_idle_server_is_small() -> None:
    """60 MB; memory is no matter of the machine's speed, so this may be a test."""
    program = (
        "from oncelog import Server\n"
        "with Server() as server:\n"
        "    status = open('/proc/self/status').read()\n"
        "    print(status.split('VmRSS:')[1].split()[0])\n"
    )
    if not Path("/proc/self/status").exists():
        program = "print(0)"
    assert int(run_python(program).split()[-1]) < 60_000


def test_the_temporary_folder_goes_with_the_server() -> None:
    with Server() as server:
        assert Path(server.data_dir).is_dir()
    assert not Path(server.data_dir).exists()


@pytest.mark.parametrize("impossible", [{"no_such_setting": 1}, {"listeners": "PLAINTEXT://203.0.113.1:9"}])
def test_a_server_that_cannot_start_leaves_no_temporary_folder(
    impossible: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(SettingsError):
        Server(**impossible)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_may_be_given_by_its_other_name(tmp_path: Path) -> None:
    with Server(settings={"log.dirs": str(tmp_path)}) as server:
        assert server.data_dir == str(tmp_path)
    assert (tmp_path / "server.meta").exists()


def test_a_folder_of_ones_own_stays_and_is_taken_up_again(tmp_path: Path) -> None:
    with Server(data_dir=str(tmp_path / "data")) as server, RawConnection(server.bootstrap_servers) as raw:
        assert raw.create_topic("kept") == 0
        assert raw.produce("kept", 0, batch([b"x"])).base_offset == 0
    with Server(data_dir=str(tmp_path / "data")) as server, RawConnection(server.bootstrap_servers) as raw:
        assert raw.produce("kept", 0, batch([b"y"])).base_offset == 1


def test_two_names_for_the_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"data_dir and log\.dir both name the data folder"):
        Server(data_dir=str(tmp_path), log_dir=str(tmp_path / "other"))


def test_settings_may_be_numbers_and_booleans() -> None:
    with Server(settings={"num.partitions": 3, "auto.create.topics.enable": False}) as server:
        assert server.settings.num_partitions == 3
        assert server.settings.auto_create_topics_enable is False


def test_settings_are_given_by_either_name() -> None:
    with Server(settings={"num.partitions": "3"}, auto_create_topics_enable=False) as server:
        assert server.settings.num_partitions == 3
        assert server.settings.auto_create_topics_enable is False


def test_an_unknown_setting_stops_the_start() -> None:
    with pytest.raises(SettingsError, match=r"num\.partitions"):
        Server(num_partitons=3)


def test_two_servers_on_one_folder_the_second_names_the_first(tmp_path: Path) -> None:
    with Server(data_dir=str(tmp_path)) as first:
        with pytest.raises(Exception, match=str(os.getpid())):
            Server(data_dir=str(tmp_path))
        with RawConnection(first.bootstrap_servers) as raw:
            assert raw.create_topic("fine") == 0


def test_a_port_that_is_taken_is_said_and_the_folder_is_free_again(tmp_path: Path) -> None:
    with Server() as first:
        listeners = f"PLAINTEXT://{first.bootstrap_servers}"
        with pytest.raises(SettingsError, match="cannot listen on"):
            Server(data_dir=str(tmp_path), listeners=listeners)
    with Server(data_dir=str(tmp_path)):
        pass


def test_closing_twice_is_fine() -> None:
    server = Server()
    server.close()
    server.close()


# The command


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "oncelog", "serve", *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_where_it_listens_and_stops_when_told(tmp_path: Path, number: signal.Signals) -> None:
    process = start("--listen", "127.0.0.1:0", "--data", str(tmp_path), "--set", "num.partitions=2")
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"127\.0\.0\.1:\d+", line)
    assert found and str(tmp_path) in line, line
    with RawConnection(found[0]) as raw:
        assert raw.create_topic("t", -1) == 0
        assert len(raw.call("metadata", 9, topics=[{"name": "t"}]).topics[0].partitions) == 2
    process.send_signal(number)
    assert process.wait(60) == 0


def test_serve_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    process = start("--listen", "127.0.0.1:0", "--data", str(tmp_path), "--set", "num.partitons=2")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "num.partitions" in errors and "Traceback" not in errors


def test_serve_reads_the_environment_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:0\nlog.dir=%s\n" % (tmp_path / "data"))
    process = start("--config", str(file))
    assert process.stdout is not None
    assert str(tmp_path / "data") in process.stdout.readline()
    process.terminate()
    assert process.wait(60) == 0


def test_metrics_are_served_where_asked(tmp_path: Path) -> None:
    from urllib.request import urlopen

    with Server(oncelog_metrics_listener="127.0.0.1:0") as server:
        with RawConnection(server.bootstrap_servers) as raw:
            raw.create_topic("t")
            raw.produce("t", 0, batch([b"x"]))
        text = urlopen(f"http://127.0.0.1:{server.service.metrics_port}/metrics", timeout=20).read().decode()
    assert re.search(r'requests_total\{api="produce"\} 1\b', text), text
