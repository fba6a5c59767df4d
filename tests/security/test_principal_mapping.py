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


@pytest.mark.parametrize(
    "pattern", ["(a+)+", "(a*)*b", "((a{1,9})b?){2,}", "((.*),)*x", ".*" * 13, "(a|a)*b", "(?:x(a|aa))+b"]
)
def test_a_pattern_that_may_take_for_ever_is_refused(pattern: str) -> None:
    with pytest.raises(BadRules, match="repetition"):
        PrincipalMapping(f"RULE:{pattern}/x/")


@pytest.mark.parametrize("pattern", [r"[(+*]+", r"\(a+\)+", "(?:a?b)+", "([^,]*),(.*)", "(CN|OU)=x", "a+|b+", "[a|b]+"])
def test_what_only_looks_like_it_is_taken(pattern: str) -> None:
    PrincipalMapping(f"RULE:{pattern}/x/")


def test_who_has_no_rule_is_nobody() -> None:
    with pytest.raises(NoRule, match="no rule is about CN=b"):
        PrincipalMapping("RULE:CN=a/a/").user("CN=b")


@pytest.mark.parametrize("name", ["", "x" * 2000])
def test_a_user_has_a_name_of_some_length(name: str) -> None:
    with pytest.raises(NoRule):
        PrincipalMapping("DEFAULT").user(name)


def test_the_worst_name_that_is_tried_takes_little_time() -> None:
    """What clients bring along must not stop the others: the literals of the documented rule, as often as may be."""
    name = "CN=" + ",OU=,O=,L=,ST=,C=" * 4 + "!" * 400
    mapping = PrincipalMapping("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)x$/$1@$2/L")
    began_s = time.process_time()
    with pytest.raises(NoRule):
        mapping.user(name)
    assert time.process_time() - began_s < 0.05


def test_more_commas_are_not_tried() -> None:
    with pytest.raises(NoRule, match="20 commas"):
        PrincipalMapping("RULE:(.*)/x/").user("," * 21)
