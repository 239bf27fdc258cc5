"""What can be said of other systems without running there: imports, the wheel, and wheels of all dependencies."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from without_posix import posix_names

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "csdp").rglob("*.py"))
#: Platforms for which every dependency must have a wheel, beside the one that the tests run on.
PLATFORMS = ["win_amd64", "macosx_14_0_arm64", "macosx_14_0_x86_64"]
#: What pip says where it reaches no index.
UNREACHABLE = ("Failed to establish a new connection", "Max retries exceeded", "Temporary failure in name resolution")
#: Without a wheel for any platform: an archive of Python files, which pip builds everywhere.
SOURCE_ONLY = {"pyspark"}


def test_what_windows_has_not():
    assert {"fork", "geteuid", "memfd_create", "register_at_fork"} <= posix_names("os")
    assert not {"getpid", "open", "replace", "urandom"} & posix_names("os")
    assert "SIGKILL" in posix_names("signal")
    assert "SIGTERM" not in posix_names("signal")


def test_a_release_without_what_windows_has_not(tmp_path):
    command = [sys.executable, ROOT / "tests" / "without_posix.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "a.csv").read_text(encoding="utf-8").splitlines()) > 40


def test_files_are_read_and_written_in_one_encoding():
    """The encoding of a text file is said, never that of the machine."""
    calls = {"read_text", "write_text"}
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in calls:
                given = {keyword.arg for keyword in node.keywords}
                if "encoding" not in given:
                    found.append((path.name, node.lineno))
    assert found == []


def pip(*arguments, seconds=300):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    if any(words in done.stderr for words in UNREACHABLE):
        pytest.skip("no package index can be reached")
    return done


@pytest.mark.slow
def test_the_wheel_is_pure_python(tmp_path):
    done = pip("wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT))
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
    assert any(name == "csdp/__init__.py" for name in names)
    assert not [name for name in names if name.endswith((".so", ".pyd", ".dylib", ".dll"))]


@pytest.mark.slow
@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_dependency_has_a_wheel(tmp_path, platform):
    """For each platform pip finds wheels of all that is needed, of the optional parts too, and of what these need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = [one for part in project["optional-dependencies"].values() for one in part]
    wanted = [one for one in (*project["dependencies"], *optional) if not one.startswith(("csdp[", *SOURCE_ONLY))]
    report = tmp_path / "report.json"
    done = pip(
        *("install", "--dry-run", "--ignore-installed", "--only-binary=:all:", "--python-version", "3.11"),
        *("--platform", platform, "--target", str(tmp_path / "nowhere"), "--report", str(report), *wanted),
    )
    assert done.returncode == 0, done.stderr
    found = [one["download_info"]["url"] for one in json.loads(report.read_text(encoding="utf-8"))["install"]]
    assert len(found) > len(wanted)
    assert all(url.endswith(".whl") for url in found)
