"""A real server answers as the model does, and refuses in one sentence with the right status."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import numpy as np
import pytest

from apportion.data import Interactions
from apportion.serving import Limits

from running_services import in_a_thread

N_ITEMS = 60


@pytest.fixture(scope="module")
def clicks(clicks_model):
    with in_a_thread(clicks_model, Limits(rate=0, seconds=0.4, body_bytes=20_000), titles={"item01": "Faust ‡"}) as up:
        yield up


@pytest.fixture(scope="module")
def ratings(ratings_model):
    with in_a_thread(ratings_model, Limits(rate=0), page="<!doctype html><title>explorer</title>") as up:
        yield up


def by_the_model(model, items, values=None, k=10, **asked):
    """What the model recommends to one user, as (id, score)."""
    ids = model.task_ids.ids.tolist()
    history = Interactions.from_arrays(["me"] * len(items), items, values, task_ids=ids, single_user=True)
    found = model.recommend(history, k, **asked)
    return [(ids[t], s) for t, s in zip(found.tasks[0], found.scores[0].tolist(), strict=True) if t >= 0]


def assert_same(answer, expected):
    assert [each["item"] for each in answer["items"]] == [item for item, _ in expected]
    np.testing.assert_allclose([each["score"] for each in answer["items"]], [s for _, s in expected], rtol=1e-5)


def test_a_history_of_clicks_gets_the_items_of_the_model_and_none_of_its_own(clicks, clicks_model):
    history = ["item03", "item07", "item11"]
    answer = clicks.recommend(history=history, k=20)
    assert_same(answer, by_the_model(clicks_model, history, k=20))
    assert not {each["item"] for each in answer["items"]} & set(history)
    assert (answer["known"], answer["unknown"]) == (3, 0)
    as_objects = [{"item": item, "value": 7} for item in history]
    assert clicks.recommend(history=as_objects, k=20) == answer
    assert [each["title"] for each in clicks.recommend(history=history, allow=["item01"])["items"]] == ["Faust ‡"]


def test_a_history_of_ratings_gets_the_items_of_the_model(ratings, ratings_model):
    items = ratings_model.task_ids.ids[[2, 9, 30]].tolist()
    history = [{"item": item, "value": value} for item, value in zip(items, (5, 1.5, 9), strict=True)]
    assert_same(ratings.recommend(history=history, k=25), by_the_model(ratings_model, items, [5, 1.5, 9], k=25))
    assert len(ratings.recommend(history=history, k=1000)["items"]) == ratings_model.n_tasks - 3


def test_of_an_item_that_comes_twice_the_last_counts_and_unknown_items_are_counted(ratings, ratings_model):
    first, second = ratings_model.task_ids.ids[:2].tolist()
    entries = [(first, 1), (second, 3), (10**30, 3), (first, 5), (-(10**6), 2)]
    answer = ratings.recommend(history=[{"item": item, "value": value} for item, value in entries])
    assert_same(answer, by_the_model(ratings_model, [first, second], [5, 3]))
    assert (answer["known"], answer["unknown"]) == (2, 2)


def test_filters_leave_what_they_allow(clicks, clicks_model):
    history, few = ["item03"], ["item03", "item10", "item21", "item22", "unknown"]
    assert_same(clicks.recommend(history=history, allow=few), by_the_model(clicks_model, history, only=few))
    assert_same(clicks.recommend(history=history, deny=few), by_the_model(clicks_model, history, exclude=few))
    of_war = [f"item{k:02d}" for k in range(N_ITEMS) if k % 5 in (1, 3)]
    found = clicks.recommend(history=history, categories={"genre": ["War"]}, deny=["item06"], k=50)
    assert_same(found, by_the_model(clicks_model, history, k=50, only=of_war, exclude=["item06"]))
    capped = clicks.recommend(history=history, caps={"genre": 1}, k=20)
    assert_same(capped, by_the_model(clicks_model, history, k=20, caps={"genre": 1}))
    assert clicks.recommend(history=history, allow=[])["items"] == []


def test_clients_that_ask_at_once_get_their_own_answers(clicks, clicks_model):
    rng = np.random.default_rng(2)
    histories = [[f"item{t:02d}" for t in rng.choice(N_ITEMS, 5, replace=False)] for _ in range(150)]
    sizes = rng.integers(1, 30, len(histories)).tolist()
    filters = [{"deny": ["item00"]} if n % 5 == 0 else {} for n in range(len(histories))]

    def asked(n):
        return clicks.recommend(history=histories[n], k=sizes[n], **filters[n])

    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(asked, range(len(histories))))
    for n, answer in enumerate(answers):
        exclude = filters[n].get("deny")
        assert_same(answer, by_the_model(clicks_model, histories[n], k=sizes[n], exclude=exclude))


WRONG = [
    ([], 'Expected an object with a "history", got a list.'),
    ({}, 'Expected "history" as a list of items, got null.'),
    ({"history": "item01"}, "Expected \"history\" as a list of items, got 'item01'."),
    ({"history": []}, 'Expected a "history" with an item that the model knows; it is empty.'),
    ({"history": ["x", "y"]}, "the model knows; none of its 2 items is known."),
    ({"history": [3]}, 'Entry 1 of "history": expected text for an item, got 3.'),
    ({"history": ["item01", ["item02"]]}, 'Entry 2 of "history": expected text for an item, got a list.'),
    ({"history": ["item01", {"id": 3}]}, "Entry 2 of \"history\": there is no field 'id'"),
    ({"history": [{"item": "item01", "value": "5"}]}, "expected a number for \"value\", got '5'."),
    ({"history": [{"item": "item01", "value": 1e300}]}, 'expected a number for "value", got 1e+300.'),
    ({"history": [{"item": "item01", "value": True}]}, 'expected a number for "value", got true.'),
    ({"history": ["item01"], "n": 3}, "There is no field 'n'; the fields are history, k,"),
    ({"history": ["item01"], "k": 0}, 'Expected "k" as an integer from 1 to 1000, got 0.'),
    ({"history": ["item01"], "k": True}, "got true."),
    ({"history": ["item01"], "k": 10**400}, "got a number of many digits."),
    ({"history": ["item01"], "allow": "item02"}, "Expected \"allow\" as a list of items, got 'item02'."),
    ({"history": ["item01"], "deny": [None]}, 'Entry 1 of "deny": expected text for an item, got null.'),
    ({"history": ["item01"], "categories": ["War"]}, 'Expected "categories" as an object of lists of words'),
    ({"history": ["item01"], "categories": {"genre": []}}, "none of them empty"),
    ({"history": ["item01"], "categories": {"brand": ["x"]}}, "no category 'brand' in this model; it has 'genre'"),
    ({"history": ["item01"], "categories": {"genre": ["Noir"]}}, "no genre 'Noir' among the 4 of this model"),
    ({"history": ["item01"], "caps": {"genre": 0}}, 'Expected "caps" as an object of integers of at least 1.'),
    ({"history": ["item01"], "caps": {"brand": 1}}, "no category 'brand' in this model"),
]


@pytest.mark.parametrize(("body", "sentence"), WRONG, ids=range(len(WRONG)))
def test_what_cannot_be_used_is_refused_in_one_sentence(clicks, body, sentence):
    status, headers, answer = clicks.ask("POST", "/recommend", json.dumps(body))
    assert (status, headers["content-type"]) == (422, "application/json")
    said = json.loads(answer)["error"]
    assert sentence in said
    assert said.endswith(".")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"history": [NaN]}', b"\xff\xfe", b"[" * 9000, b'{"history": [' + b"9" * 5000 + b"]}"],
    ids=["empty", "half", "nan", "bytes", "deep", "digits"],
)
def test_what_is_no_json_is_a_bad_request(clicks, body):
    status, _, answer = clicks.ask("POST", "/recommend", body)
    assert (status, len(json.loads(answer))) == (400, 1)


def test_a_model_without_categories_says_so(ratings, ratings_model):
    history = [{"item": int(ratings_model.task_ids.ids[0]), "value": 3}]
    for name, value in (("categories", {"genre": ["War"]}), ("caps", {"genre": 1})):
        said = ratings.recommend(status=422, history=history, **{name: value})
        assert said == f'This model has no categories of its items: leave out "{name}".'
    said = ratings.recommend(status=422, history=[history[0]["item"]])
    assert 'Entry 1 of "history": expected {"item": ..., "value": ...}, got -50.' in said


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "sentence"),
    [
        ("GET", "/recommend", None, 405, "/recommend accepts POST, got GET."),
        ("POST", "/health", None, 405, "/health accepts GET, HEAD, got POST."),
        ("GET", "/secret?item=item01", None, 404, "There is nothing here; the routes are /recommend, "),
        ("POST", "/recommend", {"Content-Type": "text/plain"}, 415, "of the type application/json"),
        ("POST", "/recommend", {}, 415, "state it in the header Content-Type"),
    ],
)
def test_the_wrong_way_to_ask_is_named(clicks, method, path, headers, status, sentence):
    found, sent, answer = clicks.ask(method, path, "{}", headers)
    assert found == status
    assert sentence in json.loads(answer)["error"]
    assert ("allow" in sent) is (status == 405)


def over_a_socket(port, *parts, pause=0.0, most=1 << 20):
    """Send bytes with pauses between them; returns all that comes back before the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
        for part in parts:
            raw.sendall(part)
            time.sleep(pause)
        answer = b""
        while len(answer) < most and (some := raw.recv(1 << 16)):
            answer += some
    return answer


HEAD = b"POST /recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not(clicks):
    said = over_a_socket(clicks.port, HEAD + b"Content-Length: 99999999\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 413")
    assert b"at most 20000 bytes" in said
    chunk = b"2710\r\n" + b" " * 10_000 + b"\r\n"
    said = over_a_socket(clicks.port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", chunk, chunk, b"1\r\n \r\n")
    assert said.startswith(b"HTTP/1.1 413")


def test_who_is_too_slow_is_told_and_let_go(clicks):
    began = time.monotonic()
    body = over_a_socket(clicks.port, HEAD + b"Content-Length: 50\r\n\r\n", b'{"hist')
    head = over_a_socket(clicks.port, b"POST /recommend HTTP/1.1\r\nHo")
    nothing = over_a_socket(clicks.port)
    assert time.monotonic() - began < 8
    assert body.startswith(b"HTTP/1.1 408")
    assert b"The body did not arrive within 0.4 seconds." in body
    for answer in (head, nothing):
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"The head of the request did not arrive" in answer


def test_what_is_not_http_gets_a_sentence_too(clicks):
    for wrong in (
        b"\x16\x03\x01\x00\xa5\x01\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 70_000 + b"\r\n\r\n",
    ):
        answer = over_a_socket(clicks.port, wrong)
        assert answer.startswith(b"HTTP/1.1 400")
        assert json.loads(answer.split(b"\r\n\r\n")[1])["error"] == "This is not an HTTP/1.1 request."


def test_an_address_may_ask_only_so_often(clicks_model):
    with in_a_thread(clicks_model, Limits(rate=2.0)) as up:
        statuses = [up.ask("GET", "/openapi.json")[0] for _ in range(8)]
        status, headers, body = up.ask("GET", "/metrics")
        assert statuses[:4] == [200] * 4
        assert {*statuses[5:], status} == {429}
        assert headers["retry-after"] == "1"
        assert json.loads(body)["error"] == "More than 2 requests per second came from this address."
        assert up.ask("GET", "/health")[0] == 200
        assert up.ask("GET", "/metrics", headers={"X-Forwarded-For": "10.0.0.7"})[0] == 200  # a proxy's client


def test_more_connections_than_allowed_are_turned_away(clicks_model):
    with in_a_thread(clicks_model, Limits(connections=3)) as up:
        taken = [socket.create_connection(("127.0.0.1", up.port)) for _ in range(3)]
        time.sleep(0.2)
        said = over_a_socket(up.port)
        for each in taken:
            each.close()
        assert said.startswith(b"HTTP/1.1 503")
        assert b"Too many connections are open" in said
        time.sleep(0.2)
        assert json.loads(up.get("/health"))["status"] == "ok"


def test_health_tells_what_is_served_and_under_which_guarantee(ratings, clicks):
    about = json.loads(ratings.get("/health"))
    assert about == {
        "status": "ok", "kind": "ratings", "items": 40, "epsilon": 8.0, "delta": 1e-6, "releasable": True
    }  # fmt: skip
    assert json.loads(clicks.get("/health"))["categories"] == ["genre"]
    assert ratings.get("/") == b"<!doctype html><title>explorer</title>"
    assert ratings.ask("HEAD", "/")[2] == b""
    assert json.loads(clicks.get("/"))["routes"] == ["/recommend", "/health", "/metrics", "/openapi.json"]


def test_metrics_count_requests_by_route_and_status_and_nothing_of_what_was_asked(clicks_model):
    with in_a_thread(clicks_model, Limits()) as up:
        up.recommend(history=["item01"])
        up.recommend(history=["item02"])
        up.recommend(status=422, history=["item03", 4])
        up.ask("GET", "/items/item05")
        text = up.get("/metrics").decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines['apportion_requests_total{route="/recommend",status="200"}'] == "2"
    assert lines['apportion_requests_total{route="/recommend",status="422"}'] == "1"
    assert lines['apportion_requests_total{route="other",status="404"}'] == "1"
    assert lines['apportion_request_seconds_bucket{route="/recommend",le="+Inf"}'] == "3"
    assert lines["apportion_waiting_requests"] == "0"
    assert int(lines["process_resident_memory_bytes"]) > 10**7
    assert "item0" not in text


def test_the_openapi_document_describes_requests_and_answers(clicks, ratings, ratings_model):
    for up, history in ((clicks, ["item01"]), (ratings, [{"item": int(ratings_model.task_ids.ids[0]), "value": 3}])):
        schemas = json.loads(up.get("/openapi.json"))["components"]["schemas"]
        asked = {"history": history, "k": 3}
        jsonschema.validate(asked, schemas["Request"])
        jsonschema.validate(up.recommend(**asked), schemas["Answer"])
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**asked, "n": 1}, schemas["Request"])
    known = json.loads(clicks.get("/openapi.json"))["components"]["schemas"]["Request"]["properties"]
    assert known["categories"]["properties"]["genre"]["items"]["enum"] == ["Comedy", "Drama", "Opera", "War"]


def test_a_large_page_arrives_whole_and_who_does_not_read_it_is_dropped(clicks_model):
    page = "0123456789" * 3_000_000
    with in_a_thread(clicks_model, Limits(), page=page) as up:
        assert up.get("/").decode() == page
    with in_a_thread(clicks_model, Limits(rate=0, answer_seconds=0.5), page=page) as up:
        with socket.create_connection(("127.0.0.1", up.port), timeout=10) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(1.5)
            received = 0
            with contextlib.suppress(ConnectionResetError):
                while some := raw.recv(1 << 20):
                    received += len(some)
        assert received < len(page)
        assert up.recommend(history=["item01"])["known"] == 1
