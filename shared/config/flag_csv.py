"""Comma-separated values as Go reads those of a flag (config.md 1.3): strict about quotes. Pure."""


def csv_fields(text: str) -> list[str]:
    """Return the fields of the first line, or of what quotes make one line. Raises ValueError with Go's message."""
    if not text:
        return []
    text = text.lstrip("\r\n")
    if not text:
        raise ValueError("EOF")
    fields, position, newline, closed = [], 0, -1, text + "\n"
    while True:
        if newline < position:
            newline = closed.index("\n", position)
        if text[position : position + 1] == '"':
            field, position = _quoted(text, position)
        else:
            comma = text.find(",", position, newline)
            end = newline if comma < 0 else comma
            field = text[position:end].removesuffix("\r") if text[end : end + 1] == "\n" else text[position:end]
            if '"' in field:
                column = position + field.index('"') + 1
                raise ValueError(f'parse error on line 1, column {column}: bare " in non-quoted field')
            position = end
        fields.append(field)
        if text[position : position + 1] != ",":
            return fields
        position += 1


def _quoted(text: str, position: int) -> tuple[str, int]:
    start = position + 1
    end = text.find('"', start)
    while end >= 0 and text[end + 1 : end + 2] == '"':
        end = text.find('"', end + 2)
    if end < 0 or text[end + 1 : end + 2] not in ("", ",", "\n", "\r"):
        column = (end if end >= 0 else len(text)) + 1
        raise ValueError(f'parse error on line 1, column {column}: extraneous or missing " in quoted-field')
    return text[start:end].replace('""', '"'), end + 1
