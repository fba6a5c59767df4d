"""The decisions that follow from the rules, as Kafka's StandardAuthorizer makes them.

A rule that denies goes before all that allow. Where no rule speaks of a resource at all, a setting says what counts;
where some do, and none of this principal, nothing is allowed. Reading, writing, deleting and altering allow describing,
too, and altering configs describing them; denying these denies nothing else. While there is a rule that nobody here can
read, nothing is allowed, unless it could only allow: so there is never more than with all rules whole.

Rules are found by whom they are about. A decision looks at four of them (the principal and everybody, at the host and
everywhere), each time at a name, at "*" and at as many beginnings of the name as prefixes have lengths, so it takes
microseconds however many rules there are.
"""

from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from oncelog.security.bindings import EVERYBODY, EVERYTHING, Binding, Invalid, Pattern, Permission, binding_of, may_deny
from oncelog.security.operations import Operation, Resource

ALL_BIT: Final = 1 << Operation.ALL
EVERY_BIT: Final = sum(1 << each for each in Operation if each is not Operation.ANY)
DESCRIBE_BIT: Final = 1 << Operation.DESCRIBE
DESCRIBE_CONFIGS_BIT: Final = 1 << Operation.DESCRIBE_CONFIGS
_IMPLYING_DESCRIBE: Final = sum(
    1 << each for each in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
)
_IMPLYING_DESCRIBE_CONFIGS: Final = 1 << Operation.ALTER_CONFIGS

Who = tuple[str, str]  # principal, host
NOBODY_SPOKEN_OF: Final = "hardcode"  # by Kafka: a name that stands for all that no rule names


class _Rules:
    """The rules of one principal at one host, about one kind of resource: bits of what is allowed and of what is
    denied."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, tuple[int, int]] = {}
        self.prefixed: dict[str, tuple[int, int]] = {}
        self.lengths: Counter[int] = Counter()  # of prefixes

    def change(self, binding: Binding, *, add: bool) -> None:
        is_prefix = binding.pattern is Pattern.PREFIXED
        names = self.prefixed if is_prefix else self.literal
        bit, name = 1 << binding.operation, binding.name
        if is_prefix and name not in names:
            self.lengths[len(name)] += 1
        allowed, denied = names.get(name, (0, 0))
        is_denied = binding.permission is Permission.DENY
        if add:
            bits = (allowed, denied | bit) if is_denied else (allowed | bit, denied)
        else:
            bits = (allowed, denied & ~bit) if is_denied else (allowed & ~bit, denied)
        if bits != (0, 0):
            names[name] = bits
            return
        names.pop(name, None)
        if is_prefix:
            self.lengths[len(name)] -= 1
            if not self.lengths[len(name)]:
                del self.lengths[len(name)]

    @property
    def is_empty(self) -> bool:
        return not self.literal and not self.prefixed

    def about(self, name: str) -> Iterator[tuple[int, int]]:
        if name in self.literal:
            yield self.literal[name]
        if EVERYTHING in self.literal and name != EVERYTHING:
            yield self.literal[EVERYTHING]
        for length in self.lengths:
            if name[:length] in self.prefixed and length <= len(name):
                yield self.prefixed[name[:length]]


class Acls:
    def __init__(self, *, allow_if_none: bool = False) -> None:
        self.bindings: dict[str, Binding] = {}  # by their keys
        self.unread: frozenset[str] = frozenset()  # keys that this version cannot read
        self.is_closed = False  # nothing is allowed
        self._allow_if_none = allow_if_none
        self._rules: dict[Resource, dict[Who, _Rules]] = {resource: {} for resource in Resource}
        self._spoken_of: dict[Resource, _Rules] = {resource: _Rules() for resource in Resource}  # by anybody's rules
        self._counts: Counter[tuple[Resource, Pattern, str]] = Counter()

    def see(self, keys: AbstractSet[str]) -> None:
        """These are all rules from now on."""
        unread = []
        known = self.bindings
        new = [key for key in keys if key not in known]
        if len(known) + len(new) > len(keys):
            for key in [key for key in known if key not in keys]:
                self.remove(known[key])
        for key in new:
            try:
                self._add(key, binding_of(key))
            except Invalid:
                unread.append(key)
        self.unread = frozenset(unread)
        # One that allows speaks of something, and where no rule does, everybody may.
        self.is_closed = bool(unread) and (self._allow_if_none or any(map(may_deny, unread)))

    def add(self, binding: Binding) -> None:
        if binding.key not in self.bindings:
            self._add(binding.key, binding)

    def _add(self, key: str, binding: Binding) -> None:
        self.bindings[key] = binding
        self._rules[binding.resource].setdefault(_who(binding), _Rules()).change(binding, add=True)
        self._count(binding, 1)

    def remove(self, binding: Binding) -> None:
        if self.bindings.pop(binding.key, None) is None:
            return
        rules, who = self._rules[binding.resource], _who(binding)
        rules[who].change(binding, add=False)
        if rules[who].is_empty:
            del rules[who]
        self._count(binding, -1)

    def _count(self, binding: Binding, by: int) -> None:
        """Count the rules about a resource, which is only asked where a setting speaks for the rest."""
        if not self._allow_if_none:
            return
        place = (binding.resource, binding.pattern, binding.name)
        self._counts[place] += by
        if not self._counts[place]:
            del self._counts[place]
        if by > 0 or place not in self._counts:
            any_rule = binding._replace(operation=Operation.ALL, permission=Permission.ALLOW)
            self._spoken_of[binding.resource].change(any_rule, add=by > 0)

    def granted(self, principal: str, host: str, resource: Resource, name: str) -> int:
        """A bit for each operation that is allowed. The host is plain."""
        if self.is_closed:
            return 0
        allowed = denied = 0
        for rules in self._of(principal, host, resource):
            for more, less in rules.about(name):
                allowed |= more
                denied |= less
        if denied & ALL_BIT:
            return 0
        if self._allow_if_none and not any(True for _ in self._spoken_of[resource].about(name)):
            return EVERY_BIT
        return _with_implied(allowed) & ~denied

    def granted_somewhere(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether it is allowed for any name at all, as Kafka's `authorizeByResourceType` finds it."""
        if self.is_closed:
            return False
        if self.granted(principal, host, resource, NOBODY_SPOKEN_OF) >> operation & 1:
            return True
        mask = 1 << operation | ALL_BIT
        own = list(self._of(principal, host, resource))
        if any(rules.literal.get(EVERYTHING, (0, 0))[1] & mask for rules in own):
            return False
        if any(rules.literal.get(EVERYTHING, (0, 0))[0] & mask for rules in own):
            return True
        denied = {name for rules in own for name, bits in rules.literal.items() if bits[1] & mask}
        denied_prefixes = {name for rules in own for name, bits in rules.prefixed.items() if bits[1] & mask}
        lengths = {len(each) for each in denied_prefixes}

        def is_left(name: str) -> bool:
            return not any(name[:length] in denied_prefixes for length in lengths if length <= len(name))

        literal = (name for rules in own for name, bits in rules.literal.items() if bits[0] & mask)
        prefixed = (name for rules in own for name, bits in rules.prefixed.items() if bits[0] & mask)
        return any(name not in denied and is_left(name) for name in literal) or any(map(is_left, prefixed))

    def _of(self, principal: str, host: str, resource: Resource) -> Iterator[_Rules]:
        by_whom = self._rules[resource]
        for who in ((principal, host), (principal, EVERYTHING), (EVERYBODY, host), (EVERYBODY, EVERYTHING)):
            rules = by_whom.get(who)
            if rules is not None:
                yield rules


def _who(binding: Binding) -> Who:
    return binding.principal, binding.host


def _with_implied(allowed: int) -> int:
    if allowed & ALL_BIT:
        return EVERY_BIT
    if allowed & _IMPLYING_DESCRIBE:
        allowed |= DESCRIBE_BIT
    if allowed & _IMPLYING_DESCRIBE_CONFIGS:
        allowed |= DESCRIBE_CONFIGS_BIT
    return allowed


def principals_of(text: str) -> frozenset[str]:
    """The principals of `super.users`: names may hold commas, so they are parted by semicolons."""
    return frozenset(each.strip() for each in text.split(";") if each.strip())
