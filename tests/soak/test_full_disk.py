"""A disk that is full for real: refused by name, readable, whole, and going on when there is room again."""

from pathlib import Path

from tests.lives.stored import records
from tests.peers.oncelog_process import OncelogProcess
from tests.raw import RawConnection, batch
from tests.soak.small_disk import need_namespaces, seen_by, small_disk_server

FILLER_BYTES = 6 << 20


def fill_up(connection: RawConnection, first: int) -> tuple[list[bytes], str]:
    """Produces until it is refused: what was acknowledged, and the refusal."""
    stored: list[bytes] = []
    for number in range(first, first + 10_000):
        value = f"{number:06d}".encode() + b"x" * 50_000
        answer = connection.produce("t", 0, batch([value]))
        if answer.error_code:
            return stored, answer.error_code.name
        stored.append(value)
    raise AssertionError("a disk of a few megabytes took 500 MB")


def values(port: int) -> list[bytes]:
    with RawConnection(port) as raw:
        return [each.value or b"" for each in records(raw, "t")]


def test_a_full_disk_refuses_writes_keeps_reads_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    need_namespaces()
    server = small_disk_server(tmp_path, "16m", log_segment_bytes=str(1 << 20))
    with server:
        filler = seen_by(server) / "filler"
        filler.write_bytes(bytes(FILLER_BYTES))
        with RawConnection(server.port) as connection:
            connection.create_topic("t")
            before, refusal = fill_up(connection, 0)
            assert refusal == "kafka_storage_error"
            assert values(server.port) == before
            for _ in range(20):  # it stays refused, and the log does not grow a line for each
                assert connection.produce("t", 0, batch([b"y" * 50_000])).error_code.name == "kafka_storage_error"
            assert values(server.port) == before
            filler.unlink()
            after, refusal = fill_up(connection, len(before))
            assert refusal == "kafka_storage_error"
        assert len(after) * 50_000 > FILLER_BYTES / 2
        assert values(server.port) == before + after
        assert server.log_text().count("No space left") <= 4
        assert "Traceback" not in server.log_text()


def test_a_second_server_on_the_folder_does_not_start_and_names_the_first(tmp_path: Path) -> None:
    first, second = OncelogProcess(tmp_path / "one"), OncelogProcess(tmp_path / "two")
    second.data = first.data
    with first:
        second.begin()
        assert second.process.wait(60) != 0
        assert str(first.pid) in second.log_text()
        with RawConnection(first.port) as connection:
            connection.create_topic("t")
            assert connection.produce("t", 0, batch([b"x"])).base_offset == 0
