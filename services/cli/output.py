"""Writes lines to standard output and standard error: a pipe that closes ends the command, as does a full disk."""

import json
import os
import sys
from typing import Any

import click


def write(line: str) -> None:
    """Write the line to standard output. Where that fails, as on a full disk, end the process with exit code 1."""
    try:
        click.echo(_encodable(line, sys.stdout.encoding))
        sys.stdout.flush()  # here, where a failure can still be reported
    except BrokenPipeError:
        raise  # `| head`: click ends the process without a message
    except OSError as error:
        click.echo(f"standard output cannot be written: {error.strerror} (write it elsewhere)", err=True)
        os._exit(1)  # the interpreter's own end would try to write it again


def write_error(line: str) -> None:
    """Write the line to standard error."""
    click.echo(_encodable(line, sys.stderr.encoding), err=True)


def dump(data: Any, form: str) -> str:
    """The data as json or yaml."""
    if form == "json":
        return json.dumps(data, indent=2)
    import yaml

    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    return text.rstrip("\n")


def _encodable(line: str, encoding: str | None) -> str:
    """The line with what the terminal's encoding lacks, and lone surrogates, as escapes."""
    used = encoding or "utf-8"
    return line.encode(used, "backslashreplace").decode(used)
