"""Writes lines to standard output and standard error. A closed pipe or a full disk ends the command."""

import json
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NoReturn, TextIO

import click


def write(line: str) -> None:
    """Write the line to standard output. Where that fails, as on a full disk, end the process with exit code 1."""
    try:
        click.echo(_encodable(line, sys.stdout.encoding))
        sys.stdout.flush()  # flushed now, while a failure can still be reported
    except OSError as error:
        refuse_output(error)


def write_bytes(data: bytes) -> None:
    """Write the bytes to standard output unchanged. Where that fails, end the process as `write` does."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        refuse_output(error)


def refuse_output(error: OSError) -> NoReturn:
    """End the process because standard output cannot be written."""
    if isinstance(error, BrokenPipeError):
        raise error  # as with `| head`; click then ends the process without a message
    click.echo(f"standard output cannot be written: {error.strerror} (write it elsewhere)", err=True)
    os._exit(1)  # a normal exit would try to write the output again


def write_error(line: str) -> None:
    """Write the line to standard error."""
    click.echo(_encodable(line, sys.stderr.encoding), err=True)


def write_if_possible(line: str) -> None:
    """Write the line to standard output, for a command that must not end half-way. Where that fails, as on a closed
    terminal or a full disk, this line and the later ones are dropped."""
    _write_or_drop(line, sys.stdout)


def write_error_if_possible(line: str) -> None:
    """Write the line to standard error as `write_if_possible` does to standard output."""
    _write_or_drop(line, sys.stderr)


def _write_or_drop(line: str, stream: TextIO | None) -> None:
    if stream is None:  # it was closed before this process started
        return
    try:
        click.echo(_encodable(line, stream.encoding), file=stream)
        stream.flush()
    except OSError:
        _drop(stream)


def drop_output() -> None:
    """Drop what standard output still holds: otherwise the end of the process would wait for a full pipe, such as one
    to a pager, or report a closed one."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):  # standard output is no file, or is closed
            _drop(sys.stdout)


def _drop(stream: TextIO) -> None:
    descriptor = stream.fileno()
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, descriptor)  # this also discards what the stream still holds
    os.close(nowhere)


def write_report(form: str, data: Any, lines: Iterable[str], out: Callable[[str], None]) -> None:
    """Write the lines for the form text, else the data in this form."""
    for line in lines if form == "text" else (dump(data, form),):
        out(line)


def dump(data: Any, form: str) -> str:
    """Return the data as json or yaml, both with the same values."""
    if form == "json":
        return json.dumps(data, indent=2)
    import yaml

    plain = json.loads(json.dumps(data))  # YAML knows no enumerations
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    return text.rstrip("\n")


def _encodable(line: str, encoding: str | None) -> str:
    """Return the line with escapes in place of lone surrogates and of what the terminal's encoding lacks."""
    used = encoding or "utf-8"
    return line.encode(used, "backslashreplace").decode(used)
