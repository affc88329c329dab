"""Text of unknown origin, as a terminal can show it. Pure."""


def plain(text: str) -> str:
    """Return the text with control characters escaped: a container may have written part of it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
