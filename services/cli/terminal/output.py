"""Writes lines to standard output and standard error: a pipe that closes ends the command, as does a full disk."""

import json
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn, TextIO

import click


def write(line: str) -> None:
    """Write the line to standard output. Where that fails, as on a full disk, end the process with exit code 1."""
    try:
        click.echo(_encodable(line, sys.stdout.encoding))
        sys.stdout.flush()  # here, where a failure can still be reported
    except OSError as error:
        refuse_output(error)


def write_bytes(data: bytes) -> None:
    """Write the bytes to standard output as they are; a failure as in `write`."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        refuse_output(error)


def refuse_output(error: OSError) -> NoReturn:
    """End the process because standard output cannot be written."""
    if isinstance(error, BrokenPipeError):
        raise error  # `| head`: click ends the process without a message
    click.echo(f"standard output cannot be written: {error.strerror} (write it elsewhere)", err=True)
    os._exit(1)  # the interpreter's own end would try to write it again


def write_error(line: str) -> None:
    """Write the line to standard error."""
    click.echo(_encodable(line, sys.stderr.encoding), err=True)


def write_if_possible(line: str) -> None:
    """Write the line to standard output, for a command that must not end half-way: where that fails, as in a terminal
    that was closed or on a full disk, this line and the later ones are dropped."""
    _write_or_drop(line, sys.stdout)


def write_error_if_possible(line: str) -> None:
    """The same for standard error."""
    _write_or_drop(line, sys.stderr)


def _write_or_drop(line: str, stream: TextIO | None) -> None:
    if stream is None:  # it was closed before the start
        return
    try:
        click.echo(_encodable(line, stream.encoding), file=stream)
        stream.flush()
    except OSError:
        _drop(stream)


def drop_output() -> None:
    """Drop what standard output still holds: the end of the process would wait for a pipe that is full, as one to a
    pager, and report one that is closed."""
    if sys.stdout is not None:
        with suppress(OSError, ValueError):  # it is no file, or closed
            _drop(sys.stdout)


def _drop(stream: TextIO) -> None:
    descriptor = stream.fileno()
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, descriptor)  # also for what the stream still holds
    os.close(nowhere)


def dump(data: Any, form: str) -> str:
    """Return the data as json or yaml, both with the same values."""
    if form == "json":
        return json.dumps(data, indent=2)
    import yaml

    plain = json.loads(json.dumps(data))  # YAML knows no enumerations
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    return text.rstrip("\n")


def _encodable(line: str, encoding: str | None) -> str:
    """Return the line with what the terminal's encoding lacks, and lone surrogates, as escapes."""
    used = encoding or "utf-8"
    return line.encode(used, "backslashreplace").decode(used)
