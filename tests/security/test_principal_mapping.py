"""`ssl.principal.mapping.rules`, as Kafka reads them; the cases are those of its documentation and its own tests."""

import time

import pytest

from oncelog.security.principal_mapping import BadRules, NoRule, PrincipalMapping

DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)
CASES = [
    (DOCUMENTED, "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
    (DOCUMENTED, "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
    (DOCUMENTED, "OU=JavaSoft,CN=Duke,O=Sun", "duke"),
    (DOCUMENTED, "OU=JavaSoft", "OU=JavaSoft"),
    ("", "CN=a", "CN=a"),
    ("DEFAULT", "CN=a", "CN=a"),
    ("RULE:^CN=(.*?),OU=(.*?)$/$1/U,DEFAULT", "CN=duke,OU=x", "DUKE"),
    ("RULE:CN=(.*)/$1@$4/", "CN=a", "a@$4"),
    ("RULE:CN=(.*)/$12/", "CN=a", "a2"),
    ("RULE:CN=(.*)/$0/", "CN=a", "CN=a"),
    (r"RULE:CN=(.*)/\$1x/", "CN=a", "$1x"),
    (r"RULE:^CN=(.*?)\/(.*)$/$2\/$1/", "CN=a/b", "b/a"),
    (r"RULE:^CN=(.*?),OU=(.*)$/$1,$2/ , DEFAULT", "CN=a,OU=b", "a,b"),
    ("RULE:(?<user>.*)/x-$1/", "a", "x-ax-"),  # the empty end matches as well
]


@pytest.mark.parametrize(("rules", "name", "user"), CASES)
def test_the_first_rule_that_matches_counts(rules: str, name: str, user: str) -> None:
    assert PrincipalMapping(rules).user(name) == user


@pytest.mark.parametrize(
    "rules", ["RULE:", "RULE:abc", "DEFAULT/L", "RULE:a/b", "RULE:[/x/", "nonsense", "RULE:a/b/X", "x" * 5000]
)
def test_what_is_no_rule_is_said_at_the_start(rules: str) -> None:
    with pytest.raises(BadRules):
        PrincipalMapping(rules)


@pytest.mark.parametrize("pattern", ["(?=a)a", r"(a)\1", "a++", "a{2000}", "a" * 1025, r"(.*\pL){99}", "\ud800"])
def test_what_only_java_understands_is_said_at_the_start(pattern: str) -> None:
    """So are patterns that would take much memory."""
    with pytest.raises(BadRules):
        PrincipalMapping(f"RULE:{pattern}/x/")


SLOW_ELSEWHERE = [
    ".*a.*a.*a.*b",
    "(?:a?){30}b",
    "(a?a?a?)+b",
    "(a+)+b",
    "(a|aa)+b",
    "(?:.a?){250}b",
    ".*(?:a.{400})b",
    "(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)x",
]


@pytest.mark.parametrize("pattern", SLOW_ELSEWHERE)
@pytest.mark.parametrize("name", ["a" * 1024, "a,OU=,O=,L=,ST=,C=" * 56])
def test_no_pattern_takes_long_for_a_name_that_a_client_chose(pattern: str, name: str) -> None:
    mapping = PrincipalMapping(f"RULE:{pattern}/x/")
    began_s = time.thread_time()
    with pytest.raises(NoRule):
        mapping.user(name)
    assert time.thread_time() - began_s < 0.05


def test_who_has_no_rule_is_nobody() -> None:
    with pytest.raises(NoRule, match="no rule is about CN=b"):
        PrincipalMapping("RULE:CN=a/a/").user("CN=b")


@pytest.mark.parametrize("name", ["", "x" * 2000])
def test_a_user_has_a_name_of_some_length(name: str) -> None:
    with pytest.raises(NoRule):
        PrincipalMapping("DEFAULT").user(name)


@pytest.mark.parametrize("rules", ["DEFAULT", "RULE:.*/x/"])
def test_a_name_that_is_no_text_is_nobodys(rules: str) -> None:
    with pytest.raises(NoRule, match="no Unicode"):
        PrincipalMapping(rules).user("CN=\ud800")
