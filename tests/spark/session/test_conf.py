"""What a session is set to: the caller's word, then the user's, then ours."""

from pathlib import Path

import pytest

from oncelog.spark.conf import defaults, has_own_logging, said_by_caller, set_by_user

REDACTED = {"spark.sql.redaction.options.regex": "(?i)url|ssl[.]key[.]pem|keystore[.]key|private key"}


def test_settings_are_named_as_spark_names_them_in_a_mapping_or_as_keywords() -> None:
    said = said_by_caller(
        {"spark.a": 1, "spark.b": "x"},
        {"spark__sql__shuffle__partitions": 2, "spark.c.d__e": True, "master": "local[3]", "remote": None},
    )
    assert said == {
        "spark.a": "1",
        "spark.b": "x",
        "spark.sql.shuffle.partitions": "2",
        "spark.c.d__e": "true",
        "spark.master": "local[3]",
    }


def test_a_keyword_wins_over_the_mapping_and_none_says_nothing() -> None:
    assert said_by_caller({"spark.a": 1, "spark.b": None}, {"spark__a": False}) == {"spark.a": "false"}


@pytest.mark.parametrize("conf, keywords", [({"sql.shuffle.partitions": 2}, {}), ({}, {"shuffle_partitions": 2})])
def test_a_name_that_spark_would_silently_ignore_is_refused(
    conf: dict[str, object], keywords: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match=r"'(sql\.shuffle\.|shuffle_)partitions' is no setting of Spark"):
        said_by_caller(conf, keywords)


def test_a_value_that_is_no_setting_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"spark__jars = \['a'\]: a setting of Spark is"):
        said_by_caller({}, {"spark__jars": ["a"]})


def test_what_stands_in_spark_defaults_is_known(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    text = "# a comment\n\nspark.a  one two\nspark.b=2\nspark.c:three\n  spark.d\t4  \nspark.empty\n! another\n"
    (tmp_path / "conf" / "spark-defaults.conf").write_text(text)
    expected = {"spark.a": "one two", "spark.b": "2", "spark.c": "three", "spark.d": "4", "spark.empty": ""}
    assert set_by_user({}, tmp_path) == expected


def test_spark_conf_dir_names_another_folder(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.a 1\n")
    assert set_by_user({"SPARK_CONF_DIR": str(tmp_path)}, Path("nowhere")) == {"spark.a": "1"}


def test_arguments_for_spark_submit_are_known_and_win_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.master yarn\nspark.a file\n")
    arguments = (
        "--master spark://h:7077 --conf spark.a=said -c 'spark.b=1 2' --driver-memory=2g --verbose pyspark-shell"
    )
    assert set_by_user({"PYSPARK_SUBMIT_ARGS": arguments}, tmp_path) == {
        "spark.master": "spark://h:7077",
        "spark.a": "said",
        "spark.b": "1 2",
        "spark.driver.memory": "2g",
    }


def test_a_properties_file_takes_the_place_of_spark_defaults(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.a defaults\n")
    mine = tmp_path / "mine.conf"
    mine.write_text("spark.b mine\n")
    assert set_by_user({"PYSPARK_SUBMIT_ARGS": f"--properties-file {mine}"}, tmp_path) == {"spark.b": "mine"}


def test_without_a_word_spark_runs_here_on_all_cores_and_listens_on_loopback_alone() -> None:
    assert defaults({}, {}) == REDACTED | {
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.buffer.size": "1048576",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def test_whatever_is_set_already_is_left_alone() -> None:
    known = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "true",
        "spark.sql.shuffle.partitions": "200",
        "spark.buffer.size": "65536",
        "spark.sql.redaction.options.regex": "(?i)url",
        "spark.python.unix.domain.socket.enabled": "false",
    }
    assert defaults(known, {"SPARK_LOCAL_IP": "192.0.2.7"}) == {}


def test_a_cluster_gets_nothing_that_only_a_laptop_wants() -> None:
    assert defaults({"spark.master": "spark://h:7077"}, {}) == REDACTED


def test_a_connect_server_beside_this_process_is_local_and_has_no_master_of_its_own() -> None:
    assert "spark.master" not in defaults({"spark.remote": "local[2]"}, {})
    assert defaults({"spark.remote": "local[2]"}, {})["spark.driver.host"] == "127.0.0.1"
    assert set_by_user({"SPARK_REMOTE": "local", "MASTER": "local[4]"}, Path("nowhere")) == {
        "spark.remote": "local",
        "spark.master": "local[4]",
    }


@pytest.mark.parametrize(
    "known, environ",
    [
        ({"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=mine.xml"}, {}),
        ({"spark.log.structuredLogging.enabled": "true"}, {}),
        ({}, {"LOG4J_CONFIGURATION_FILE": "mine.xml"}),
    ],
)
def test_whoever_has_said_how_spark_logs_is_not_overruled(known: dict[str, str], environ: dict[str, str]) -> None:
    assert has_own_logging(known, environ, Path("nowhere"))


def test_a_log4j2_file_in_the_conf_folder_is_not_overruled(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    assert not has_own_logging({}, {}, tmp_path)
    (tmp_path / "conf" / "log4j2.properties").touch()
    assert has_own_logging({}, {}, tmp_path)
