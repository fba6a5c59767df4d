"""The libraries of the core and of each extra: there or not, and new enough."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Final

from oncelog import __version__
from oncelog.doctor.finding import Finding, missing, note, ok
from oncelog.doctor.requirement import Requirement, parse

OURS: Final = "oncelog"
# The purpose of each extra; pyproject.toml says what is in it.
PURPOSES: Final[Mapping[str, str]] = {
    "columns": "records in columns: faster `produce` and `consume`, Arrow",
    "spark": 'PySpark with format("oncelog"), and a Java runtime',
    "zookeeper": "a broker of a cluster that agrees in ZooKeeper",
    "connect": "Spark Connect, beside [spark]",
    "chaos": "`oncelog chaos`, also with librdkafka",
    "secure": "a server that makes its own certificate, `oncelog serve --secure`",
    "oauth": "a server that checks tokens, OAUTHBEARER",
    "console": "the page to look at, `oncelog serve --console`",
    "flow": "flows and their simulation, `import oncelog.flow`",
}


@dataclass(frozen=True, slots=True)
class Installed:
    """The place to look for packages; tests look elsewhere."""

    requires: Callable[[str], Iterable[str]]
    version: Callable[[str], str]

    def version_of(self, name: str) -> str | None:
        try:
            return self.version(name)
        except metadata.PackageNotFoundError:
            return None

    def needs(self, package: str, extra: str | None) -> Iterator[Requirement]:
        """The requirements of a package for one of its extras, or without any; those of the extras named in there,
        too."""
        try:
            lines = list(self.requires(package))
        except metadata.PackageNotFoundError:
            return
        for line in lines:
            each = parse(line)
            if each is None or each.extra != extra or not each.is_for_this_system:
                continue
            yield each
            for inner in each.extras:
                yield from self.needs(each.name, inner)


HERE: Final = Installed(lambda name: metadata.requires(name) or (), metadata.version)


def check_packages(wanted: Collection[str], installed: Installed = HERE) -> Iterator[Finding]:
    """The core, then every extra; those in `wanted` must be whole."""
    if installed.version_of(OURS) is None:
        yield note(
            "core",
            f"oncelog {__version__} runs from its sources, so nothing is known of what it needs",
            "pip install .",
        )
        return
    yield _core(installed)
    for extra, purpose in PURPOSES.items():
        yield _extra(extra, purpose, extra in wanted, installed)


def _core(installed: Installed) -> Finding:
    needed = list(installed.needs(OURS, None))
    troubles = _troubles(needed, installed)
    if troubles:
        return missing("core", ", ".join(troubles), "pip install --upgrade --force-reinstall oncelog")
    versions = _versions(needed, installed)
    return ok("core", f"oncelog {__version__} with {_listed(versions)}", version=__version__, packages=versions)


def _extra(extra: str, purpose: str, is_wanted: bool, installed: Installed) -> Finding:
    name = f"[{extra}]"
    needed = list(installed.needs(OURS, extra))
    remedy = f'pip install "oncelog[{extra}]"'
    absent = missing if is_wanted else note
    if not needed:
        return absent(name, f"this oncelog was installed without knowing of it ({purpose})", f"{remedy} --upgrade")
    versions = _versions(needed, installed)
    troubles = _troubles(needed, installed)
    if not troubles:
        return ok(name, _listed(versions), packages=versions)
    words = ", ".join(troubles) if versions else "not installed"
    return absent(name, f"{words}: {purpose}", remedy, packages=versions)


def _troubles(needed: Iterable[Requirement], installed: Installed) -> list[str]:
    found: dict[str, str] = {}
    for each in needed:
        version = installed.version_of(each.name)
        if version is None:
            found[each.name] = f"no {each.name}"
        elif not each.allows(version):
            found[each.name] = f"{each.name} is {version}, wanted is {each.range}"
    return list(found.values())


def _versions(needed: Iterable[Requirement], installed: Installed) -> dict[str, str]:
    found = {each.name: installed.version_of(each.name) for each in needed}
    return {name: version for name, version in found.items() if version is not None}


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
