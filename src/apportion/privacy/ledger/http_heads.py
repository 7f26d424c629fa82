"""Heads on a web server: GET and PUT of one small JSON document for each account, below one URL."""

from __future__ import annotations

import base64
import http.client
import urllib.error
import urllib.request
from dataclasses import asdict
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from apportion.errors import InputError
from apportion.privacy.ledger.chain import LedgerError
from apportion.privacy.ledger.heads import Head, HeadPlace, head_of
from apportion.privacy.ledger.kept_files import document, parsed_records

TIMEOUT_SECONDS = 5.0  # seconds; a charge waits for its head
_LONGEST = 1 << 16
_MISSING = 404


class HttpHeads(HeadPlace):
    """Heads below a URL: that of account "visits" is URL/visits.json.

    User and password in the URL are sent as basic authentication.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if not parts.hostname or parts.query or parts.fragment:
            raise InputError("Expected http(s)://host/path without a query for the head of a ledger.", argument="head")
        host = parts.netloc.rpartition("@")[2]
        self._base = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self.place = repr(self._base)
        self._headers = {"Cache-Control": "no-cache"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair).decode('ascii')}"

    def read(self, account: str) -> Head | None:
        """Send GET; None if the server says 404."""
        text = self._ask(account, "GET", "read", None)
        if text is None:
            return None
        return head_of(account, parsed_records(text, f"head of account {account!r} at {self.place}"), self.place)

    def write(self, head: Head) -> None:
        """Send PUT; anything but success is an error."""
        content = document({head.account: asdict(head)}).encode("utf-8")
        if self._ask(head.account, "PUT", "written", content) is None:
            raise self._failed(head.account, "written", "404 Not Found")

    def _ask(self, account: str, method: str, action: str, content: bytes | None) -> str | None:
        """Return the server's answer; None for 404. `action` is for messages."""
        headers = self._headers | ({} if content is None else {"Content-Type": "application/json"})
        url = f"{self._base}/{quote(account, safe='')}.json"
        request = urllib.request.Request(url, data=content, headers=headers, method=method)
        try:
            with urllib.request.build_opener(_NoRedirects).open(request, timeout=TIMEOUT_SECONDS) as answer:
                text: str = answer.read(_LONGEST).decode("utf-8")
                return text
        except urllib.error.HTTPError as error:
            with error:
                if error.code == _MISSING:
                    return None
                raise self._failed(account, action, f"{error.code} {error.reason}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._failed(account, action, _reason(error)) from error

    def _failed(self, account: str, action: str, reason: str) -> LedgerError:
        return LedgerError(f"The head of account {account!r} at {self.place} cannot be {action}: {reason}.")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: another server must never receive the password."""

    def redirect_request(self, *_: object) -> None:
        return None


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", error)
    return (getattr(cause, "strerror", None) or str(cause) or type(cause).__name__).rstrip(".")
