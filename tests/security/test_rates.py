"""Rates and waits are Kafka's to the millisecond, and nobody can make the table of them large."""

import pytest

from oncelog.security.rates import MOST_MS, Rates, Windows

# By the classes of Kafka 4.3 (Rate, QuotaUtils): number and length of the windows, the limit, and then when, how much,
# and how long to wait. tests/peers/test_quotas.py makes and compares more of them.
GOLDEN = """
11 1 100.0 | 1164,287,0 2044,296,0 2193,236,0 3393,178,0 4804,47,0 4804,233,2130 5611,21,2533 5611,266,5193
    6662,68,5822 7901,216,7743 8212,101,9442 8891,257,11333 9883,218,13521 11029,68,14055 11409,189,16565
    12742,201,17242 12742,127,18512 13894,260,13999 15088,112,13556 16040,152,14124 16766,231,11896 17291,238,13751
    17563,197,15449 27668,169,0 28122,280,0 28342,120,774 28822,151,0 28822,196,0 30316,185,362 31313,142,1785
    32414,233,4014 32820,262,7228 33357,184,8531 33357,54,9071
11 1 1000.0 | 1000,2593,0 1719,2249,0 2566,437,0 3601,1009,0 4159,193,0 5587,772,0 6939,1324,0 7121,694,0
    8338,1549,482 9269,647,1198 10011,1163,2619 25369,552,0 47591,1951,0 47950,667,0 48083,389,0 48560,2907,0
    50003,22,0 51227,53,0 51294,2184,0 51294,1593,0 51454,2592,1495 52729,1145,3365 52729,291,3656 52909,98,3574
    52909,1700,5274 54275,750,5658 54325,454,6062 64849,223,0 64849,270,0 65139,522,0 65139,1892,0 65627,1846,0
    66076,2828,0 67109,750,0
2 3 10.0 | 2912,21,0 5433,6,0 6797,20,815 9592,30,1020 10130,87,9182 14617,17,7580 16236,34,481 19845,76,7472
    19845,42,11672 20838,23,12979 22945,13,12300 22945,18,14100 24668,79,20277 28003,42,10142 32214,90,8989
    33631,12,8772 37592,66,11422 37592,72,18622 37812,81,26502 61909,37,700 61909,43,5000 62043,60,10866
    62061,35,14348 65444,1,14065 68810,8,0 73104,46,1106 73721,30,3489 76582,63,10422 78265,71,15839 78265,59,21739
    78996,85,29508 82389,17,23693 86817,42,1472 90519,32,3698
1 1 5.0 | 2345,10,1999 2345,14,4799 23354,12,2399 24106,12,4048 24106,2,4448 24239,9,6115 24750,10,7604 25321,12,3829
    25330,5,4820 25330,14,7620 26494,2,399 27821,5,999 28303,6,1718 28303,10,3718 29332,9,1799 29717,14,4215
    30051,8,5481 30051,3,6081 30097,8,7635 31108,13,2599 32582,3,599 33651,4,799 34564,6,1087 35738,11,2199
    35738,4,2999 36723,14,4815 37841,4,799 38780,12,2261 39974,14,2799 39974,12,5199 40653,13,7121 40653,14,9921
    41796,15,2999 67748,10,1999
5 10 33.3 | 11894,100,0 11894,161,0 21720,906,0 27532,695,10278 27532,397,22200 41963,91,30502 50091,729,44265
    50091,208,50512 79474,916,10867 82351,652,37570 89553,228,37215 104217,181,14626 115915,221,19565 121156,244,31651
    130517,951,50849 130517,92,53612 142370,797,26502 142370,900,53529 142370,722,75210 143390,666,94190
    145576,292,110773 145576,371,121914 156919,727,138666 166580,888,155671 175556,777,170667 181946,494,149643
    188747,166,157827 198565,798,73970 208861,682,84154 216888,693,67076 219477,752,87070 223477,930,110998
    223477,957,139737 235869,426,115160
"""


def scenarios() -> list[tuple[Windows, float, list[tuple[int, int, int]]]]:
    """A line that is indented goes on with the one before it."""
    found = []
    for line in GOLDEN.strip().replace("\n    ", " ").splitlines():
        head, _, steps = line.partition(" | ")
        number, seconds, limit = head.split()
        whole = [
            (int(when), int(value), int(wait)) for when, value, wait in (each.split(",") for each in steps.split())
        ]
        found.append((Windows(int(number), int(seconds) * 1000), float(limit), whole))
    return found


@pytest.mark.parametrize(("windows", "limit", "steps"), scenarios())
def test_who_takes_too_much_waits_as_long_as_kafka_says(
    windows: Windows, limit: float, steps: list[tuple[int, int, int]]
) -> None:
    rates: Rates[str] = Rates(windows, 1)
    assert [(now, value, rates.wait_ms("x", limit, value, now)) for now, value, _ in steps] == steps


def test_the_wait_brings_the_rate_down_to_the_limit() -> None:
    windows = Windows(11, 1000)
    rates: Rates[str] = Rates(windows, 1)
    wait_ms = rates.wait_ms("x", 1000, 30_000, 0)
    assert wait_ms == 20_000  # 3,000 a second over ten seconds
    assert rates.wait_ms("x", 1000, 0, wait_ms) == 0


def test_who_wants_to_produce_without_end_gets_the_limit() -> None:
    windows = Windows(11, 1000)
    rates: Rates[str] = Rates(windows, 1)
    now_ms = taken = 0
    while now_ms < 600_000:
        taken += 777
        now_ms += rates.wait_ms("x", 1000, 777, now_ms) + 1
    assert 0.98 < taken / (now_ms / 1000) / 1000 < 1.05


def test_what_is_taken_back_was_never_taken() -> None:
    rates: Rates[str] = Rates(Windows(11, 1000), 1)
    rates.wait_ms("x", 1000, 5_000, 0)
    assert rates.wait_ms("x", 1000, 50_000, 10) > 0
    rates.take_back("x", 50_000, 10)
    assert rates.wait_ms("x", 1000, 1, 20) == 0


def test_after_all_windows_nothing_is_remembered() -> None:
    rates: Rates[str] = Rates(Windows(11, 1000), 1)
    rates.wait_ms("x", 1, 1_000_000, 0)
    assert not rates.is_unused("x", 10_999)
    assert rates.is_unused("x", 11_000)


def test_very_many_clients_take_the_room_of_a_few_and_leave_those_used_last() -> None:
    rates: Rates[int] = Rates(Windows(11, 1000), 100)
    rates.wait_ms(-1, 10, 1000, 0)
    for client in range(10_000):
        rates.wait_ms(client, 10, 1, 0)
        if client % 50 == 0:
            assert not rates.is_unused(-1, 0)
            rates.wait_ms(-1, 10, 0, 0)
    assert len(rates) == 100


def test_a_wait_fits_into_an_answer() -> None:
    rates: Rates[str] = Rates(Windows(11, 1000), 1)
    assert rates.wait_ms("x", 1e-9, 2**40, 0) == MOST_MS
