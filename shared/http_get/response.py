"""Parses the head of an HTTP/1 answer: status, headers, and the framing of its body. Pure text."""

import re

from msgspec import Struct

_STATUS = re.compile(r"HTTP/1\.\d ([0-9]{3})(?: .*)?")


class MalformedAnswerError(ValueError):
    """The received bytes are not an HTTP/1 answer; the text is Go's."""


class ResponseHead(Struct, frozen=True):
    """Status and headers; names in lower case, of a repeated header the first counts."""

    status: int
    headers: dict[str, str]

    @property
    def informational(self) -> bool:
        """Whether another head follows."""
        return 100 <= self.status < 200 and self.status != 101

    @property
    def chunked(self) -> bool:
        """Whether the body has chunked transfer coding."""
        return self.headers.get("transfer-encoding", "").lower().endswith("chunked")

    @property
    def length(self) -> int | None:
        """Return the length of the body in bytes, None = up to the end of the connection, or chunked. Raises
        MalformedAnswerError."""
        if self.status in (101, 204, 304):
            return 0
        text = self.headers.get("content-length")
        if text is None or self.chunked:
            return None
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            raise MalformedAnswerError(f'bad Content-Length "{text[:100]}"')
        return int(text)


def parse_head(head: bytes) -> ResponseHead:
    """Parse a head (bytes up to the empty line, included or not). Raises MalformedAnswerError."""
    first, *lines = head.decode("latin-1").replace("\r\n", "\n").rstrip("\n").split("\n")
    if not (match := _STATUS.fullmatch(first)):
        shown = first[:100].encode("unicode_escape").decode("ascii")
        raise MalformedAnswerError(f'net/http: HTTP/1.x transport connection broken: malformed HTTP response "{shown}"')
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise MalformedAnswerError("net/http: HTTP/1.x transport connection broken: malformed MIME header line")
        headers.setdefault(name.strip().lower(), value.strip())
    return ResponseHead(int(match[1]), headers)


def chunk_size(line: bytes) -> int:
    """Return the size in bytes from the line before a chunk; extensions are ignored. Raises MalformedAnswerError."""
    text = line.split(b";")[0].strip()
    try:
        if not text or len(text) > 16 or text[:1] in b"+-":
            raise ValueError
        return int(text, 16)
    except ValueError:
        raise MalformedAnswerError("invalid byte in chunk length") from None
