"""A release: the same bytes from the same sources, a list of what it needs, checksums that are signed."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import csdp

from deployment.machine import ROOT, call, need  # isort: skip

_spec = importlib.util.spec_from_file_location("release", ROOT / "deploy" / "release.py")
release = importlib.util.module_from_spec(_spec)
sys.modules["release"] = release  # dataclasses look their module up
_spec.loader.exec_module(release)


def test_the_version_is_the_newest_of_the_changelog():
    assert release.read_version() == csdp.__version__ == release.newest_release()[0]
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert text.index("## [Unreleased]") < text.index(f"## [{csdp.__version__}]")


@pytest.fixture(scope="module")
def dependencies():
    return release.find_dependencies()


def test_the_list_is_whole(dependencies):
    """Everything that is imported is in it, at the version that is installed, and nothing that only tests need."""
    names = {one.name for one in dependencies}
    assert {"numpy", "scipy", "portalocker", "psycopg-binary", "h11", "py4j", "openpyxl"} <= names
    assert not names & {"pytest", "ruff", "hypothesis", "csdp"}
    pinned = release.pinned_versions()
    assert all(one.version == pinned[one.name] for one in dependencies)
    assert all(set(one.needs) <= names for one in dependencies)
    assert all("\n" not in one.licence and one.licence for one in dependencies)


def test_the_sbom(dependencies):
    made = release.make_sbom(dependencies, version="9.9", seconds=0)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.5")
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", made["serialNumber"])
    assert made["metadata"]["timestamp"] == "1970-01-01T00:00:00Z"
    known = {one["bom-ref"] for one in made["components"]} | {made["metadata"]["component"]["bom-ref"]}
    assert len(known) == len(dependencies) + 1
    assert {one["ref"] for one in made["dependencies"]} == known
    assert all(set(one["dependsOn"]) <= known for one in made["dependencies"])
    [own] = [one for one in made["dependencies"] if one["ref"] == "pkg:pypi/csdp@9.9"]
    assert len(own["dependsOn"]) == len({one.name for one in release.direct_requirements()})
    # The same for the same versions, another for others.
    assert release.make_sbom(dependencies, version="9.9", seconds=0) == made
    others = [replace(dependencies[0], version="0"), *dependencies[1:]]
    assert release.make_sbom(others, version="9.9", seconds=0)["serialNumber"] != made["serialNumber"]
    json.dumps(made)


def test_the_page_of_dependencies_is_of_these_versions(dependencies):
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert f"for list {release.list_digest(dependencies)}:" in page
    assert f"needs {len(dependencies)} packages" in page


def test_checksums_are_signed(tmp_path):
    need("ssh-keygen")
    files = [tmp_path / "a.whl", tmp_path / "b.tar.gz"]
    for number, file in enumerate(files):
        file.write_bytes(bytes([number]) * 1000)
    sums = release.write_checksums(files, tmp_path)
    call("sha256sum", "--check", sums.name, cwd=tmp_path)
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "maintainers", "-f", tmp_path / "key")
    signature = release.sign(sums, tmp_path / "key")
    (tmp_path / "allowed").write_text(f"maintainers {(tmp_path / 'key.pub').read_text()}")

    def check(content, *, namespace=release.NAMESPACE):
        words = [
            "ssh-keygen",
            "-Y",
            "verify",
            "-f",
            "allowed",
            "-I",
            "maintainers",
            "-n",
            namespace,
            "-s",
            signature.name,
        ]
        done = subprocess.run(words, input=content, capture_output=True, cwd=tmp_path, check=False)
        return done.returncode == 0

    assert check(sums.read_bytes())
    assert not check(sums.read_bytes().replace(b"a.whl", b"c.whl"))
    assert not check(sums.read_bytes(), namespace="mail")
    (tmp_path / "a.whl").write_bytes(b"other")
    done = subprocess.run(["sha256sum", "--check", sums.name], capture_output=True, cwd=tmp_path, check=False)
    assert done.returncode != 0


def test_the_same_sources_give_the_same_bytes(tmp_path):
    """Built twice: in another folder, at another time, from files of other modes and times, under another umask."""
    need("git")
    listed = call("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout.split("\0")
    builder = tmp_path / "venv"
    call(sys.executable, "-m", "venv", builder)
    pins = ROOT / "constraints" / "release.txt"
    call(builder / "bin" / "pip", "install", "--quiet", "-r", pins)
    found = []
    for name, mode, age, mask in (("one", 0o644, 0, 0o022), ("two/deeper", 0o600, 10**7, 0o077)):
        tree = tmp_path / name
        for file in filter(None, listed):
            if not (ROOT / file).is_file():
                continue
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, tree / file)
            (tree / file).chmod(mode)
            os.utime(tree / file, (10**9 + age, 10**9 + age))
        out = tmp_path / f"out-{mode}"
        code = f"import os, runpy, sys; os.umask({mask}); sys.argv = ['release.py', '--out', {str(out)!r}]; "
        code += "m = runpy.run_path('deploy/release.py'); os.makedirs(sys.argv[2]); m['build'](m['Path'](sys.argv[2]))"
        call(builder / "bin" / "python", "-c", code, cwd=tree)
        built = sorted(Path(out).iterdir())
        found.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built})
    assert len(found[0]) == 2
    assert found[0] == found[1]
