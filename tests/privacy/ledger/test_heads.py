"""Heads outside the ledger: written after every charge, shared by processes, in files or on a web server."""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from apportion.errors import BudgetError, InputError
from apportion.privacy import Budget, Ledger, LedgerError
from apportion.privacy.ledger import GaussianRelease, LedgerKey, heads, http_heads
from apportion.privacy.ledger.heads import FileHeads, Head, open_heads
from apportion.privacy.ledger.http_heads import HttpHeads
from benchmarks.ledger_attacks import ATTACKS, tamper

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
BUDGET = Budget(2.0, 1e-6)
FORK = multiprocessing.get_context("fork")
SMALL = GaussianRelease(0.01)


class Server(ThreadingHTTPServer):
    """Keeps what is PUT, by path; answers as it is told to."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.kept, self.asked, self.status, self.delay = {}, [], None, 0.0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/heads"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        found = self.server.kept.get(self.path)
        self.answer(404 if found is None else 200, found or b"")

    def do_PUT(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.status is None:
            self.server.kept[self.path] = content
        self.answer(204, b"")

    def answer(self, status, content):
        self.server.asked.append((self.command, self.path, self.headers.get("Authorization")))
        time.sleep(self.server.delay)
        self.send_response(self.server.status or status)
        self.send_header("Location", "/heads/visits.json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def web(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(params=["file", "file URL", "http"])
def head(request, tmp_path):
    if request.param == "http":
        return request.getfixturevalue("web").url
    path = tmp_path / "a head.json"
    return str(path) if request.param == "file" else path.as_uri()


@pytest.fixture
def key(tmp_path):
    LedgerKey.create(tmp_path / "key")
    return tmp_path / "key"


@pytest.mark.parametrize("keyed", [False, True])
def test_every_charge_leaves_its_head_and_a_chain_cut_below_it_is_refused(url, head, key, keyed, unguarded):
    with Ledger.open(url, head=head, key=key if keyed else None) as ledger:
        account = ledger.create_account("visits & more/../x", BUDGET)
        place = open_heads(head)
        assert place.read(account.name).entries == 0
        receipts = [account.charge("x", SMALL) for _ in range(3)]
        kept = place.read(account.name)
        assert (kept.entries, kept.hash, bool(kept.code)) == (3, receipts[-1].hash, keyed)
        assert account.verify().entries == 3
        unguarded("DELETE FROM apportion_entries WHERE number = 3")
        for use in ("charge", "verify"):
            anew = ledger.account(account.name)
            with pytest.raises(
                LedgerError, match=r"cut off or rolled back: its head .* is at entry 3, but the ledger ends at entry 2"
            ):
                anew.charge("x", SMALL) if use == "charge" else anew.verify()
        assert place.read(account.name) == kept


def test_a_chain_that_is_ahead_of_its_head_goes_on(url, head, monkeypatch):
    """As a crash between the entry and its head leaves it; nothing was drawn on that entry."""
    with Ledger.open(url, head=head) as ledger:
        account = ledger.create_account("visits", BUDGET)
        account.charge("x", SMALL)
        with monkeypatch.context() as patched:
            patched.setattr(heads.KeptHead, "write", lambda *_: (_ for _ in ()).throw(LedgerError("no head.")))
            with pytest.raises(LedgerError, match=r"Entry 2 was charged, but nothing may be drawn for it: no head\."):
                account.charge("crash", SMALL)
        assert open_heads(head).read("visits").entries == 1
        assert account.status().entries == 2
        anew = ledger.account("visits")
        assert anew.verify().entries == 2
        assert anew.charge("y", SMALL).number == 3
        assert open_heads(head).read("visits").entries == 3


def test_a_refused_charge_moves_no_head(url, head):
    with Ledger.open(url, head=head) as ledger:
        account = ledger.create_account("visits", BUDGET)
        before = open_heads(head).read("visits")
        with pytest.raises(BudgetError):
            account.charge("x", GaussianRelease(99.0))
        assert open_heads(head).read("visits") == before


def test_a_head_never_goes_back_when_a_slower_process_writes_later(url, head, monkeypatch):
    with Ledger.open(url, head=head) as ledger:
        slow = ledger.create_account("visits", BUDGET)
        slow.charge("x", SMALL)
        ended = slow._keep_head

        def overtaken(*given):
            ledger.account("visits").charge("by another", SMALL)
            ended(*given)

        monkeypatch.setattr(slow, "_keep_head", overtaken)
        assert slow.charge("mine", SMALL).number == 2
        assert open_heads(head).read("visits").entries == 3


@pytest.mark.parametrize("remembers", [True, False])
def test_an_entry_replaced_before_its_head_is_written_is_not_drawn_on(url, head, monkeypatch, unguarded, remembers):
    with Ledger.open(url, head=head) as ledger:
        slow = ledger.create_account("visits", BUDGET)
        slow.charge("x", SMALL)
        if not remembers:  # as if another thread had read the account before this one could remember its entry
            monkeypatch.setattr(slow._prefix, "extend", lambda *_: None)
        ended = slow._keep_head

        def attacked(*given):
            unguarded("DELETE FROM apportion_entries WHERE number = 2")
            for _ in range(2):
                ledger.account("visits").charge("by another", SMALL)
            ended(*given)

        monkeypatch.setattr(slow, "_keep_head", attacked)
        with pytest.raises(
            LedgerError, match=r"Entry 2 was charged, but nothing may be drawn .*(differ from those|another entry)"
        ):
            slow.charge("mine", SMALL)


def test_an_entry_rewritten_while_a_charge_waits_is_not_covered_up_by_its_head(url, head, monkeypatch):
    """The waiting process read the head before another entry was drawn on; its own head must not replace that one."""
    with Ledger.open(url, head=head) as ledger:
        slow = ledger.create_account("visits", BUDGET)
        for _ in range(3):
            slow.charge("x", SMALL)
        read = slow._expected_head

        def stale():
            found = read()
            monkeypatch.setattr(slow, "_expected_head", read)
            ledger.account("visits").charge("drawn on", GaussianRelease(0.1))
            tamper(url, "visits", ATTACKS["last entry made cheaper"].change)
            return found

        monkeypatch.setattr(slow, "_expected_head", stale)
        with pytest.raises(LedgerError, match=r"Entry 5 was charged, but nothing may be drawn .* was rewritten"):
            slow.charge("mine", SMALL)
        assert open_heads(head).read("visits").entries == 4
        with pytest.raises(LedgerError, match="'visits' was rewritten"):
            ledger.account("visits").charge("x", SMALL)


def charge_some(url, head, name, count, passed):
    with Ledger.open(url, head=head, create=False) as ledger:
        account = ledger.account(name)
        passed.put([account.charge("x", SMALL).number for _ in range(count)])


def test_processes_share_one_head_and_leave_the_last_one_of_each_account(url, head):
    with Ledger.open(url, head=head) as ledger:
        for name in ("a", "b"):
            ledger.create_account(name, BUDGET)
    passed = FORK.Queue()
    jobs = [FORK.Process(target=charge_some, args=(url, head, name, 6, passed)) for name in "aabb"]
    for job in jobs:
        job.start()
    numbers = [passed.get(timeout=120) for _ in jobs]
    for job in jobs:
        job.join()
    assert sorted(number for each in numbers for number in each) == sorted([*range(1, 13)] * 2)
    with Ledger.open(url, head=head) as ledger:
        for name in ("a", "b"):
            status = ledger.account(name).verify()
            assert open_heads(head).read(name) == Head(name, 12, status.head)


def test_a_missing_head_is_refused_until_a_first_one_is_written(url, tmp_path):
    with Ledger.open(url) as ledger:
        ledger.create_account("visits", BUDGET).charge("x", SMALL)
    with Ledger.open(url, head=tmp_path / "new") as ledger:
        account = ledger.account("visits")
        for use in (account.verify, account.status, lambda: account.charge("x", SMALL)):
            with pytest.raises(LedgerError, match=r"'visits' has no head at .*; `apportion ledger head` writes"):
                use()
        assert account.write_first_head().entries == 1
        assert account.charge("x", SMALL).number == 2
        with pytest.raises(LedgerError, match=r"Account 'visits' already has a head at"):
            account.write_first_head()
    with Ledger.open(url) as ledger, pytest.raises(LedgerError, match="No place was given"):
        ledger.account("visits").write_first_head()


def test_the_first_head_of_a_keyed_account_is_written_under_its_key_only(url, tmp_path, key):
    with Ledger.open(url, key=key) as ledger:
        ledger.create_account("visits", BUDGET)
    with Ledger.open(url, head=tmp_path / "new") as ledger, pytest.raises(LedgerError, match="give the ledger's key"):
        ledger.account("visits").write_first_head()
    assert not (tmp_path / "new").exists()
    with Ledger.open(url, head=tmp_path / "new", key=key) as ledger:
        ledger.account("visits").write_first_head()
        assert ledger.account("visits").charge("x", SMALL).number == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read: it is not a ledger document"),
        ("[]", "not a ledger document"),
        ('{"format": 1, "accounts": {}}', "has format 1, but this version of apportion reads format 2"),
        ('{"format": 2, "accounts": {"visits": {}}}', "unexpected fields"),
        ('{"format": 2, "accounts": {"visits": 3}}', "unexpected fields"),
    ],
)
def test_a_head_that_cannot_be_read_is_refused(tmp_path, text, words):
    (tmp_path / "head").write_text(text)
    with pytest.raises(LedgerError, match=words):
        FileHeads(tmp_path / "head").read("visits")


@pytest.mark.parametrize("field", ["entries", "hash", "account", "code"])
def test_with_a_key_a_forged_head_is_refused(tmp_path, key, field):
    with Ledger.open(tmp_path / "ledger.db", head=tmp_path / "head", key=key) as ledger:
        account = ledger.create_account("visits", BUDGET)
        account.charge("x", SMALL)
        document = json.loads((tmp_path / "head").read_text())
        wrong = {"entries": 0, "hash": account.export()["genesis"], "account": "other", "code": ""}[field]
        document["accounts"]["visits"][field] = wrong
        (tmp_path / "head").write_text(json.dumps(document))
        with pytest.raises(LedgerError, match=r"The head (stored for|of) account 'visits' at"):
            account.charge("x", SMALL)


def test_the_head_file_is_replaced_whole_and_left_as_open_as_it_was(tmp_path):
    place = FileHeads(tmp_path / "head")
    place.write(Head("a", 1, "x"))
    (tmp_path / "head").chmod(0o644)
    place.write(Head("b", 2, "y"))
    assert (tmp_path / "head").stat().st_mode & 0o777 == 0o644
    assert place.accounts() == ["a", "b"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["head", "head.lock"]
    with pytest.raises(LedgerError, match=r"head file .* cannot be written: No such file"):
        FileHeads(tmp_path / "nowhere" / "head").write(Head("a", 1, "x"))
    with pytest.raises(LedgerError, match=r"head file .* cannot be read: Is a directory"):
        FileHeads(tmp_path).read("a")


def test_a_web_server_that_fails_is_one_sentence_without_the_password(web, monkeypatch):
    named = HttpHeads(web.url.replace("127", "me:se%20cret@127"))
    named.write(Head("visits", 1, "x"))
    assert named.read("visits") == Head("visits", 1, "x")
    assert {asked[2] for asked in web.asked} == {"Basic bWU6c2UgY3JldA=="}
    web.status = 500
    with pytest.raises(LedgerError, match=r"'visits' at 'http://127\S+/heads' cannot be written: 500") as refused:
        named.write(Head("visits", 2, "y"))
    assert "cret" not in str(refused.value)
    with pytest.raises(LedgerError, match="cannot be read: 500"):
        named.read("visits")
    for status in (302, 404):
        web.status = status
        with pytest.raises(LedgerError, match=f"cannot be written: {status}"):
            named.write(Head("visits", 2, "y"))
    web.status = 302
    with pytest.raises(LedgerError, match="cannot be read: 302"):
        named.read("visits")
    web.status, web.delay = None, 1.0
    monkeypatch.setattr(http_heads, "TIMEOUT_SECONDS", 0.1)
    with pytest.raises(LedgerError, match="cannot be read: timed out"):
        named.read("visits")
    with pytest.raises(LedgerError, match="cannot be read: Connection refused"):
        HttpHeads("http://127.0.0.1:9").read("visits")


def test_a_charge_whose_head_cannot_be_kept_is_refused_and_may_be_made_again(tmp_path, web):
    with Ledger.open(tmp_path / "ledger.db", head=web.url) as ledger:
        account = ledger.create_account("visits", BUDGET)
        web.status = 503
        with pytest.raises(LedgerError, match="cannot be read: 503"):
            account.charge("x", SMALL)
        web.status = None
        assert account.charge("x", SMALL).number == 1


@pytest.mark.parametrize("wrong", ["ftp://host/x", "file://host/x", "http://", "https://host/x?y=1", "postgresql://x"])
def test_other_places_are_refused(wrong):
    with pytest.raises(InputError, match="for the head"):
        open_heads(wrong)


def test_the_environment_names_the_head(tmp_path, monkeypatch):
    assert open_heads(None) is None
    monkeypatch.setenv("APPORTION_LEDGER_HEAD", str(tmp_path / "head"))
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.create_account("visits", BUDGET)
    assert FileHeads(tmp_path / "head").accounts() == ["visits"]
