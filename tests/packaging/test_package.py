"""The package as it is shipped: what is in it, and that it installs and runs in an empty environment."""

from __future__ import annotations

import re
import tarfile
import tomllib
import venv
import zipfile

import pytest

from deployment.machine import ROOT, call  # isort: skip

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def environment(folder):
    """An empty virtual environment; the path of its commands."""
    venv.create(folder, with_pip=True)
    return folder / "bin"


def lowest():
    """Every direct dependency at the lowest version that is allowed."""
    for line in PROJECT["dependencies"]:
        name, version = re.fullmatch(r"([\w-]+)>=([\d.]+)", line).groups()
        yield f"{name}=={version}" if version.count(".") > 1 else f"{name}=={version}.*"


#: Data frames come in through one package, of which the commands of the smoke test need nothing.
FRAMES = """
import csdp, pyarrow as pa
table = pa.table({"a": [0, 1, 1, 0, None, 1], "b": [1, 1, 0, 0, 1, 1]})
assert csdp.fit(table, public=True).names == ("a", "b")
panel = csdp.read_panel(table.append_column("time", pa.array(range(6))))
assert panel.states.tolist()[3:] == [[0, 0], [-1, 1], [1, 1]]
"""


def smoke(commands, folder):
    """A first look, and the main job: leakage, a release through the gate, and what was kept of it."""
    folder.mkdir()

    def csdp(*args):
        return call(commands / "csdp", *args, cwd=folder).stdout

    assert csdp("--version").startswith("csdp ")
    csdp("chain", "new", "--sequences", "2", "--self-coupling", "0.75", "--p", "0.3", "-o", "chain.json")
    assert "0.153046" in csdp("leakage", "chain.json", "--age", "2", "--epsilon-c", "1")
    csdp("chain", "simulate", "chain.json", "--steps", "60", "--seed", "1", "-o", "readings.csv")
    csdp(
        "plan",
        "chain.json",
        *["--about", "then", "--budget", "0.5", "--max-error", "0.2", "-o", "plan.json"],
    )
    told = ["--plan", "plan.json", "--dataset", "home", "--ledger", "ledger.db"]
    assert "published" in csdp("release", "readings.csv", *told, "-o", "released.csv")
    assert csdp("ledger", "verify", "ledger.db").count("no problem found") == 1
    assert "Everything required works." in csdp("doctor")
    call(commands / "python", "-c", FRAMES)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and source distribution, built by the real backend in an environment of its own; the path of both."""
    folder = tmp_path_factory.mktemp("build")
    commands = environment(folder / "venv")
    call(commands / "pip", "install", "--quiet", "build")
    call(commands / "python", "-m", "build", "--outdir", folder / "dist", ROOT)
    return next((folder / "dist").glob("*.whl")), next((folder / "dist").glob("*.tar.gz"))


def test_every_lower_bound_is_one_and_names_a_version():
    assert len(list(lowest())) == len(PROJECT["dependencies"])


def test_the_extras():
    extras = PROJECT["optional-dependencies"]
    assert set(extras) == {"excel", "mqtt", "postgres", "service", "spark", "all"}
    (everything,) = extras["all"]
    assert set(re.fullmatch(r"csdp\[([\w,]+)\]", everything).group(1).split(",")) == set(extras) - {"all"}


def test_the_typed_marker_and_the_notices_are_in_the_tree():
    assert (ROOT / "src/csdp/py.typed").exists()
    data = ROOT / "src/csdp/datasets/data"
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    bundled = {path.name for path in data.iterdir()} - {"README.md", "CC0-1.0.txt", "OGL-UK-2.0.txt"}
    assert bundled
    assert all(name in notice and name in (data / "README.md").read_text(encoding="utf-8") for name in bundled)
    assert all(any(ROOT.glob(pattern)) for pattern in PROJECT["license-files"])


def test_what_is_in_the_wheel(built):
    names = set(zipfile.ZipFile(built[0]).namelist())
    tree = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/csdp").rglob("*") if path.is_file()}
    assert {name for name in tree if "__pycache__" not in name} <= names  # data, dashboard and py.typed as well
    assert {"csdp/py.typed", "csdp/service/dashboard/index.html", "csdp/datasets/data/parking.csv.gz"} <= names
    top = {name.partition("/")[0] for name in names}
    assert len(top) == 2  # the package and its description: no tests, no docs
    licences = {name.rpartition("/licenses/")[2] for name in names if "/licenses/" in name}
    texts = {f"src/csdp/datasets/data/{name}" for name in ("CC0-1.0.txt", "OGL-UK-2.0.txt")}
    assert licences == {"LICENSE", "NOTICE", *texts}


def test_what_is_in_the_source_distribution(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "NOTICE", "Makefile", "tests/conftest.py"} <= names
    assert not any(name.startswith((".venv", ".git/", "site/")) for name in names)


@pytest.mark.parametrize("versions", ["newest", "lowest"])
def test_it_installs_and_runs_in_an_empty_environment(built, tmp_path, versions):
    commands = environment(tmp_path / "venv")
    pinned = list(lowest()) if versions == "lowest" else []
    call(commands / "pip", "install", "--quiet", built[0], *pinned)
    call(commands / "pip", "check")
    smoke(commands, tmp_path / "work")


def test_the_source_distribution_installs_too(built, tmp_path):
    commands = environment(tmp_path / "venv")
    call(commands / "pip", "install", "--quiet", "--no-deps", built[1])
    assert "csdp/__init__.py" in call(commands / "pip", "show", "--files", "csdp").stdout
