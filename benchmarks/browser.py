"""A real browser without a screen, for pages that run in one: Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.claim import UnavailableError

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def found_browser() -> str:
    """Return where Chromium is. If there is none, say what to install."""
    try:
        import playwright  # noqa: F401
    except ImportError:
        raise UnavailableError("Playwright is not installed; `pip install playwright` (no browser download).") from None
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None:
        raise UnavailableError("There is no Chromium on this machine; `apt-get install chromium` on Debian.")
    return path


@contextmanager
def browser() -> Iterator[Any]:
    """Yield a browser that is closed at the end."""
    path = found_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=list(_FLAGS))
        try:
            yield running
        finally:
            running.close()


def wait_until(page: Any, expression: str, seconds: float = 20.0) -> None:
    """Wait until an expression is true in the page.

    Playwright's own way needs `eval`, which the page's policy forbids.
    """
    for _ in range(int(20 * seconds)):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{expression} did not become true within {seconds:g} s.")


class Watched:
    """A page, every request it made beside its own document, and everything it said on the console.

    Args:
        running: the browser.
        file: the page's file.
        settings: of the browser context: the size of the window, the colour scheme.
    """

    def __init__(self, running: Any, file: Path, **settings: Any) -> None:
        self.requests: list[str] = []
        self.said: list[str] = []
        self._address = file.resolve().as_uri()
        self._context = running.new_context(**settings)
        self.page = self._context.new_page()
        self.page.route("**/*", self._only_the_document)
        self.page.on("request", self._note_request)
        self.page.on("websocket", lambda socket: self.requests.append(socket.url))
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.goto(self._address)
        self.page.wait_for_selector("html[data-ready]")

    @property
    def ready_after(self) -> float:
        """Seconds from the start of loading until the page could be used, as the page itself measured."""
        return int(self.page.evaluate("document.documentElement.dataset.ready")) / 1000

    def close(self) -> None:
        """Close the page and its context."""
        self._context.close()

    def _only_the_document(self, route: Any) -> None:
        if route.request.url == self._address:
            route.continue_()
        else:
            route.abort()

    def _note_request(self, request: Any) -> None:
        if request.url != self._address:
            self.requests.append(request.url)
