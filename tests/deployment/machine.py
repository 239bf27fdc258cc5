"""Programs that deployments are made of, as far as this machine has them: podman, nginx, systemd."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
#: An image with Python that is made here, where no registry can be reached.
BASE = "localhost/csdp-test-base"
#: Limits that need no right to raise them, and no network of a container's own.
_CONTAINERS = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
netns = "host"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


def need(*programs: str) -> None:
    """Skip a test where a program is missing."""
    missing = [name for name in programs if find(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def find(program: str) -> str | None:
    """The path of a program; Debian keeps some where only root looks."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")


def call(*command: object, seconds: float = 900, **more) -> subprocess.CompletedProcess[str]:
    """Run a command; its output as text. A command that fails is a RuntimeError with what it said."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False, **more)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done


class Podman:
    """Podman as root, without a network of its own, with a base image."""

    def __init__(self, folder: Path) -> None:
        need("podman")
        if os.geteuid() != 0:
            pytest.skip("podman is only tried as root")
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        runtime = 'runtime = "runc"\n' if find("runc") else ""
        (folder / "containers.conf").write_text(_CONTAINERS + runtime)

    def __call__(self, *arguments: object, seconds: float = 900) -> str:
        environment = {**os.environ, "CONTAINERS_CONF": str(self._folder / "containers.conf")}
        return call("podman", *arguments, seconds=seconds, env=environment).stdout

    def make_base(self) -> str:
        """A clean root of Debian with Python as an image; made once on a machine."""
        if BASE not in self("images", "--format", "{{.Repository}}").split():
            need("debootstrap")
            root = self._folder / "root"
            packages = "python3,python3-venv,ca-certificates"
            mirror = os.environ.get("CSDP_DEBIAN_MIRROR")  # by default the one that debootstrap knows
            place = [root] if mirror is None else [root, mirror]
            try:
                call("debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", *place)
            except RuntimeError:
                pytest.skip("no mirror of Debian can be reached")
            call("tar", "-C", root, "-cf", self._folder / "root.tar", ".")
            self("import", self._folder / "root.tar", BASE)
        return BASE

    def build(self, name: str) -> None:
        """Build the image of deploy/Containerfile, with packages from where pip of this machine has them."""
        mounts = [part for one in self._pip_mounts() for part in ("-v", one)]
        options = ("--network", "host", "--build-arg", f"BASE={self.make_base()}", "-f", DEPLOY / "Containerfile")
        self("build", *options, *mounts, "-t", name, ROOT, seconds=1500)

    def _pip_mounts(self) -> list[str]:
        """The settings of pip, and the files that they name."""
        told = call(sys.executable, "-m", "pip", "config", "list").stdout
        found = dict(re.findall(r"^(?::env:|global)\.([\w-]+)=(.+)$", told, re.MULTILINE))
        settings = {name: value[1:-1] for name, value in found.items()}
        config = self._folder / "pip.conf"
        config.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
        places = {word.removeprefix("file://") for value in settings.values() for word in value.split()}
        folders = {re.sub(r"/simple/?$", "", place) for place in places if place.startswith("/")}
        return [f"{config}:/etc/pip.conf:ro", *(f"{one}:{one}:ro" for one in sorted(folders) if Path(one).exists())]
