"""A token that was good is not looked at again while it counts, and its key is as it was."""

from collections.abc import Callable, Iterator
from time import time

import pytest

from oncelog.clock import ManualClock
from oncelog.security.scram import Refused
from oncelog.server import tokens as tokens_module
from oncelog.server.aside import Aside, Result
from oncelog.server.tokens import SignedTokens
from tests.server.conftest import Reads
from tests.server.jwks import Issuer
from tests.server.test_tokens import REFRESH_MS, settings


class Counting(Aside):
    """How often something was done in its threads."""

    def __init__(self) -> None:
        super().__init__("test")
        self.count = 0

    async def run(self, work: Callable[..., Result], *arguments: object) -> Result:
        self.count += 1
        return await super().run(work, *arguments)


@pytest.fixture
def counting() -> Iterator[Counting]:
    aside = Counting()
    yield aside
    aside.close()


async def is_looked_at(token: str, signed: SignedTokens, threads: Counting) -> bool:
    before = threads.count
    assert (await signed.check(token)).name == "ann"
    return threads.count > before


def wall_clock() -> ManualClock:
    """It agrees with what issuers write."""
    return ManualClock(wall_ms=int(time() * 1000))


async def test_a_good_token_is_looked_at_once_until_it_ends(issuer: Issuer, counting: Counting) -> None:
    clock, skew_s = wall_clock(), 7
    signed = SignedTokens(settings(issuer, sasl_oauthbearer_clock_skew_seconds=skew_s), clock, counting)
    token = issuer.token("one", exp=clock.now().wall_ms // 1000 + 600)
    assert [await is_looked_at(token, signed, counting) for _ in range(3)] == [True, False, False]
    clock.advance((590 + skew_s) * 1000)
    assert not await is_looked_at(token, signed, counting)
    clock.advance(20_000)
    assert await is_looked_at(token, signed, counting), "which says whether it is over"


async def test_a_good_token_is_looked_at_again_by_other_keys(issuer: Issuer, counting: Counting) -> None:
    clock = wall_clock()
    signed = SignedTokens(settings(issuer), clock, counting)
    token = issuer.token("one", exp=clock.now().wall_ms // 1000 + 3 * REFRESH_MS // 1000)
    assert await is_looked_at(token, signed, counting)
    issuer.new_key("one")
    issuer.publish()
    clock.advance(REFRESH_MS)
    assert not await is_looked_at(token, signed, counting), "while others are read"
    await signed.until_read()
    with pytest.raises(Refused):
        await signed.check(token)


async def test_keys_that_are_read_again_and_are_the_same_make_nobody_be_looked_at(
    issuer: Issuer, counting: Counting, reads: Reads
) -> None:
    clock = wall_clock()
    for key_id, kind in (("rsa", "RSA"), ("okp", "OKP"), ("changed", "EC"), ("gone", "EC")):
        issuer.new_key(key_id, kind)
    issuer.publish()
    signed = SignedTokens(settings(issuer), clock, counting)
    algorithms = {"one": "ES256", "rsa": "RS256", "okp": "EdDSA", "changed": "ES256", "gone": "ES256"}
    exp = clock.now().wall_ms // 1000 + 3 * REFRESH_MS // 1000
    tokens = {key_id: issuer.token(key_id, algorithm, exp=exp) for key_id, algorithm in algorithms.items()}
    for token in tokens.values():
        assert await is_looked_at(token, signed, counting)
    issuer.new_key("changed")
    issuer.publish("one", "rsa", "okp", "changed")
    clock.advance(REFRESH_MS)
    assert not await is_looked_at(tokens["one"], signed, counting), "and has the keys be read"
    await signed.until_read()
    assert reads.count == 2
    for key_id in ("one", "rsa", "okp"):
        assert not await is_looked_at(tokens[key_id], signed, counting), key_id
    for key_id in ("changed", "gone"):
        with pytest.raises(Refused):
            await signed.check(tokens[key_id])


async def test_a_token_that_names_no_key_is_looked_at_again_where_there_are_several_now(
    issuer: Issuer, counting: Counting
) -> None:
    clock = wall_clock()
    signed = SignedTokens(settings(issuer), clock, counting)
    token = issuer.token("one", headers={}, exp=clock.now().wall_ms // 1000 + 3 * REFRESH_MS // 1000)
    assert await is_looked_at(token, signed, counting)
    issuer.new_key("two")
    issuer.publish()
    clock.advance(REFRESH_MS)
    await signed.check(token)
    await signed.until_read()
    with pytest.raises(Refused):
        await signed.check(token)


async def test_a_bad_token_is_never_remembered(issuer: Issuer, threads: Aside) -> None:
    signed = SignedTokens(settings(issuer), wall_clock(), threads)
    token = issuer.token("one", exp=1)
    for _ in range(2):
        with pytest.raises(Refused, match="Expired"):
            await signed.check(token)


async def test_so_many_good_tokens_are_remembered(
    issuer: Issuer, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens_module, "MOST_REMEMBERED", 2)
    signed = SignedTokens(settings(issuer), wall_clock(), counting)
    first, second, third = (issuer.token("one", jti=name) for name in "abc")
    shown = (first, second, first, third, first, second)
    looked_at = [await is_looked_at(token, signed, counting) for token in shown]
    assert looked_at == [True, True, False, True, False, True], "the second one was shown longest ago"
