"""What is counted of a broker, and what a window of values comes to."""

from oncelog.client.statistics.traffic import MOST_SAMPLES, Traffic, Window


def test_a_window_tells_what_came_since_it_was_last_told() -> None:
    window = Window()
    for value in [5] * 90 + [1000] * 9 + [2]:
        window.add(value)
    told = window.take()
    assert {name: told[name] for name in ("min", "max", "sum", "cnt", "avg")} == {
        "min": 2, "max": 1000, "sum": 9452, "cnt": 100, "avg": 95
    }  # fmt: skip
    assert (told["p50"], told["p75"], told["p90"], told["p95"], told["p99"]) == (5, 5, 5, 1000, 1000)
    assert told["stddev"] == 285
    assert set(window.take().values()) == {0}


def test_a_window_of_very_many_values_keeps_the_newest() -> None:
    window = Window()
    for value in range(3 * MOST_SAMPLES):
        window.add(value)
    told = window.take()
    assert (told["min"], told["max"], told["cnt"]) == (0, 3 * MOST_SAMPLES - 1, 3 * MOST_SAMPLES)
    assert told["outofrange"] == 2 * MOST_SAMPLES
    assert told["p50"] == 2 * MOST_SAMPLES + MOST_SAMPLES // 2


def test_traffic_is_that_of_all_connections_to_an_address() -> None:
    traffic = Traffic(10.0)
    assert traffic.fields(11.0)["state"] == "INIT"
    traffic.connected(11.0)
    traffic.connected(12.0)
    frame = (6).to_bytes(4, "big") + (18).to_bytes(2, "big") + bytes(4)
    traffic.sent([frame, b"more"], 13.0)
    traffic.received(100, 13.5, 13.0)
    told = traffic.fields(14.0)
    assert (told["state"], told["stateage"]) == ("UP", 3_000_000), "since the first of them"
    assert (told["tx"], told["txbytes"], told["rx"], told["rxbytes"]) == (1, 14, 1, 104)
    assert told["req"] == {"ApiVersion": 1}
    assert (told["rtt"]["max"], told["txidle"], told["rxidle"]) == (500_000, 1_000_000, 500_000)
    traffic.lost(15.0)
    assert traffic.fields(16.0)["state"] == "UP"
    traffic.lost(16.0)
    told = traffic.fields(17.0)
    assert (told["state"], told["stateage"], told["disconnects"]) == ("DOWN", 1_000_000, 2)
