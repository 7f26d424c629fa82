"""Strangers who flood the port, and servers that lead their clients astray: clients with good tickets go on."""

from __future__ import annotations

import http.client
import resource
import socket
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from email.message import Message

import pytest

from apportion import linalg
from apportion.carrier import answer_letters
from apportion.carrier.limits import CarrierLimits, network_of
from apportion.errors import InputError
from carrier_cases import LIMITS, Office
from transport_cases import Federation

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    folder = tmp_path_factory.mktemp("floods")
    office = Office(Federation(folder), folder)
    with office.post:
        yield office


@pytest.fixture
def box(office):
    with closing(office.box(0)) as box:
        yield box


def silent(office, address):
    """A connection from an address of this machine that says nothing, not even TLS."""
    return socket.create_connection((office.host, office.port), timeout=5, source_address=(address, 0))


# Strangers.


@pytest.mark.parametrize("addresses", [["127.0.0.2", "127.0.0.3"], ["127.0.0.1"]], ids=["two", "own"])
def test_silent_strangers_do_not_keep_a_client_out(office, addresses):
    with ExitStack() as held:
        for _ in range(LIMITS.connections):
            for address in addresses:
                held.enter_context(silent(office, address))
        for _ in range(3):
            assert office.asked("/letter", office.ticket(0, "/letter"))[0] == 204


def test_a_connection_with_a_good_ticket_is_not_shown_out_for_strangers(office, box):
    assert box.letter() is None
    connection = box._server.sock
    with ExitStack() as held:
        for _ in range(3 * LIMITS.each):
            held.enter_context(silent(office, "127.0.0.1"))
        assert box.letter() is None
        assert box._server.sock is connection


def test_a_newcomer_takes_the_place_of_the_address_with_most_strangers(office):
    with ExitStack() as held:
        quiet = held.enter_context(silent(office, "127.0.0.4"))
        for address in ("127.0.0.2", "127.0.0.3") * LIMITS.each:
            held.enter_context(silent(office, address))
        assert office.asked("/letter", office.ticket(0, "/letter"))[0] == 204
        quiet.settimeout(0.1)
        with pytest.raises(TimeoutError):  # it is older than all others and still there
            quiet.recv(1)


def test_one_connection_of_a_client_is_kept_however_many_it_opens(office):
    head = "POST /letter HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nAuthorization: "
    with ExitStack() as held:
        for _ in range(3):
            connection = held.enter_context(office.raw())
            connection.sendall(f"{head}{office.ticket(0, '/letter')}\r\n\r\n".encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 204")
        assert list(office.post._listener._kept) == [0]


def test_addresses_of_one_ipv6_network_count_as_one():
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") != network_of("10.0.0.2")


def test_a_stranger_cannot_name_another_address_nor_use_up_the_rate_of_clients(office, tmp_path):
    slower = Office(office.federation, tmp_path, replace(LIMITS, rate=0.01))
    with slower.post:
        forwarded = [{"x-forwarded-for": f"10.0.0.{each}"} for each in range(3)]
        assert [slower.asked("/letter", **each)[0] for each in forwarded] == [401, 429, 429]
        assert slower.asked("/letter", slower.ticket(0, "/letter"))[0] == 204


# Slow lines, and few files.


def test_a_slow_line_has_the_time_of_a_body_to_read_its_answer(office):
    assert office.post._listener._settings.timeout_keep_alive == LIMITS.body


def test_limits_raise_the_number_of_files_or_refuse_to_start(monkeypatch):
    allowed = [(200, 1000)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: allowed[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: allowed.append(limits))
    assert CarrierLimits.of(50, 10.0).connections == 328
    assert allowed[1:] == [(456, 1000)]
    with pytest.raises(InputError, match=r"Expected at least 2304 files .* got 1000\."):
        CarrierLimits.of(512, 10.0)


# A client, and a server that leads it astray.


def test_a_client_keeps_its_connection_and_opens_another_when_it_was_closed(office, box):
    assert box.letter() is None
    connection = box._server.sock
    assert box.letter() is None
    assert box._server.sock is connection
    visits = list(office.post._listener._state.connections)
    office.post._loop.call_soon_threadsafe(lambda: [each.transport.abort() for each in visits])
    while office.post._listener._inside:
        time.sleep(0.01)
    assert box.letter() is None
    assert box._server.sock is not connection


def test_a_client_whose_clock_has_gone_back_is_taken_in(office, box):
    assert box.letter() is None
    with closing(office.box(0)) as again:
        again._count -= 10**12
        assert again.letter() is None


@pytest.mark.parametrize("number", ["18446744073709551616", "99999999999999999999", "-1", "", "x"])
def test_a_letter_whose_number_no_ticket_can_hold_is_refused(box, monkeypatch, number):
    _answering(monkeypatch, box, 200, {"apportion-letter": number})
    with pytest.raises(http.client.HTTPException, match="status 200"):
        box.letter()


def test_a_client_goes_on_after_refusals_and_waits_between_empty_answers(office, box, monkeypatch, caplog):
    monkeypatch.setattr("apportion.carrier.client._PAUSES", (0.0,))
    _answering(monkeypatch, box, 401, {"apportion-session": "00" * 32, "apportion-count": "9" * 20})
    answer_letters(office.federation.desks[0], box, iter([True, True, False]).__next__)
    assert caplog.text.count("does not take this client's key") == 2
    _answering(monkeypatch, box, 204, {})
    began = time.monotonic()
    answer_letters(office.federation.desks[0], box, iter([True, True, False]).__next__)
    assert time.monotonic() - began > 0.15


def test_what_a_server_says_is_logged_in_one_line(office, box, monkeypatch, caplog):
    monkeypatch.setattr("apportion.carrier.client._PAUSES", (0.0,))
    monkeypatch.setattr(box, "_posted", lambda *_: (_ for _ in ()).throw(http.client.BadStatusLine("\nx\x1b[2J")))
    answer_letters(office.federation.desks[0], box, iter([True, False]).__next__)
    assert r"'\nx\x1b[2J'" in caplog.text


def _answering(monkeypatch, box, status, headers):
    """Make the server of a box answer so."""
    held = Message()
    for name, value in headers.items():
        held[name] = value
    monkeypatch.setattr(box, "_posted", lambda *_: (status, held, b""))
