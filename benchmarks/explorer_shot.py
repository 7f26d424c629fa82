"""The README's shot of the explorer: `python -m benchmarks.explorer_shot demo/explorer.html`, after `make demo`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.browser import browser

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "explorer.png"
_SIZE = {"width": 1280, "height": 820}


def shoot(page: Path, target: Path = PICTURE) -> None:
    """Open the page, choose an item on the map, and store what is seen."""
    with browser() as running:
        tab = running.new_page(viewport=_SIZE, device_scale_factor=1)
        tab.goto(page.resolve().as_uri())
        search = tab.get_by_placeholder("Find an item")
        search.wait_for()
        search.scroll_into_view_if_needed()
        search.fill("item 734")
        search.press("Enter")
        tab.get_by_role("heading", name="The map of items").evaluate("heading => heading.scrollIntoView()")
        tab.wait_for_timeout(1000)
        target.write_bytes(tab.screenshot(type="png"))


if __name__ == "__main__":
    shoot(Path(sys.argv[1]))
