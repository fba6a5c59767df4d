"""The Dockerfile where no Docker is: linted, and its steps run one by one in a folder."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from oncelog.chaos.life import Life
from tests.repo.compose import services
from tests.repo.dockerfile import Image, Stage, let_through, stages
from tests.repo.test_sizes import MOST_CORE_BYTES
from tests.repo.tree import ROOT, project_files, read
from tests.smoke.installing import size_bytes
from tests.smoke.serving import environment_of, serving

HADOLINT = Path(sys.executable).with_name("hadolint")


def lint(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HADOLINT, "--no-color", "-"], input=text, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def both() -> tuple[Stage, Stage]:
    build, final = stages(read("Dockerfile"))
    return build, final


@pytest.fixture(scope="module")
def image(both: tuple[Stage, Stage], tmp_path_factory: pytest.TempPathFactory) -> Image:
    return built(both[0], tmp_path_factory.mktemp("image"))


def built(stage: Stage, folder: Path, **arguments: str) -> Image:
    """After the stage that builds."""
    context = folder / "context"
    for name in project_files():
        if let_through(read(".dockerignore"), name):
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, context / name)
    image = Image(folder, context)
    image.build(stage, **arguments)
    return image


def test_the_linter_finds_nothing() -> None:
    done = lint(read("Dockerfile"))
    assert done.returncode == 0, done.stdout


def test_the_linter_would_find_a_user_by_name_and_a_base_without_a_version() -> None:
    text = read("Dockerfile").replace("USER 10001:10001", "USER oncelog").replace("python:3.13-slim-bookworm", "python")
    found = lint(text).stdout
    assert "DL3066" in found
    assert "DL3006" in found


def test_both_stages_stand_on_the_same_supported_python(both: tuple[Stage, Stage]) -> None:
    build, final = both
    assert build.base == final.base
    version = re.fullmatch(r"python:(3\.\d+)-slim-\w+", final.base)
    assert version is not None
    classifiers = tomllib.loads(read("pyproject.toml"))["project"]["classifiers"]
    assert f"Programming Language :: Python :: {version[1]}" in classifiers


def test_it_runs_as_a_user_without_rights_who_has_a_volume_and_a_port(both: tuple[Stage, Stage]) -> None:
    final = both[1]
    assert final.the_only("USER").rest == "10001:10001"
    assert "--uid 10001" in final.the_only("RUN").rest
    assert final.the_only("EXPOSE").rest == "9092"
    assert final.the_only("VOLUME").rest == final.the_only("WORKDIR").rest == "/var/lib/oncelog"


def test_only_what_is_copied_goes_to_the_builder() -> None:
    ignore = read(".dockerignore")
    through = [name for name in project_files() if let_through(ignore, name)]
    assert {name.partition("/")[0] for name in through} == {
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "requirements",
        "src",
    }
    assert not let_through(ignore, "src/oncelog/__pycache__/clock.cpython-313.pyc")


@pytest.mark.thorough
def test_its_steps_install_the_wheel_and_no_more_than_the_core(image: Image) -> None:
    bin_folder = image.folder / "opt/oncelog/bin"
    assert size_bytes(bin_folder) <= MOST_CORE_BYTES
    assert not (bin_folder / "pip").exists()


@pytest.mark.thorough
def test_its_command_serves_and_its_health_check_tells(image: Image, both: tuple[Stage, Stage], tmp_path: Path) -> None:
    bin_folder = image.folder / "opt/oncelog/bin"
    final = both[1]
    entry, command = final.the_only("ENTRYPOINT").words, final.the_only("CMD").words
    check = final.the_only("HEALTHCHECK").words
    program = bin_folder / entry[0]
    told = {"0.0.0.0:9092": "127.0.0.1:0", "/var/lib/oncelog": str(tmp_path / "data")}

    def is_healthy(address: str) -> bool:
        words = [address if word == "127.0.0.1:9092" else word for word in check]
        assert words != check
        done = subprocess.run([bin_folder / words[0], *words[1:]], env=environment_of(bin_folder), capture_output=True)
        return done.returncode == 0

    with serving([program, *(told.get(word, word) for word in command)], tmp_path) as address:
        assert is_healthy(address)
    assert not is_healthy(address)


@pytest.mark.thorough
def test_the_image_of_the_compose_file_has_what_a_broker_needs(both: tuple[Stage, Stage], tmp_path: Path) -> None:
    """Built with the arguments of that file, it gets as far as asking for ZooKeeper."""
    (arguments,) = {tuple(each["build"]["args"].items()) for each in services("broker").values()}
    bin_folder = built(both[0], tmp_path / "image", **dict(arguments)).folder / "opt/oncelog/bin"
    (entry,) = both[1].the_only("ENTRYPOINT").words
    settings = {"ONCELOG_CLUSTER": "zk://127.0.0.1:1/oncelog", "ONCELOG_LISTENERS": "PLAINTEXT://127.0.0.1:0"}
    broker = Life("the broker", tmp_path / "broker.log")
    order = [str(bin_folder / entry), "serve", "--data", str(tmp_path / "data")]
    broker.launch(order, stdin=subprocess.DEVNULL, env=environment_of(bin_folder) | settings)
    try:
        broker.await_words(r"(no ZooKeeper answers at 127\.0\.0\.1:1)")
    finally:
        broker.kill()
