"""Who has not been let in, and who may write one topic alone, changes nothing and reads nothing of others."""

from pathlib import Path

import pytest

from tests.depth import deeper, scaled
from tests.fuzz.campaign import Broken
from tests.fuzz.intruders import ATTACKS, run
from tests.fuzz.secured import OWNER, WRITER, SecuredServer

ACTS = {"stranger": 40, "writer": 200}
UNBOUNDED = pytest.param(False, marks=pytest.mark.thorough, id="guesses for ever")


@deeper
@pytest.mark.parametrize("who", list(ATTACKS))
@pytest.mark.parametrize("is_guessing_bounded", [True, UNBOUNDED])
def test_nothing_of_others_is_changed_or_read(tmp_path: Path, who: str, is_guessing_bounded: bool) -> None:
    with SecuredServer(tmp_path / "server", is_guessing_bounded=is_guessing_bounded) as server:
        harm = run(server, ATTACKS[who], 1, acts=scaled(ACTS[who]))
    assert len(harm.said) > 1, harm


@pytest.mark.thorough
def test_harm_is_noticed(tmp_path: Path) -> None:
    let_do_everything = {"super.users": f"User:{OWNER};User:{WRITER}"}
    with (
        SecuredServer(tmp_path / "server", more=let_do_everything) as server,
        pytest.raises(Broken, match=r"was told what it may not know|of others have changed"),
    ):
        run(server, ATTACKS["writer"], 1, acts=1000)
