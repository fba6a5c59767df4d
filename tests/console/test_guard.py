"""Who may ask the page: itself, by an address or its own name; no other page, by whatever name."""

import pytest

from oncelog.console.errors import Refused
from oncelog.console.guard import POLICY, check

OWN = frozenset(["log.lan"])


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:8080", "192.168.0.7", "log.lan:80"]
)
def test_the_page_is_asked_by_an_address_or_by_its_own_name(host: str) -> None:
    check({"host": host}, OWN)


@pytest.mark.parametrize(
    "host", ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8080", "log.lan.", "[::1"]
)
def test_another_name_is_refused_wherever_it_points(host: str) -> None:
    with pytest.raises(Refused):
        check({"host": host.replace("[::1", "[evil")}, OWN)


def test_without_a_name_of_its_own_no_name_is_let_in() -> None:
    with pytest.raises(Refused):
        check({"host": ""}, ())


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:8081", ""])
def test_another_origin_is_refused(origin: str) -> None:
    with pytest.raises(Refused):
        check({"host": "127.0.0.1:8080", "origin": origin}, ())


def test_its_own_origin_is_let_in() -> None:
    check({"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080"}, ())
    check({"host": "127.0.0.1:8080", "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, ())


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_pages_may_lead_here_and_not_read_from_here(site: str) -> None:
    check({"host": "localhost", "sec-fetch-site": site, "sec-fetch-mode": "navigate"}, ())
    with pytest.raises(Refused):
        check({"host": "localhost", "sec-fetch-site": site, "sec-fetch-mode": "no-cors"}, ())


def test_nothing_runs_that_is_not_a_file_of_the_page() -> None:
    assert "default-src 'none'" in POLICY
    assert "script-src 'self';" in POLICY
    assert "unsafe" not in POLICY and "data:" not in POLICY and "*" not in POLICY
    assert "require-trusted-types-for 'script'" in POLICY


@pytest.mark.parametrize("said", [{"origin": "http://localhost"}, {"sec-fetch-site": "same-origin"}])
def test_a_change_comes_from_the_page_itself_and_says_so(said: dict[str, str]) -> None:
    check({"host": "localhost", **said}, (), is_change=True)
    with pytest.raises(Refused):
        check({"host": "localhost"}, (), is_change=True)
    with pytest.raises(Refused):
        check({"host": "localhost", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, (), is_change=True)
