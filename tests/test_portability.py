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

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "csdp").rglob("*.py"))
#: Modules that Windows has not.
POSIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
#: Attributes that Windows has not; inside a function that is not called there they do no harm.
POSIX_NAMES = {
    "os": {"O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "fork", "geteuid", "getuid", "nice", "pread", "pwrite"},
    "signal": {"SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGSTOP", "SIGUSR1"},
    "asyncio": {"open_unix_connection", "start_unix_server"},
    "socket": {"AF_UNIX"},
}
#: Platforms for which every dependency must have a wheel, beside the one that the tests run on.
PLATFORMS = ["win_amd64", "macosx_14_0_arm64", "macosx_14_0_x86_64"]
#: What pip says where it reaches no index.
UNREACHABLE = ("Failed to establish a new connection", "Max retries exceeded", "Temporary failure in name resolution")
#: Without a wheel for any platform: an archive of Python files, which pip builds everywhere.
SOURCE_ONLY = {"pyspark"}


def run_at_import(node):
    """Every node that is evaluated when the module is imported: all but the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in (*child.decorator_list, *child.args.defaults):
                yield part
                yield from run_at_import(part)
        elif not isinstance(child, ast.Lambda):
            yield from run_at_import(child)


def posix_only(code):
    """(line, name) of what would fail to be imported on Windows."""
    for node in run_at_import(ast.parse(code)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name in POSIX_MODULES]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module in POSIX_MODULES else []
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [node.attr] if node.attr in POSIX_NAMES.get(node.value.id, ()) else []
        yield from ((node.lineno, name) for name in names)


def test_imports_need_no_posix():
    found = [(path.name, *one) for path in SOURCES for one in posix_only(path.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import fcntl", ["fcntl"]),
        ("if True:\n    from resource import getrusage", ["resource"]),
        ("import os\nFLAGS = os.O_RDWR | os.O_NOFOLLOW", ["O_NOFOLLOW"]),
        ("import os\nclass A:\n    user = os.getuid()", ["getuid"]),
        ("import os\ndef f():\n    import fcntl\n    return os.geteuid()", []),
        ("import os\ndef f(user=os.geteuid()):\n    return user", ["geteuid"]),
    ],
)
def test_what_would_be_found(code, names):
    assert [name for _, name in posix_only(code)] == names


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
