"""A flow in processes that are killed again and again, two of them at once now and then, while its input grows; and a
flow whose server is."""

import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from oncelog.chaos.life import Life
from tests.peers.oncelog_process import OncelogProcess
from tests.repo.tree import ROOT
from tests.runner.flows import Billing

SEEDS = 2
KILLS = 10
EARLY_CHANCE = 0.3  # of a kill that does not wait for work
EARLY_S = 1.5
TWIN_CHANCE = 0.3
RECORDS_A_LIFE = 2_000
PARTITIONS = 4
LAST_RUN_S = 120


@pytest.mark.thorough
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_outputs_are_there_once_and_state_is_the_fold(servers: str, topic: str, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    billing = Billing(topic, servers, partitions=PARTITIONS)
    billing.make_topics()
    command = [sys.executable, "-m", "tests.runner.worker", servers, topic, str(PARTITIONS)]
    pause = threading.Event()
    lives: list[Life] = []
    sent = 0

    def begin() -> None:
        life = Life("flow", tmp_path / f"flow-{len(lives)}.log")
        life.launch(command, cwd=ROOT)
        lives.append(life)

    try:
        while len(lives) < KILLS:
            begin()
            if chance.random() < TWIN_CHANCE:
                pause.wait(chance.uniform(0, 0.5))
                begin()
            billing.send(range(sent, sent + RECORDS_A_LIFE))
            sent += RECORDS_A_LIFE
            if chance.random() < EARLY_CHANCE:
                pause.wait(chance.uniform(0.2, EARLY_S))
            else:
                billing.wait_for(chance.randrange(billing.count(), sent) + 1)
            for life in lives:
                if life.is_running:
                    life.kill()
    finally:
        for life in lives:
            life.kill()
    assert billing.count() > 0, f"seed {seed}: the kills came before all work"
    last = subprocess.run([*command, "end"], cwd=ROOT, capture_output=True, text=True, timeout=LAST_RUN_S, check=False)
    assert last.returncode == 0, f"seed {seed}: {last.stderr}"
    billing.check(sent)
    assert billing.state() == billing.totals(sent), f"seed {seed}"


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_flow_outlives_its_server(topic: str, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    pause = threading.Event()
    sent = 0
    with OncelogProcess(tmp_path / "server") as server:
        billing = Billing(topic, server.bootstrap_servers, partitions=PARTITIONS)
        billing.make_topics()
        run = billing.flow().start(billing.properties)
        for _ in range(KILLS):
            billing.send(range(sent, sent + RECORDS_A_LIFE))
            sent += RECORDS_A_LIFE
            pause.wait(chance.uniform(0, 1))
            server.kill()
            pause.wait(chance.uniform(0, 1))
            server.start()
        billing.wait_for(sent)
        run.stop()
        assert run.exception() is None
        billing.check(sent)
        assert billing.state() == billing.totals(sent), f"seed {seed}"
