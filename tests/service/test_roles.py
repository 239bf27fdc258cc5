"""Who may do what, for every route there is: a route that is added without a rule fails here."""

from __future__ import annotations

import pytest

from csdp.service.app import create
from csdp.service.keys import ROLES, Key, Keys, matches, new_key

from service.parts import OTHER, WARD, hand_in, settings_of  # isort: skip

#: What each route answers to those who may use it; the body that it needs.
EXPECTED = {
    ("get", "/health"): (200, None),
    ("get", "/metrics"): (200, None),
    ("get", "/api/datasets"): (200, None),
    ("post", "/api/datasets/{name}/snapshots"): (200, {"time": 5, "values": [0, 1]}),
    ("get", "/api/datasets/{name}/releases"): (200, None),
    ("get", "/api/datasets/{name}/events"): (200, None),
    ("get", "/api/datasets/{name}/status"): (200, None),
    ("get", "/api/datasets/{name}/ledger"): (200, None),
}
PUBLIC = {("get", "/health")}


def described(tmp_path_factory):
    app = create(settings_of(tmp_path_factory.mktemp("described")))
    content = app.openapi()
    for dataset in app.state.service.datasets.values():
        dataset.ledger.close()
    return content


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    return described(tmp_path_factory)


def operations(api):
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            yield (method, path), operation


def ask(client, route, *, dataset=WARD, body=None):
    method, path = route
    url = path.replace("{name}", dataset)
    with client.stream(method.upper(), url, json=body) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            next(answer.iter_raw())
        else:
            answer.read()
        return answer


def test_every_route_is_here_and_has_a_rule(api):
    assert dict(operations(api)).keys() == EXPECTED.keys()
    for route, operation in operations(api):
        assert set(operation["x-roles"]) <= set(ROLES)
        assert bool(operation["x-roles"]) == (route not in PUBLIC)
        assert bool(operation.get("security")) == (route not in PUBLIC), route


@pytest.mark.parametrize("route", EXPECTED, ids=" ".join)
def test_a_route_is_for_its_roles_alone(shared, api, route):
    allowed = dict(operations(api))[route]["x-roles"]
    status, body = EXPECTED[route]
    for role in ROLES:
        datasets = ("*",) if route[1] == "/metrics" else (WARD,)
        answer = ask(shared.client(role, *datasets), route, body=body)
        expected = status if role in allowed or route in PUBLIC else 403
        assert answer.status_code == expected, (role, answer.status_code)
    for wrong in (None, "Bearer nonsense", "Basic YTpi", f"Bearer {shared.access.key('admin', '*')[:-1]}x"):
        client = shared.client()
        if wrong:
            client.headers["Authorization"] = wrong
        answer = ask(client, route, body=body)
        assert answer.status_code == (200 if route in PUBLIC else 401)
        if route not in PUBLIC:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("route", [route for route in EXPECTED if "{name}" in route[1]], ids=" ".join)
def test_a_key_is_for_its_datasets_alone(shared, api, route):
    body = EXPECTED[route][1]
    for role in dict(operations(api))[route]["x-roles"]:
        mine = shared.client(role)
        others, missing = ask(mine, route, dataset=OTHER, body=body), ask(mine, route, dataset="none", body=body)
        assert others.status_code == missing.status_code == 404
        assert others.content == missing.content  # whether a dataset of others exists is not told
        assert ask(shared.client(role, OTHER), route, dataset=OTHER, body=body).status_code == 200


def test_a_key_sees_its_datasets(shared):
    assert [one["name"] for one in shared.client("reader").get("/api/datasets").json()] == [WARD]
    assert [one["name"] for one in shared.client("reader", "*").get("/api/datasets").json()] == [WARD, OTHER]
    assert shared.client("reader", "gone").get("/api/datasets").json() == []


def test_metrics_are_for_admins_of_everything(shared):
    assert shared.client("admin").get("/metrics").status_code == 403
    text = shared.client("admin", "*").get("/metrics").text
    assert "csdp_http_requests_total" in text


def test_a_removed_key_stops_at_once(served):
    reader, store = served.client("reader"), served.access.store
    assert reader.get("/api/datasets").status_code == 200
    found = next(one for one in store.all() if one.role == "reader")
    with reader.stream("GET", f"/api/datasets/{WARD}/events") as live:
        raw = live.iter_raw()
        next(raw)
        assert store.remove(found.id) == found
        assert served.client("reader").get("/api/datasets").status_code == 401
        hand_in(served.client("writer"), range(4))
        assert b"".join(raw) == b""  # the connection ends, and nothing more was sent
    assert store.remove(found.id) is None


def test_keys_are_kept_as_hashes_in_a_private_file(tmp_path):
    store = Keys(tmp_path / "keys.json")
    key, text = new_key("admin", ["*"], label="first")
    store.add(key)
    content = (tmp_path / "keys.json").read_text()
    secret = text.split("_", 2)[2]
    assert secret not in content
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600
    assert Keys(tmp_path / "keys.json").find(text) == key
    assert store.find(text + "x") is None
    assert store.find("") is None
    assert not matches(None, text)
    other, _ = new_key("reader", [WARD])
    assert not matches(other, text)
    assert not matches(Key(**{**vars(key), "id": other.id}), text)  # the id is part of the key
    (tmp_path / "keys.json").chmod(0o644)
    with pytest.raises(ValueError, match="0600"):
        Keys(tmp_path / "keys.json").all()


@pytest.mark.parametrize(
    "content",
    [
        "",
        '{"version": 2}',
        '{"version": "csdp/keys/1", "keys": [{}]}',
    ],
)
def test_a_damaged_file_of_keys_lets_nobody_in(tmp_path, content):
    (tmp_path / "keys.json").write_text(content)
    (tmp_path / "keys.json").chmod(0o600)
    with pytest.raises(ValueError, match=r"keys\.json"):
        Keys(tmp_path / "keys.json").find(new_key("admin", ["*"])[1])
