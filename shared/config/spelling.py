"""Names as people write them: the known one closest to a misspelt one, and text that nothing can carry. Pure."""

import difflib


def closest(name: str, known: list[str]) -> str:
    """Return the known name most like this one, or "" when none is close."""
    folded = {candidate.lower(): candidate for candidate in known}
    name = name.lower()[:100]
    if name in folded:
        return folded[name]
    matches = difflib.get_close_matches(name, list(folded), n=1, cutoff=0.75)
    return folded[matches[0]] if matches else ""


def why_unusable(text: str) -> str:
    """Return why no path, name or message can carry this text; "" when it can."""
    if "\0" in text:
        return "holds a NUL byte"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds what is no UTF-8"
    return ""
