"""Reads the variables and flags with which systemd starts a kubelet's unit. They, and not the shell of this command,
decide which directories the agent has."""

import glob
import os

from services.cli.systemd.expansion import expand_words, read_assignments, variables_of
from services.cli.systemd.unit import EnvironmentFile, ServiceUnit
from shared.agent.places import PLACE_VARIABLES
from shared.errors import OperatorError
from shared.text.plain_text import is_utf8

_MAX_FILE_BYTES = 1 << 20  # of an environment file; systemd reads longer ones


def unit_variables(unit: ServiceUnit) -> dict[str, str]:
    """Return the variables of Environment=, the environment files and UnsetEnvironment=, by name. Raises OperatorError
    for a file without which systemd does not start the unit, and for one that is too long or that this user may not
    read.
    """
    texts = [text for file in unit.environment_files for text in _texts(file, unit.name)]
    return variables_of(unit.environment, texts, unit.unset)


def unit_flags(unit: ServiceUnit) -> list[str]:
    """Return the words after the unit's program, as the program receives them. Raises OperatorError."""
    return expand_words(unit.words, unit_variables(unit))


def use_places_of(unit: ServiceUnit) -> None:
    """Set the variables of this process that decide where an agent has its directories, as the unit has them. Raises
    OperatorError."""
    variables = unit_variables(unit)
    for name in PLACE_VARIABLES:
        os.environ.pop(name, None)
        if name in variables:
            os.environ[name] = variables[name]


def _texts(file: EnvironmentFile, unit: str) -> list[str]:
    """Return the texts of the files that the path means, in order."""
    paths = sorted(glob.glob(file.path)) if glob.has_magic(file.path) else [file.path]  # noqa: PTH207  may be absolute
    if not paths and not file.optional:
        raise _not_started(unit, file.path, "no file matches it")
    texts = []
    for path in paths:
        try:
            texts.append(_text(path, unit))
        except PermissionError as error:
            what = f"its environment file {path} cannot be read: {error.strerror}"
            raise OperatorError(what, where=unit, remedy="run this as root") from error
        except OSError as error:
            if not file.optional:
                raise _not_started(unit, path, str(error.strerror)) from error
        except ValueError as error:
            if not file.optional:
                raise _not_started(unit, path, str(error)) from error
    return texts


def _text(path: str, unit: str) -> str:
    """Return the text; bytes of a comment that are not UTF-8 are lone surrogates. Raises OSError, ValueError for what
    systemd refuses, and OperatorError for what is not read to its end.
    """
    # A pipe without a writer then reads as empty.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(_MAX_FILE_BYTES + 1) or b""
    if len(content) > _MAX_FILE_BYTES:
        what = f"its environment file {path} has more than {_MAX_FILE_BYTES >> 20} MiB, and is not read"
        raise OperatorError(what, where=unit, remedy="make it shorter")
    if b"\0" in content:
        raise ValueError("it has a zero byte")
    text = content.decode(errors="surrogateescape")
    if not text.isascii() and any(not is_utf8(name + value) for name, value in read_assignments(text)):
        raise ValueError("it is not UTF-8 text")
    return text


def _not_started(unit: str, path: str, why: str) -> OperatorError:
    what = f"systemd does not start it without its environment file {path}: {why}"
    return OperatorError(what, where=unit, remedy="restore the file, or write EnvironmentFile=- in the unit")
