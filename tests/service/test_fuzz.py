"""Whatever is sent, the service answers as it is described, and goes on."""

from __future__ import annotations

import json
import os

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.parts import WARD, hand_in, released  # isort: skip

URL = f"/api/datasets/{WARD}"
FULL = bool(os.environ.get("CSDP_FULL"))

WRONG = [
    b"null",
    b'"text"',
    b"\xff\xfe\x00",
    b"{" * 100_000,
    b'{"time": NaN, "values": [0, 1]}',
    b'{"time": ' + b"9" * 5000 + b', "values": [0, 1]}',
    b'{"time": true, "values": [0, 1]}',
    b'{"time": "2024-13-45", "values": [0, 1]}',
    b'{"time": 1, "values": []}',
    b'{"time": 1, "values": [0]}',
    b'{"time": 1, "values": [0, 1, 2]}',
    b'{"time": 1, "values": {"\\ud800": 1}}',
    b'{"time": 1, "sequence": 5, "value": 1}',
    b'\xef\xbb\xbf{"time": 1, "values"',
]
ODD_VALUES = [b"NaN", b"-Infinity", b"1e400", b"9" * 4000, b'"1"', b"true", b"{}", b"[[]]", b'"\\u0000"']


@pytest.mark.parametrize("body", WRONG, ids=range(len(WRONG)))
def test_what_is_no_message_is_refused(shared, body):
    writer = shared.client("writer")
    for kind in ("application/json", "application/x-ndjson"):
        answer = writer.post(f"{URL}/snapshots", content=body, headers={"Content-Type": kind})
        if kind == "application/json" or not body.strip():
            assert answer.status_code == 422
            assert answer.headers["content-type"] == "application/problem+json"
        else:
            assert answer.json() == {"accepted": 0, "late": 0, "ahead": 0, "unreadable": 1}


@pytest.mark.parametrize("value", ODD_VALUES, ids=range(len(ODD_VALUES)))
def test_a_value_that_is_no_number_is_a_gap(shared, value):
    body = b'{"time": 2, "values": [0, ' + value + b"]}"
    answer = shared.client("writer").post(
        f"{URL}/snapshots", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.json() == {"accepted": 1, "late": 0, "ahead": 0, "unreadable": 0}


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/xml", "multipart/form-data; boundary=x", "application/jsonx"]
)
def test_other_types_of_bodies(shared, kind):
    answer = shared.client("writer").post(f"{URL}/snapshots", content=b"{}", headers={"Content-Type": kind})
    assert answer.status_code == 415


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
MESSAGE = st.fixed_dictionaries(
    {}, optional={"time": JSON, "values": JSON, "sequence": JSON, "value": JSON, "extra": JSON}
)


@settings(max_examples=1000 if FULL else 40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(MESSAGE | JSON, min_size=1, max_size=5), st.binary(max_size=30))
def test_any_json_and_any_bytes(shared, messages, junk):
    writer = shared.client("writer")
    body = b"\n".join(json.dumps(message).encode() for message in messages) + b"\n" + junk.replace(b"\n", b"")
    answer = writer.post(f"{URL}/snapshots", content=body, headers={"Content-Type": "application/x-ndjson"})
    if answer.status_code == 200:
        sent = sum(bool(line.strip()) for line in body.split(b"\n"))
        assert sum(answer.json().values()) == sent
    else:
        assert answer.status_code in {413, 422}
    for one in messages[:2]:
        single = writer.post(f"{URL}/snapshots", content=json.dumps(one), headers={"Content-Type": "application/json"})
        assert single.status_code in {200, 422}


def test_it_goes_on_after_all_that(served):
    writer = served.client("writer")
    for body in WRONG:
        writer.post(f"{URL}/snapshots", content=body, headers={"Content-Type": "application/json"})
    hand_in(writer, range(4))
    assert [one["tick"] for one in released(served.client("reader"))] == [1, 2]


# ---- the description -----------------------------------------------------------------------------------------------

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
ROLE_OF = {"/metrics": "admin"}


def schema_of(shared):
    content = shared.client().get("/openapi.json").json()
    # A stream of events has no end; tests of their own read it.
    del content["paths"]["/api/datasets/{name}/events"]
    return schemathesis.openapi.from_dict(content)


@pytest.mark.parametrize("number", range(7))
def test_answers_are_as_described(shared, number):
    schema = schema_of(shared)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == 7
    operation = operations[number]
    role = ROLE_OF.get(operation.path, "writer" if operation.method.upper() == "POST" else "reader")
    headers = shared.access.headers(role, "*")
    named = "{name}" in operation.path

    @settings(max_examples=200 if FULL else 12, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy(), known=st.booleans())
    def run(case, known):
        if named and known:
            case.path_parameters = {"name": WARD}
        answer = case.call(base_url=shared.url, headers=headers)
        if answer.status_code == 503:  # an answer that takes long is one, as described
            assert int(answer.headers["Retry-After"]) > 0
            case.validate_response(answer, checks=CHECKS[1:])
        else:
            case.validate_response(answer, checks=CHECKS)

    run()
