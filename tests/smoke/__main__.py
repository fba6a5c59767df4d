"""Every Python that is to be had:  ./dev smoke    and what Debian can bring of the others:  ./dev smoke --get"""

import sys
import tempfile
from pathlib import Path

import click

from oncelog import __version__
from tests.repo.test_sizes import MOST_CORE_BYTES
from tests.smoke import debian, pythons
from tests.smoke.installing import Failed, build_wheel, make_environment, size_bytes
from tests.smoke.serving import check


@click.command()
@click.option("--get", "is_getting", is_flag=True, help="Bring Pythons that are missing from Debian's packages.")
@click.option("--python", "minors", multiple=True, metavar="3.N", help="Only this one; repeatable.")
def main(is_getting: bool, minors: tuple[str, ...]) -> None:
    """Build the wheel, install it alone with every supported Python of this machine, serve, produce and consume."""
    wanted = list(minors) or pythons.supported()
    found = pythons.find(wanted)
    if is_getting:
        for minor in wanted:
            if minor not in found and minor in debian.RELEASES:
                click.echo(f"bringing Python {minor} from Debian's packages")
                debian.bring(minor, pythons.of_debian() / minor)
        found = pythons.find(wanted)
    failed = False
    with tempfile.TemporaryDirectory(prefix="oncelog-smoke-") as folder:
        wheel = build_wheel(Path(folder))
        click.echo(f"{wheel.name}, {wheel.stat().st_size / 1e6:.2f} MB")
        for minor in wanted:
            failed |= not _ran(minor, found.get(minor), wheel, Path(folder) / minor)
    ran = [python.version for python in found.values()]
    click.echo(f"run on {len(ran)} of {len(wanted)} supported Pythons: {', '.join(ran)}")
    sys.exit(1 if failed else 0)


def _ran(minor: str, python: pythons.Python | None, wheel: Path, folder: Path) -> bool:
    """Whether all is well; a Python that this machine does not have is no failure, and is told."""
    if python is None:
        click.echo(f"{minor:8} not run: this machine has none")
        return True
    folder.mkdir()
    try:
        bin_folder = make_environment(python, folder / "venv", wheel)
        size = size_bytes(bin_folder)
        if size > MOST_CORE_BYTES:
            raise Failed(f"{size / 1e6:.1f} MB are installed, {MOST_CORE_BYTES / 1e6:.0f} is the most")
        check(bin_folder, folder, __version__)
    except (Failed, AssertionError) as failure:
        click.echo(f"{python.version:8} FAILED: {failure}")
        return False
    click.echo(f"{python.version:8} ok: {size / 1e6:.1f} MB installed; serves, produces, consumes")
    return True


if __name__ == "__main__":
    main()
