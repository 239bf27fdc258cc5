"""Makes a release: wheel and source distribution, the list of what they need (SBOM), checksums and their signature.

    make release            # into dist/
    make release KEY=~/.ssh/release_key
    make audit INDEX=...    # dates and advisories of all dependencies, into docs/dependencies.md

The same sources give the same bytes: times in the archives are those of the release in the changelog, and the programs
that build are pinned in constraints/release.txt.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
#: What a signature is for: one made for something else does not pass.
NAMESPACE = "csdp-release"
_COPYLEFT = re.compile("GPL|EPL|MPL")
_RELEASE = re.compile(r"^## \[(\d[^]]*)\] - (\d{4}-\d{2}-\d{2})$", re.MULTILINE)


@dataclass(frozen=True)
class Dependency:
    """A package that the release needs, in the version that it was tested with."""

    name: str
    version: str
    licence: str
    needs: tuple[str, ...] = field(default=())

    @property
    def purl(self) -> str:
        """Its address among packages."""
        return f"pkg:pypi/{self.name}@{self.version}"


def read_version() -> str:
    """The version in the sources, which must be the newest in the changelog."""
    text = (ROOT / "src" / "csdp" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    assert found is not None
    version, _ = newest_release()
    if found[1] != version:
        raise SystemExit(f"the sources have version {found[1]}, the newest in CHANGELOG.md is {version}")
    return version


def newest_release() -> tuple[str, int]:
    """Version and day, as seconds since 1970, of the newest release in the changelog."""
    found = _RELEASE.search((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit("CHANGELOG.md has no line such as `## [0.2.0] - 2026-11-17`")
    return found[1], int(dt.datetime.fromisoformat(found[2]).replace(tzinfo=dt.UTC).timestamp())


def build(out: Path) -> list[Path]:
    """Build wheel and source distribution; return their paths."""
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(newest_release()[1]),
        "PIP_CONSTRAINT": str(ROOT / "constraints" / "release.txt"),
    }
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)], check=True, env=environment)
    version = read_version()
    return [out / f"csdp-{version}-py3-none-any.whl", out / f"csdp-{version}.tar.gz"]


# ---- what a release needs --------------------------------------------------------------------------------------------


def pinned_versions() -> dict[str, str]:
    """Versions of constraints/dev.txt, by canonical name."""
    lines = (ROOT / "constraints" / "dev.txt").read_text(encoding="utf-8").splitlines()
    return {
        canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines) if version
    }


def direct_requirements() -> list[Requirement]:
    """What csdp with all its extras names itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [one for part in project["optional-dependencies"].values() for one in part]
    return [Requirement(one) for one in (*project["dependencies"], *extras) if not one.startswith("csdp[")]


def find_dependencies() -> list[Dependency]:
    """Everything that csdp with all its extras needs on this system, at pinned versions, by name."""
    pinned, found = pinned_versions(), {}
    waiting = [(requirement.name, frozenset(requirement.extras)) for requirement in direct_requirements()]
    while waiting:
        name, wanted = waiting.pop()
        key = canonicalize_name(name)
        if key in found and wanted <= found[key][1]:
            continue
        installed = metadata.distribution(name)
        if installed.version != pinned.get(key):
            raise SystemExit(f"{name}: {installed.version} is installed, constraints/dev.txt has {pinned.get(key)}")
        wanted |= found[key][1] if key in found else frozenset()
        needs = list(_needs(installed, wanted))
        found[key] = (installed, wanted, tuple(sorted(canonicalize_name(one.name) for one in needs)))
        waiting += [(one.name, frozenset(one.extras)) for one in needs]
    return [
        Dependency(key, installed.version, _licence(installed), needs)
        for key, (installed, _, needs) in sorted(found.items())
    ]


def _needs(installed: metadata.Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    for text in installed.requires or []:
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": one}) for one in ("", *extras)):
            yield requirement


def _licence(installed: metadata.Distribution) -> str:
    """The licence as the package names it, in one line."""
    facts = installed.metadata
    named = facts.get("License-Expression") or facts.get("License") or ""
    if not named or "\n" in named or len(named) > 60:
        classes = [one.split(" :: ")[-1] for one in facts.get_all("Classifier") or [] if one.startswith("License ::")]
        named = ", ".join(classes) or named.splitlines()[0] if classes or named else "not named"
    return named


def make_sbom(dependencies: list[Dependency], *, version: str, seconds: int) -> dict[str, Any]:
    """The list of all dependencies in the form of CycloneDX 1.5; the same for the same versions."""
    own = f"pkg:pypi/csdp@{version}"
    by_name = {one.name: one for one in dependencies}
    components = [
        {
            "type": "library",
            "bom-ref": one.purl,
            "name": one.name,
            "version": one.version,
            "purl": one.purl,
            "licenses": [{"license": {"name": one.licence}}],
        }
        for one in dependencies
    ]
    direct = sorted({canonicalize_name(one.name) for one in direct_requirements()})
    links = [{"ref": own, "dependsOn": [by_name[name].purl for name in direct]}]
    links += [{"ref": one.purl, "dependsOn": [by_name[name].purl for name in one.needs]} for one in dependencies]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([own, components])).urn,
        "version": 1,
        "metadata": {
            "timestamp": dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "library", "bom-ref": own, "name": "csdp", "version": version, "purl": own},
        },
        "components": components,
        "dependencies": links,
    }


def write_checksums(files: list[Path], out: Path) -> Path:
    """SHA-256 of the files, as `sha256sum --check` reads them."""
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    path = out / "SHA256SUMS"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def sign(path: Path, key: Path) -> Path:
    """Sign a file with an SSH key; the signature is beside it."""
    signature = path.with_name(path.name + ".sig")
    signature.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(path)], check=True)
    return signature


def make_release(out: Path, *, key: Path | None) -> None:
    """Everything of a release."""
    os.umask(0o022)
    out.mkdir(parents=True, exist_ok=True)
    version, seconds = read_version(), newest_release()[1]
    files = build(out)
    sbom = out / f"csdp-{version}.cdx.json"
    content = make_sbom(find_dependencies(), version=version, seconds=seconds)
    sbom.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    checksums = write_checksums([*files, sbom], out)
    if key is not None:
        sign(checksums, key)


# ---- dates and advisories --------------------------------------------------------------------------------------------

_PAGE = """# Dependencies

csdp with all its extras needs {count} packages. `constraints/dev.txt` has the versions that it was tested with; each
release lists them with their licences in `csdp-VERSION.cdx.json` (CycloneDX). `make audit INDEX=...` writes this page
from what a package index says.

Looked up on {day} for list {digest}: {advisories}.
An index knows advisories of the newest version only: nothing is known from it of the {older} packages below, which are
pinned at an older one. `pip-audit -r constraints/dev.txt` knows more.

| package | version | uploaded | newest |
|---|---|---|---|
{rows}
Licences that are not only permissive: {licences}.
"""


def audit(index: str, page: Path) -> None:
    """Write the page of dependencies from what an index says of each: its JSON is at INDEX/NAME/json."""
    rows, known = [], []
    dependencies = find_dependencies()
    for one in dependencies:
        with urllib.request.urlopen(f"{index.rstrip('/')}/{one.name}/json", timeout=60) as answer:
            facts = json.load(answer)
        newest = facts["info"]["version"]
        if newest == one.version:
            known += [f"{one.name}: {each['id']}" for each in facts["vulnerabilities"]]
        else:
            files = facts["releases"].get(one.version, [])
            uploaded = min((file["upload_time"][:10] for file in files), default="unknown")
            rows.append(f"| {one.name} | {one.version} | {uploaded} | {newest} |\n")
    text = _PAGE.format(
        count=len(dependencies),
        day=dt.datetime.now(dt.UTC).date(),
        digest=list_digest(dependencies),
        advisories=f"advisories are known ({'; '.join(known)})" if known else "no advisory against any newest version",
        older=len(rows),
        rows="".join(rows),
        licences="; ".join(f"{one.name} ({one.licence})" for one in dependencies if _COPYLEFT.search(one.licence)),
    )
    page.write_text(text, encoding="utf-8")


def list_digest(dependencies: list[Dependency]) -> str:
    """What identifies a list of packages and versions."""
    text = "\n".join(f"{one.name}=={one.version}" for one in dependencies)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def main() -> None:
    """Make a release, or the page of dependencies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the release")
    parser.add_argument("--key", type=Path, help="file of an SSH key that signs the checksums")
    parser.add_argument("--audit", metavar="INDEX", help="write docs/dependencies.md from this index instead")
    given = parser.parse_args()
    if given.audit:
        audit(given.audit, ROOT / "docs" / "dependencies.md")
    else:
        make_release(given.out, key=given.key)


if __name__ == "__main__":
    main()
