"""Letters over HTTPS: the sum is that of all rows, and what attackers send is refused while clients go on."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apportion import linalg
from apportion.carrier.client import Letterbox, client_tls
from apportion.carrier.server import server_tls
from apportion.carrier.tickets import Ticket, federation_of
from apportion.errors import ApportionError, InputError
from apportion.transport import letters, question
from carrier_cases import LIMITS, Office, clients_at_work, until_closed
from federated_cases import identity, public_of
from loopback_federation import outer_address
from transport_cases import POPULARITY, Federation, asked, one_pass

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
ROUTES = ("/letter", "/answer")


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    folder = tmp_path_factory.mktemp("carrier")
    office = Office(Federation(folder), folder)
    with office.post:
        yield office


# The right sum, whatever happens on the way.


def test_the_sum_over_https_is_that_of_all_rows(tmp_path):
    federation = Federation(tmp_path)
    office = Office(federation, tmp_path, host=outer_address() or "127.0.0.1")
    with office.post as post, clients_at_work(office, federation.desks):
        assert post.gathered() == 5
        total, clients, _ = one_pass(federation, asked(POPULARITY), post)
    understood = question.understood(asked(POPULARITY), federation.conditions)
    assert sorted(clients) == [0, 1, 2, 3, 4]
    assert np.array_equal(total, question.sums_over(understood.question, federation.data.as_users)._flat())


def test_a_client_whose_answers_get_lost_sends_the_same_ones_again(tmp_path, monkeypatch):
    """A second answer by the desk would end the pass: a letter is answered once, and its answer is kept."""
    federation, lost = Federation(tmp_path), []
    office = Office(federation, tmp_path)
    monkeypatch.setattr("apportion.carrier.client._PAUSES", (0.0,))
    give = Letterbox.give

    def losing(box, number, answer):
        if (box.position, number) not in lost:
            lost.append((box.position, number))
            raise ConnectionResetError
        give(box, number, answer)

    monkeypatch.setattr(Letterbox, "give", losing)
    with office.post as post, clients_at_work(office, federation.desks):
        post.gathered()
        _, clients, _ = one_pass(federation, asked(POPULARITY), post)
    assert sorted(clients) == [0, 1, 2, 3, 4]
    assert len(lost) == 25


def test_too_few_clients_are_refused_and_the_server_stops_at_once(tmp_path):
    federation = Federation(tmp_path)
    office = Office(federation, tmp_path, replace(LIMITS, wait=20.0), timeout=0.3)
    box = office.box(0)
    waiting = threading.Thread(target=box.letter)
    began = time.monotonic()
    with office.post as post:
        waiting.start()
        while not post._counter.present:
            time.sleep(0.01)
        with pytest.raises(InputError, match="at least 4 clients of the roster to be connected, got 1"):
            post.gathered()
    waiting.join(5)
    assert not waiting.is_alive()
    assert time.monotonic() - began < 5


# 1. Bodies that are too large.


@pytest.mark.parametrize("body", [b"x" * 1000, iter([b"x" * 50] * 20)], ids=["length", "chunks"])
def test_an_answer_that_is_too_large_is_refused_before_it_is_kept(office, body):
    number, came, thread = office.open_letter(0)
    ticket = office.ticket(0, "/answer", b"x" * 1000, number)
    assert office.asked("/answer", ticket, body)[0] == 413
    good = office.ticket(0, "/answer", b"good", number)
    assert office.asked("/answer", good, b"good")[0] == 204
    thread.join()
    assert came == {0: b"good"}


def test_no_body_is_read_without_a_ticket(office):
    with office.raw() as stranger:
        stranger.sendall(b"POST /answer HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n")
        assert stranger.recv(1000).startswith(b"HTTP/1.1 401")
        assert until_closed(stranger) < LIMITS.head


# 2. Connections that are slow.


def test_whoever_says_nothing_or_little_is_shown_out_in_time(office, tmp_path):
    shorter = Office(office.federation, tmp_path, replace(LIMITS, handshake=0.3))
    with shorter.post, shorter.raw(tls=False) as slow:
        assert until_closed(slow) < LIMITS.handshake
    shorter = Office(office.federation, tmp_path, replace(LIMITS, head=0.3))
    with shorter.post:
        for said in (b"", b"POST /letter HT"):
            with shorter.raw() as slow:
                slow.sendall(said)
                assert until_closed(slow) < LIMITS.head


def test_a_body_that_trickles_is_ended_and_the_letter_stays_open(office, monkeypatch):
    monkeypatch.setattr(office.post._counter, "_limits", replace(LIMITS, body=0.5))
    number, came, thread = office.open_letter(1)
    head = "POST /answer HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nAuthorization: "
    with office.raw() as slow:
        slow.sendall((head + office.ticket(1, "/answer", b"good", number) + "\r\n\r\ngo").encode())
        assert b" 408 " in slow.recv(1000)
    assert office.asked("/answer", office.ticket(1, "/answer", b"good", number), b"good")[0] == 204
    thread.join()
    assert came == {1: b"good"}


def test_a_newer_try_to_answer_ends_one_that_hangs(office):
    """As after a connection that broke without a word: the client need not wait until the server notices."""
    number, came, thread = office.open_letter(1)
    head = "POST /answer HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nAuthorization: "
    with office.raw() as hanging:
        hanging.sendall((head + office.ticket(1, "/answer", b"good", number) + "\r\n\r\ngo").encode())
        time.sleep(0.1)
        assert office.asked("/answer", office.ticket(1, "/answer", b"good", number), b"good")[0] == 204
        assert until_closed(hanging) < LIMITS.head
    thread.join()
    assert came == {1: b"good"}


# 3. Requests that are sent again.


def test_a_ticket_is_good_once(office):
    for route in ROUTES:
        ticket = office.ticket(0, route)
        assert [office.asked(route, ticket)[0] for _ in range(2)] == [204 if route == "/letter" else 409, 401]


def test_an_answer_is_taken_once_and_not_changed_afterwards(office):
    number, came, thread = office.open_letter(2)
    tickets = [office.ticket(2, "/answer", body, number) for body in (b"first", b"second")]
    assert office.asked("/answer", tickets[0], b"first")[0] == 204
    assert office.asked("/answer", tickets[1], b"second")[0] == 409
    thread.join()
    assert came == {2: b"first"}


# 4. and 5. Clients that are not who they say.


def test_a_strangers_key_and_a_changed_ticket_are_refused(office):
    good = Ticket(0, office.session, time.time_ns(), 0, bytes(32)).signed("/letter", *_signing(office, 0))
    changed = [good[:-1] + ("0" if good[-1] != "0" else "1"), good[:-2], good + "00", "", "Apportion zz", "Basic x"]
    assert {office.asked("/letter", each)[0] for each in changed} == {401}
    assert office.asked("/letter", office.ticket(0, "/letter", secret=identity()))[0] == 401
    assert office.asked("/letter", office.ticket(0, "/letter", secret=office.federation.secrets[1]))[0] == 401
    beyond = Ticket(5, office.session, time.time_ns(), 0, bytes(32)).signed("/letter", *_signing(office, 0))
    assert office.asked("/letter", beyond)[0] == 401
    assert office.asked("/letter", good)[0] == 204


def test_a_ticket_is_for_one_route_one_letter_and_one_body(office):
    number, came, thread = office.open_letter(3)
    assert office.asked("/answer", office.ticket(3, "/letter", b"good", number), b"good")[0] == 401
    assert office.asked("/answer", office.ticket(3, "/answer", b"good", number), b"evil")[0] == 400
    for letter in (0, number - 1, number + 1, 2**64 - 1):
        assert office.asked("/answer", office.ticket(3, "/answer", b"good", letter), b"good")[0] == 409
    assert office.asked("/answer", office.ticket(4, "/answer", b"good", number), b"good")[0] == 409  # of another client
    assert office.asked("/answer", office.ticket(3, "/answer", b"good", number), b"good")[0] == 204
    thread.join()
    assert came == {3: b"good"}


def test_a_client_gets_its_own_letters_alone(office):
    number, came, thread = office.open_letter(0, b"for the first")
    assert office.asked("/letter", office.ticket(1, "/letter"))[0] == 204
    assert office.asked("/answer", office.ticket(0, "/answer", b"", number))[0] == 204
    thread.join()
    assert came == {0: b""}


def test_a_client_with_a_key_that_is_not_in_the_roster_says_so(office):
    secrets = [identity() for _ in range(5)]
    others = replace(office.federation.conditions, roster=tuple(map(public_of, secrets)))
    box = Letterbox(office.address, client_tls(office.root), others, secrets[0])
    with closing(box), pytest.raises(ApportionError, match="does not take this client's key"):
        box.letter()
    with pytest.raises(InputError, match="a roster with this client's own key"):
        Letterbox(office.address, client_tls(office.root), others, office.federation.secrets[0])


# 6. Other paths, methods and headers.


@pytest.mark.parametrize(
    "route",
    ["/", "/letter/", "//letter", "/letter?x=1", "/%6cetter", "/../letter", "/LETTER", "/letter%00", "/metrics"],
)
def test_other_paths_are_nothing(office, route):
    assert office.asked(route, office.ticket(0, "/letter"))[0] == 404


def test_other_methods_and_doubled_headers_are_refused(office):
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert office.asked("/letter", office.ticket(0, "/letter"), method=method)[0] == 405
    with office.raw() as stranger:
        stranger.sendall(b"POST /letter HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n")
        assert stranger.recv(1000).startswith(b"HTTP/1.1 400")


def test_nothing_that_a_stranger_gets_says_more_than_the_session(office):
    status, headers, body = office.asked("/letter")
    assert (status, body, headers["apportion-session"]) == (401, b"", office.session.hex())
    assert "server" not in headers


# 7. Two servers.


def test_a_ticket_for_one_server_is_not_good_at_another_and_a_client_finds_the_new_session(office, tmp_path):
    old = office.session
    with closing(office.box(0)) as box:
        assert box.letter() is None
        seen = office.ticket(0, "/letter")
        office.post._counter._office.session = os.urandom(32)  # as after a restart
        assert office.asked("/letter", seen)[0] == 401
        assert box.letter() is None
        assert box._session == office.session != old


def test_a_server_cannot_use_its_clients_tickets_at_another_federation(office):
    """A client of two federations, with one key: the server of one hands out the session of the other as its own."""
    told = replace(office.federation.conditions, server=public_of(identity()))
    ticket = office.ticket(0, "/letter", federation=federation_of(told))
    assert office.asked("/letter", ticket)[0] == 401
    assert office.asked("/letter", office.ticket(0, "/letter"))[0] == 204


def test_a_server_with_another_certificate_or_another_name_gets_nothing(office, tmp_path):
    other = Office(office.federation, tmp_path, host="127.0.0.2")  # which is not in its certificate
    with other.post:
        for root in (office.root, other.root):
            with pytest.raises(ssl.SSLCertVerificationError):
                Letterbox(
                    other.address, client_tls(root), office.federation.conditions, office.federation.secrets[0]
                ).letter()
        assert other.post._counter.present == 0


def test_a_servers_own_certificate_can_be_named_instead_of_an_authoritys(office):
    held = office.federation
    box = Letterbox(office.address, client_tls(office.certificate), held.conditions, held.secrets[0])
    with closing(box):
        assert box.letter() is None


# 8. A pass that is over.


def test_an_answer_after_the_time_is_refused(tmp_path):
    office = Office(Federation(tmp_path), tmp_path, timeout=0.5)
    with office.post:
        number, came, thread = office.open_letter(0)
        thread.join()
        assert came == {}
        assert office.asked("/answer", office.ticket(0, "/answer", b"then", number), b"late")[0] == 409
        assert office.asked("/letter", office.ticket(0, "/letter"))[0] == 204


def test_an_answer_that_ends_after_its_time_does_not_touch_the_next_letter(office):
    with office.raw() as slow:
        number, came, thread = office.open_letter(0)
        head = "POST /answer HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nAuthorization: "
        slow.sendall((head + office.ticket(0, "/answer", b"then", number) + "\r\n\r\nth").encode())
        office.expire(0)
        thread.join()
        later, then, thread = office.open_letter(0)
        slow.sendall(b"en")
        assert slow.recv(1000).startswith(b"HTTP/1.1 409")
        assert office.asked("/answer", office.ticket(0, "/answer", b"good", later), b"good")[0] == 204
        thread.join()
    assert (came, then) == ({}, {0: b"good"})


def test_a_carrier_that_delivers_the_opening_of_a_pass_again_gets_a_refusal(tmp_path):
    federation = Federation(tmp_path)
    opening = federation.opening(asked(POPULARITY))
    assert federation.desks[0].answered(opening) != letters.REFUSAL
    assert federation.desks[0].answered(opening) == letters.REFUSAL


# 9. What is no TLS, or an old one.


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\xff" * 600, os.urandom(300)])
def test_what_is_no_tls_ends_the_connection(office, said):
    with office.raw(tls=False) as stranger:
        stranger.sendall(said)
        assert until_closed(stranger) < LIMITS.handshake
    assert office.asked("/letter", office.ticket(0, "/letter"))[0] == 204


def test_tls_before_1_3_is_refused(office):
    old = client_tls(office.root)
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    plain = socket.create_connection((office.host, office.port), timeout=5)
    with pytest.raises(ssl.SSLError), old.wrap_socket(plain, server_hostname=office.host):
        pass


# 10. Floods.


def test_one_address_cannot_take_all_connections(office):
    """Of silent connections from one address, the oldest are closed beyond its limit."""
    inside = office.post._listener._inside
    silent = [office.raw(tls=False) for _ in range(3 * LIMITS.each)]
    assert {until_closed(each) < LIMITS.handshake for each in silent[: -LIMITS.each]} == {True}
    assert len(inside) <= LIMITS.each < LIMITS.connections
    for each in silent:
        each.close()
    while inside:
        time.sleep(0.01)
    assert office.asked("/letter", office.ticket(0, "/letter"))[0] == 204


class FullOnce:
    """A socket that once has no file descriptor for a connection."""

    def __init__(self, at):
        self.at, self.failed = at, False

    def accept(self):
        if not self.failed:
            self.failed = True
            raise OSError(24, "Too many open files")
        return self.at.accept()

    def __getattr__(self, name):
        return getattr(self.at, name)


def test_a_server_without_file_descriptors_goes_on_when_there_are_some(tmp_path):
    office = Office(Federation(tmp_path), tmp_path)
    office.post._at = FullOnce(office.post._at)
    with office.post:
        assert office.asked("/letter", office.ticket(0, "/letter"))[0] == 204
        assert office.post._at.failed


@pytest.mark.parametrize("rates", [{"rate": 0.01}, {"client_rate": 0.01}], ids=str)
def test_requests_beyond_the_rate_of_a_stranger_or_a_client_are_refused(office, tmp_path, rates):
    slower = Office(office.federation, tmp_path, replace(LIMITS, **rates))
    with slower.post:
        tickets = [None if "rate" in rates else slower.ticket(0, "/letter") for _ in range(2)]
        answers = [slower.asked("/letter", each) for each in tickets]
        assert [status for status, _, _ in answers] == [401 if "rate" in rates else 204, 429]
        assert answers[1][1]["retry-after"] == "100"
        assert slower.asked("/letter", slower.ticket(1, "/letter"))[0] == 204


def test_a_newer_request_for_letters_ends_an_older_one(tmp_path):
    office = Office(Federation(tmp_path), tmp_path, replace(LIMITS, wait=20.0))
    with office.post:
        older = threading.Thread(target=office.asked, args=("/letter", office.ticket(0, "/letter")))
        older.start()
        while not office.post._counter.present:
            time.sleep(0.01)
        newer = threading.Thread(target=office.asked, args=("/letter", office.ticket(0, "/letter")))
        newer.start()
        older.join(3)
        assert not older.is_alive()
        assert newer.is_alive()
    newer.join(3)


# Settings that make no sense.


@pytest.mark.parametrize("address", ["example.org", "example.org:", ":9443", "a@b:1", "x:99999", "http://x:1", "x:1/y"])
def test_an_address_that_is_none_is_refused(office, address):
    with pytest.raises(InputError, match="Expected the address of a server as HOST:PORT"):
        Letterbox(address, client_tls(office.root), office.federation.conditions, office.federation.secrets[0])


def test_files_that_are_no_certificates_are_refused(office, tmp_path):
    (tmp_path / "x.pem").write_text("x")
    with pytest.raises(InputError, match=r"Expected certificates \(PEM\) in x\.pem"):
        client_tls(tmp_path / "x.pem")
    with pytest.raises(InputError, match="Expected a certificate and its private key"):
        server_tls(office.certificate, tmp_path / "x.pem")


def _signing(office, position):
    held = office.federation
    return federation_of(held.conditions), Ed25519PrivateKey.from_private_bytes(held.secrets[position])
