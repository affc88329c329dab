"""The room that the kernel has for the arguments and the environment of a program (execve(2), Limits).

A container with more could never start: it is refused before the strings are built.
"""

MAX_STRING_BYTES = 131_071  # of an argument or of NAME=value: MAX_ARG_STRLEN without the final NUL
MAX_SPACE_BYTES = 2 << 20  # of all strings together: a quarter of the usual stack limit of 8 MiB
_STRING_OVERHEAD_BYTES = 9  # that the kernel counts beside the text: NUL and pointer


class TooLongError(ValueError):
    """A text is longer than allowed. Has nothing of it in its own text."""


def utf8_length(text: str) -> int:
    """Return bytes of the text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class ExecSpace:
    """Counts the strings of one program, or of several that are kept together."""

    def __init__(self, largest: int = MAX_SPACE_BYTES) -> None:
        self._free = largest

    def take(self, text: str) -> None:
        """Count an argument or `NAME=value`. Raise TooLongError where the space is exceeded."""
        self._free -= utf8_length(text) + _STRING_OVERHEAD_BYTES
        if self._free < 0:
            raise TooLongError
