"""Everything a reader can do in the explorer, done in a browser: by pointer, by keys, by what is on the screen.

Each function takes a page on which the explorer is ready, and asserts what must have happened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from benchmarks.browser import wait_until

Page = Any


def chosen(page: Page) -> Any:
    """The position of the chosen item, or None."""
    return page.evaluate("explorer.map.marks.chosen")


def title(page: Page, position: int) -> str:
    """The title of the item at a place in the order of popularity."""
    return str(page.evaluate("k => explorer.data.titles[k]", position))


def middle_of_map(page: Page) -> tuple[float, float]:
    """Where the middle of the map is on the screen."""
    page.locator("#canvas").scroll_into_view_if_needed()
    box = page.locator("#canvas").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def finds_an_item(page: Page) -> None:
    """Search by title, walk the list by keys, choose by Enter."""
    wanted = title(page, 3)
    page.locator("#map-search").fill(wanted[:12].upper())
    page.keyboard.press("ArrowDown")
    assert page.locator("#map-search").get_attribute("aria-expanded") == "true"
    assert page.locator("#map-found [aria-selected=true]").count() == 1
    page.keyboard.press("Escape")
    assert page.locator("#map-found").is_hidden()
    page.locator("#map-search").fill(wanted)
    page.keyboard.press("Enter")
    assert page.locator("#item h3").inner_text() == title(page, chosen(page))
    assert wanted in page.locator("#item h3").inner_text()
    page.locator("#map-search").fill("no such item at all")
    assert "No such item" in page.locator("#map-found").inner_text()
    page.keyboard.press("Escape")


def lists_neighbours(page: Page) -> None:
    """The chosen item's neighbours come with similarities and shares of data, and lead on to their own."""
    page.evaluate("explorer.map.onChoose(0)")
    code = page.evaluate("explorer.data.codes[0]")
    expected = page.evaluate("code => explorer.neighbours(code, 10)", code)
    rows = page.locator("#item table").first.locator("tbody tr")
    assert rows.count() == len(expected)
    assert f"{expected[0][1]:.2f}" in rows.first.inner_text()
    assert "%" in rows.first.inner_text()
    name = rows.first.locator("button").inner_text()
    rows.first.locator("button").click()
    assert page.locator("#item h3").inner_text() == name


def zooms_and_pans(page: Page) -> None:
    """Buttons, dragging, the wheel and keys move the map."""

    def view() -> dict[str, float]:
        return dict(page.evaluate("({...explorer.map.view})"))

    page.locator("#zoom-whole").click()
    start = view()
    page.locator("#zoom-in").click()
    assert view()["zoom"] > start["zoom"]
    page.locator("#zoom-out").click()
    assert abs(view()["zoom"] - start["zoom"]) < 1e-9
    x, y = middle_of_map(page)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 80, y + 30, steps=4)
    page.mouse.up()
    assert view()["x"] < start["x"]
    assert view()["y"] < start["y"]
    page.locator("#canvas").focus()
    page.mouse.wheel(0, -240)
    wait_until(page, "explorer.map.view.zoom > 1.01")
    before = view()
    page.keyboard.press("ArrowRight")
    assert view()["x"] > before["x"]
    page.keyboard.press("+")
    assert view()["zoom"] > before["zoom"]
    page.keyboard.press("0")
    assert view() == start


def hovers_and_clicks(page: Page) -> None:
    """The pointer shows an item's title, and a click chooses it."""
    page.evaluate("explorer.map.show(0)")
    page.evaluate("explorer.map.draw()")
    x, y = middle_of_map(page)
    page.mouse.move(x + 1, y + 1)
    page.mouse.move(x, y)
    assert page.locator("#tip").is_visible()
    shown = page.locator("#tip").inner_text().splitlines()[0]
    page.mouse.click(x, y)
    assert title(page, chosen(page)) == shown
    page.mouse.move(2, 2)
    assert page.locator("#tip").is_hidden()


def walks_the_map_by_keys(page: Page) -> None:
    """N and P step through items by popularity; Enter chooses the one in the middle."""
    page.evaluate("explorer.map.onChoose(4)")
    page.locator("#canvas").focus()
    page.keyboard.press("n")
    assert chosen(page) == 5
    page.keyboard.press("p")
    assert chosen(page) == 4
    page.evaluate("explorer.map.marks.chosen = null")
    page.keyboard.press("Enter")
    assert chosen(page) is not None


def turns_the_table(page: Page) -> None:
    """The same items are in a table that can be paged and chosen from."""
    page.locator(".table-items summary").click()
    assert page.locator("#table-rows tr").count() == 25
    assert page.locator("#table-back").is_disabled()
    page.locator("#table-on").click()
    assert page.locator("#table-where").inner_text().startswith("Items 26 to")
    page.locator("#table-rows button").first.click()
    assert chosen(page) == 25
    page.locator(".table-items summary").click()


def picks_and_rates(page: Page) -> None:
    """Picked items give recommendations with reasons that add up; a rating moves them; clearing ends it."""
    page.locator("#taste-clear").click(force=True) if page.locator("#taste-clear").is_enabled() else None
    for position in (2, 7, 11):
        page.locator("#taste-search").fill(title(page, position))
        page.keyboard.press("Enter")
    assert page.locator("#taste-mine li").count() == 3
    best = page.locator("#taste-best li")
    assert best.count() == 20
    mine = [title(page, position) for position in (2, 7, 11)]
    assert any(name in best.first.locator(".why").inner_text() for name in mine)
    assert page.evaluate("[explorer.map.marks.mine.size, explorer.map.marks.best.size]") == [3, 20]
    if page.evaluate("explorer.data.kind") == "ratings":
        _rates(page)
    page.locator("#taste-mine button").first.click()
    assert page.locator("#taste-mine li").count() == 2
    page.locator("#taste-example").click()
    assert page.locator("#taste-mine li").count() == 5
    page.locator("#taste-clear").click()
    assert page.locator("#taste-none").is_visible()


def _rates(page: Page) -> None:
    scores = "[...document.querySelectorAll('#taste-best li')].map((each) => Number(each.dataset.score))"
    before = page.evaluate(scores)
    slider = page.locator("#taste-mine input").first
    slider.focus()
    page.keyboard.press("Home")
    assert page.locator("#taste-mine output").first.inner_text() == str(page.evaluate("explorer.data.range[0]"))
    assert page.evaluate(scores) != before


def adds_the_chosen_item(page: Page) -> None:
    """The button beside an item puts it among the reader's own."""
    page.evaluate("explorer.map.onChoose(9)")
    page.locator("#item button.primary").click()
    assert title(page, 9) in page.locator("#taste-mine").inner_text()
    page.locator("#taste-clear").click()


def follows_the_budget(page: Page) -> None:
    """Every release can be chosen by pointer and by keys, and tells its purpose and its noise."""
    releases = page.locator(".flow-release")
    assert releases.count() == page.evaluate("explorer.data.flow.length")
    last = page.evaluate("explorer.data.flow.at(-1)")
    page.locator(f".flow-release[data-name='{last['name']}'] text").click()
    told = page.locator("#flow-told").inner_text()
    assert last["purpose"] in told
    assert "standard deviation" in told
    releases.first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#flow-told h3").inner_text() == releases.first.get_attribute("data-name")


def moves_epsilon(page: Page) -> None:
    """The slider changes what an attacker can know; a button goes back to the model's own ε."""
    page.locator("#epsilon-own").click()
    own = page.locator("#attack-words").inner_text()
    assert "This is the model’s own" in own
    page.locator("#epsilon").focus()
    page.keyboard.press("Home")
    least = page.locator("#attack-words").inner_text()
    page.keyboard.press("End")
    most = page.locator("#attack-words").inner_text()
    assert len({own, least, most}) == 3
    assert page.locator("#epsilon-shown").inner_text() == "ε = 20"
    assert "ε = 20" in page.locator("#epsilon").get_attribute("aria-valuetext")
    assert page.locator("#attack-beliefs tr").count() == 3
    page.locator("#epsilon-own").click()
    assert page.locator("#attack-words").inner_text() == own


INTERACTIONS: Final[tuple[Callable[[Page], None], ...]] = (
    finds_an_item,
    lists_neighbours,
    zooms_and_pans,
    hovers_and_clicks,
    walks_the_map_by_keys,
    turns_the_table,
    picks_and_rates,
    adds_the_chosen_item,
    follows_the_budget,
    moves_epsilon,
)
