"""Text of unknown origin, as a terminal can show it. Pure."""


def plain(text: str) -> str:
    """Return the text with control characters escaped: a container may have written part of it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def is_utf8(text: str) -> bool:
    """Return whether the text can be sent as UTF-8: other bytes of a command line or a file are lone surrogates in
    it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
