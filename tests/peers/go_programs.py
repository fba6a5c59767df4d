"""Programs in Go: built once, with what Go's module proxy serves, into the user's cache."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.peers.jars import MissingPeer, cache_folder

BUILD_S: Final = 600


def go_program(module: Path, package: str = ".") -> Path:
    """Of a folder with a go.mod; one whose sources are others is another program."""
    sources = sorted(file for file in module.rglob("*") if file.is_file())
    digest = hashlib.sha256(package.encode() + b"".join(file.read_bytes() for file in sources)).hexdigest()[:16]
    name = module.name if package == "." else Path(package).name
    built = cache_folder() / f"{name}-{digest}"
    if built.exists():
        return built
    go = shutil.which("go")
    if go is None:
        raise MissingPeer(f"there is no `go` on the path, with which {name} is built; install Go 1.21 or newer")
    built.parent.mkdir(parents=True, exist_ok=True)
    fresh = built.with_name(f"{built.name}.building-{os.getpid()}")
    caches = {"GOMODCACHE": cache_folder() / "go-modules", "GOCACHE": cache_folder() / "go-build"}
    environment = os.environ | {name: str(folder) for name, folder in caches.items()}
    order = [go, "build", "-modcacherw", "-mod=readonly", "-buildvcs=false", "-o", str(fresh), package]
    try:
        done = subprocess.run(
            order, cwd=module, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
        )
        if done.returncode:
            raise MissingPeer(f"Go could not build {name}: {done.stderr[-600:]}")
        fresh.rename(built)
    finally:
        fresh.unlink(missing_ok=True)
    return built
