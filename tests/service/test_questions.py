"""Questions that take long: they can be ended, they have a limit, and no reader takes the turn of another."""

from __future__ import annotations

import threading
import time

import httpx
import numpy as np
import psutil
import pytest

from csdp import CoupledChain
from csdp.chain.files import save_model

from service.parts import OTHER, WARD, hand_in, serving, settings_of, write_spec  # isort: skip
from service.processes import Process  # isort: skip

URL = f"/api/datasets/{WARD}"
#: Minutes of work: the past fades so slowly that the accountant follows it for very many ticks.
LONG = {"age": 1000, "epsilon_c": 0.5, "releases": "continual"}
SHORT = {"age": 1, "epsilon_c": 0.5}


def persistent_spec(folder, stay=0.99999):
    """A dataset whose sequences hardly ever change."""
    path = write_spec(folder, count=4)
    moves = [[stay, 1 - stay], [1 - stay, stay]]
    save_model(CoupledChain(np.eye(4) * 0.5 + 0.125, moves), folder / "chain-4.json")
    return path


def patient_settings(folder, stay=0.99999, **more):
    """Limits that a busy machine does not reach."""
    return settings_of(folder, specs=[persistent_spec(folder, stay)], **{"question_seconds": 300.0, **more})


def until(condition, seconds=200):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)  # to look at all processes of the machine is work too


#: Processes that were there before a test.
_EARLIER: set[int] = set()


@pytest.fixture(autouse=True)
def others():
    """Services that other tests of this process keep open have solvers of their own; they do not count."""
    _EARLIER.clear()
    _EARLIER.update(one.pid for one in solvers())


def solvers(pid=None):
    """The processes that work on questions for a service."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            if child.pid not in _EARLIER and "csdp.service.solver" in child.cmdline():
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def at_work(pid=None):
    """Those that have computed for a while: what they do is no start-up any more, which takes half a second."""
    return [one for one in solvers(pid) if one.is_running() and sum(one.cpu_times()[:2]) > 1.5]


class Asker(threading.Thread):
    """Asks one question and keeps what comes back."""

    def __init__(self, client, question):
        super().__init__(daemon=True)
        self._client, self._question = client, question
        self.answer = self.error = None
        self.start()

    def run(self):
        try:
            self.answer = self._client.get(f"{URL}/what-if", params=self._question)
        except httpx.HTTPError as error:
            self.error = error


def refused(answer, status, kind, words):
    assert answer.status_code == status
    assert answer.json()["type"] == f"urn:csdp:problem:{kind}"
    assert words in answer.json()["detail"]


def test_sigterm_ends_a_service_with_a_long_question_under_way(tmp_path):
    other = write_spec(tmp_path, dataset=OTHER, ledger="other.db")
    service = Process(tmp_path, [persistent_spec(tmp_path), other])
    service.start()
    try:
        with service.client("reader") as client:
            asker = Asker(client, LONG)
            until(lambda: at_work(service.process.pid))
            with service.client("writer", OTHER) as writer:  # publishing is not held up
                hand_in(writer, range(3), dataset=OTHER)
            found = solvers(service.process.pid)
            service.process.terminate()
            assert service.process.wait(40) == 0
            asker.join(20)
            assert not asker.is_alive()
        psutil.wait_procs(found, timeout=20)
        assert not any(one.is_running() for one in found)
        assert "Traceback" not in (tmp_path / "stderr").read_text()
    finally:
        if service.process.poll() is None:
            service.kill()


def test_a_killed_service_leaves_no_work_behind(tmp_path):
    service = Process(tmp_path, [persistent_spec(tmp_path)])
    service.start()
    try:
        with service.client("reader") as client:
            asker = Asker(client, LONG)
            until(lambda: at_work(service.process.pid))
            found = solvers(service.process.pid)
            service.kill()
            asker.join(20)
        psutil.wait_procs(found, timeout=30)
        assert not any(one.is_running() for one in found)
    finally:
        service.close()


def test_a_client_that_leaves_ends_its_question(tmp_path):
    with serving(patient_settings(tmp_path)) as served:
        client = served.client("reader", timeout=3)
        asker = Asker(client, LONG)
        until(solvers)
        asker.join(60)
        assert isinstance(asker.error, httpx.ReadTimeout)
        until(lambda: not solvers())
        assert served.client("reader").get(f"{URL}/what-if", params=SHORT).status_code == 200
    assert not solvers()


def test_an_answer_that_two_wait_for_is_worked_out_for_the_one_who_stays(tmp_path):
    question = {"age": 3, "epsilon_c": 0.5, "releases": "continual"}
    with serving(patient_settings(tmp_path, stay=0.9)) as served:
        impatient = Asker(served.client("reader", timeout=1), question)
        patient = Asker(served.client("admin", "*", timeout=300), question)
        impatient.join(20)
        patient.join(300)
        assert impatient.error is not None or impatient.answer.status_code == 200
        assert patient.answer.status_code == 200
        again = served.client("reader").get(f"{URL}/what-if", params=question)
        assert again.json() == patient.answer.json()


def test_a_question_has_a_limit_and_a_key_a_share(tmp_path):
    settings = patient_settings(tmp_path, question_seconds=3.0, question_share=1e-6)
    with serving(settings) as served:
        reader, other = served.client("reader", timeout=300), served.client("reader", "*", timeout=300)
        for level in (0.5, 0.6):
            late = reader.get(f"{URL}/what-if", params={**LONG, "epsilon_c": level})
            refused(late, 422, "too-large", "the 3 seconds that one question may take")
        used = reader.get(f"{URL}/what-if", params=SHORT)
        refused(used, 429, "share", "have used their 6 seconds")
        assert int(used.headers["retry-after"]) > 100
        # Another key has its own share, and what it asked is there for everybody, however busy the machine is now.
        until(lambda: not at_work())
        served.app.state.service.questions._seconds = 300.0
        found = other.get(f"{URL}/what-if", params=SHORT)
        assert found.status_code == 200
        assert reader.get(f"{URL}/what-if", params=SHORT).json() == found.json()
        assert reader.get(f"{URL}/status").status_code == 200


def test_one_key_does_not_take_every_turn(tmp_path):
    with serving(patient_settings(tmp_path)) as served:
        greedy = [Asker(served.client("reader", timeout=300), {**LONG, "epsilon_c": 0.1 + 0.01 * k}) for k in range(12)]
        until(lambda: sum(one.answer is not None for one in greedy) == 3)
        many = [one.answer for one in greedy if one.answer is not None]
        for answer in many:  # one is worked on, eight wait
            refused(answer, 429, "questions", "8 questions of this key wait already")
            assert int(answer.headers["retry-after"]) > 0
        assert served.client("reader", "*", timeout=300).get(f"{URL}/what-if", params=SHORT).status_code == 200
        assert len(solvers()) == 2
    until(lambda: all(not one.is_alive() for one in greedy))
    stopped = [one.answer for one in greedy if one.answer is not None and one.answer not in many]
    assert all(answer.status_code == 503 for answer in stopped)


def test_many_keys_at_once_have_a_limit_and_publishing_goes_on(tmp_path):
    with serving(patient_settings(tmp_path)) as served:
        keys = [("reader", WARD, f"other-{number}") for number in range(6)]
        questions = [{**LONG, "epsilon_c": 0.1 + 0.01 * k} for k in range(48)]
        askers = [Asker(served.client(*keys[k % 6], timeout=300), asked) for k, asked in enumerate(questions)]
        # Two are worked on, 32 wait, and the others are told at once to come back.
        until(lambda: sum(one.answer is not None for one in askers) == 14)
        for answer in [one.answer for one in askers if one.answer is not None]:
            refused(answer, 503, "busy", "32 questions wait already")
            assert int(answer.headers["retry-after"]) > 0
        assert len(solvers()) == 2
        hand_in(served.client("writer"), range(5), values=(0, 1, 0, 1))
        assert len(served.client("reader").get(f"{URL}/releases").json()) == 3
    until(lambda: all(not one.is_alive() for one in askers))
    assert not solvers()


def test_a_process_that_dies_is_replaced(tmp_path):
    with serving(patient_settings(tmp_path)) as served:
        reader = served.client("reader", timeout=300)
        asker = Asker(reader, LONG)
        until(at_work)
        solvers()[0].kill()
        asker.join(20)
        refused(asker.answer, 503, "busy", "has ended; ask again")
        first = reader.get(f"{URL}/what-if", params=SHORT)
        assert first.status_code == 200
        [idle] = solvers()
        assert reader.get(f"{URL}/what-if", params={**SHORT, "age": 2}).status_code == 200
        assert solvers() == [idle]  # used again
        idle.kill()
        idle.wait(20)
        until(lambda: not served.app.state.service.questions._idle[0].is_alive)
        assert reader.get(f"{URL}/what-if", params={**SHORT, "age": 3}).status_code == 200


def test_what_is_asked_wrongly_is_told(tmp_path):
    with serving(settings_of(tmp_path)) as served:
        answer = served.client("reader", timeout=300).get(f"{URL}/what-if", params={"age": 1, "epsilon_c": 1e-15})
        refused(answer, 422, "invalid", "lattice steps")
