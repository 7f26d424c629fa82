"""What commands write: files that appear whole or not at all, tables for people, JSON for machines."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unicodedata import combining, east_asian_width

import click

from apportion.cli.options import OPEN
from apportion.cli.terminal import on_one_line
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.recommend.model import ItemModel

REPORT: Final = "report.html"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BYTES_OF_PAGES, _BYTES_PER_ITEM, _BYTES_PER_NUMBER, _USUAL_DIMENSION = 1 << 20, 1000, 8, 128


def write_text(path: Path, text: str) -> None:
    """Write a file to a temporary place, then move it."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file to a temporary place, then move it."""
    with staged(path) as place:
        place.write_bytes(content)


@contextmanager
def staged(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write to; move it into place if all went well, otherwise remove it."""
    refuse_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_model(
    model: ItemModel,
    target: Path,
    titles: Mapping[int | str, str] | None,
    selection: Mapping[str, Any] | None = None,
) -> None:
    """Put a model, its privacy card and its page in place together, replacing an older model.

    The page is made from the files that were written, so it can hold nothing else. If private selection chose the
    settings, the page is that of the card.

    Args:
        model: a private model.
        target: the folder.
        titles: names of items, for the page.
        selection: what private selection cost, if it chose the settings.
    """
    from apportion.recommend import load, save
    from apportion.recommend.storage import CARD
    from apportion.report import public_page
    from apportion.report.card import card_json, card_page, privacy_card

    refuse_unless_writable_model(target)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        save(model, staging / "new")
        stored = load(staging / "new")
        assert stored.statement is not None
        card = privacy_card(stored.statement, selection)
        (staging / "new" / CARD).write_text(card_json(card), encoding="utf-8")
        page = public_page(stored, titles=titles) if selection is None else card_page(card)
        (staging / "new" / REPORT).write_text(page, encoding="utf-8")
        for file in (staging / "new").iterdir():
            file.chmod(0o644)
        _swap(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def room_for_model(target: Path, n_items: int, dimension: int | None) -> Iterator[None]:
    """Hold the space that a model will take where it will be written: a full disk is found before any charge."""
    n_bytes = _BYTES_OF_PAGES + n_items * (_BYTES_PER_ITEM + _BYTES_PER_NUMBER * (dimension or _USUAL_DIMENSION))
    with tempfile.NamedTemporaryFile(prefix=f".{target.name}-", dir=target.parent) as held:
        try:
            os.posix_fallocate(held.fileno(), 0, n_bytes)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            problem = (
                f"There is no room for the model at {str(target)!r}, about {n_bytes / 1e6:.0f} MB; nothing was spent."
            )
            raise InputError(problem, argument=None) from None
        yield


def version_of(target: Path) -> tuple[int, int] | None:
    """Return what tells one model at a place from a later one there; None if there is none."""
    try:
        found = target.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def write_paid_model(
    model: ItemModel,
    target: Path,
    titles: Mapping[int | str, str] | None,
    before: tuple[int, int] | None,
    selection: Mapping[str, Any] | None = None,
) -> None:
    """Write a model. If that fails, write it elsewhere, because a new fit would spend its budget again.

    Args:
        model: a private model.
        target: the folder.
        titles: names of items, for the page.
        before: the version of the target when the fit began; a model that another run wrote since is kept.
        selection: see `write_model`.
    """
    try:
        if version_of(target) != before:
            raise OSError(errno.EEXIST, "another run wrote there meanwhile")
        write_model(model, target, titles, selection)
    except OSError as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="apportion-")) / target.name
        write_model(model, elsewhere, titles, selection)
        raise InputError(
            f"The model could not be written to {str(target)!r} ({error.strerror or error}). It was written to "
            f"{str(elsewhere)!r} instead: move it, because a second fit would spend the budget again.",
            argument=None,
        ) from None


def _swap(staging: Path, target: Path) -> None:
    """Move the new folder into place; if that fails, restore the old one."""
    if target.exists():
        target.rename(staging / "old")
    try:
        (staging / "new").rename(target)
    except BaseException:
        if (staging / "old").exists():
            (staging / "old").rename(target)
        raise


def refuse_unless_writable_model(target: Path) -> None:
    """Refuse, before any work is done, a target that holds something else or cannot be written."""
    from apportion.recommend.storage import refuse_unless_model

    refuse_unless_model(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent):
        pass  # a folder can be made there, so the model can be put there later


def refuse_folder(path: Path) -> None:
    """Refuse a file name that belongs to a folder, or to a file that the command was given to read."""
    if path.is_dir():
        raise InputError(f"Cannot write the file {str(path)!r}: it is a folder.", argument=None)
    context = click.get_current_context(silent=True)
    if context is not None and path.exists() and any(_holds(each, path) for each in _arguments_of(context)):
        problem = f"Cannot write the file {str(path)!r}: the command reads it, or a model consists of it."
        raise InputError(problem, argument=None)


def _arguments_of(context: click.Context) -> Iterator[Path]:
    """Yield the files and folders that a command was given as arguments, not as options."""
    for parameter in context.command.params:
        if isinstance(parameter, click.Argument):
            given = context.params.get(parameter.name or "")
            for each in given if isinstance(given, tuple) else (given,):
                if isinstance(each, Path) and each.exists():
                    yield each


def _holds(given: Path, path: Path) -> bool:
    """Whether a path is a given file, or belongs to a given model."""
    if given.is_dir():
        return (given / "model.json").is_file() and path.resolve().parent == given.resolve()
    return path.samefile(given)


def say_page(page: Path, *, what: str = "Page", quiet: bool = False, err: bool = False) -> None:
    """Print where a page is and how to open it; with `--open`, open it.

    Args:
        page: the page.
        what: what it is.
        quiet: whether stdout is reserved for other output.
        err: whether to print on stderr.
    """
    address = page.resolve().as_uri()
    if not quiet:
        click.echo(f"{what}: {page}\nOpen it in a browser: {address}", err=err)
    if click.get_current_context().meta.get(OPEN) and not webbrowser.open(address):
        click.echo(f"No browser could be opened; open {address} yourself.", err=True)


def refuse_to_open_nothing(page: Path | None) -> None:
    """Refuse `--open` where no page is asked for."""
    if page is None and click.get_current_context().meta.get(OPEN):
        raise click.UsageError("--open opens the page that --page FILE.html names; there is none.")


def print_json(content: Any) -> None:
    """Print one JSON document on stdout; numbers that JSON does not have become null."""
    click.echo(json.dumps(_plain(content), indent=2, ensure_ascii=False, allow_nan=False))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format columns of text, the first aligned left and the others right."""
    header, rows = [on_one_line(cell) for cell in header], [[on_one_line(cell) for cell in row] for row in rows]
    widths = [max(_places(row[k]) for row in (header, *rows)) for k in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            _filled(cell, width, left=k == 0) for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _filled(cell: str, width: int, *, left: bool) -> str:
    spaces = " " * (width - _places(cell))
    return cell + spaces if left else spaces + cell


def _places(text: str) -> int:
    """Return how many places a text takes on a terminal: two for a Chinese character, none for an accent of its own.

    >>> _places("Süd"), _places("急诊"), _places("Su\u0308d")
    (3, 4, 3)
    """
    if text.isascii():
        return len(text)
    return sum(0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def _plain(content: Any) -> Any:
    if isinstance(content, dict):
        return {str(name): _plain(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    if hasattr(content, "item"):
        content = content.item()
    if isinstance(content, float) and not (-float("inf") < content < float("inf")):
        return None
    return str(content) if isinstance(content, Path) else content
