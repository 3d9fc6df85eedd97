"""What somebody has typed: words, and the files that they name."""

from pathlib import Path

_LONGEST = 60


def as_typed(value: object, longest: int | None = _LONGEST) -> str:
    """What was typed, so that it fits into a sentence on one line."""
    text = str(value)
    if not text:
        return "empty"
    if not text.isprintable() or text != text.strip():
        text = ascii(text)
    return text if longest is None or len(text) <= longest else f"{text[: longest - 3]}..."


def number_of(count: int, noun: str) -> str:
    """So many of something: ``1 beat``, ``2 beats``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Unreadable(ValueError):
    """There is no such text; the message says why, without its full stop."""


def read_text(path: Path) -> str:
    """The text in a file, with ``\\n`` at the ends of its lines.

    Raises
    ------
    Unreadable
        If it can't be read, or is no text.
    """
    try:
        # A device or a pipe might never end.
        if path.exists() and not path.is_file():
            raise Unreadable("it is no ordinary file")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise Unreadable("it doesn't exist") from None
    except OSError as error:
        raise Unreadable(f"it can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Unreadable("it is no text") from None
