"""The command line of a kubelet's systemd unit: what `systemctl show` prints of it, expanded as systemd does. Pure."""

import re
import shlex
from collections.abc import Iterator, Mapping

PROPERTIES = ("LoadState", "ExecStart", "Environment", "EnvironmentFiles")
_ARGV = re.compile(r"argv\[\]=(.*?) ; ignore_errors=")
_FILE = re.compile(r"(.*) \(ignore_errors=(?:yes|no)\)")
_BRACES = re.compile(r"\$\{(\w+)\}")


def environment_files(shown: str) -> list[str]:
    """The paths of the unit's environment files, in the order in which they apply."""
    return [match[1] for value in _values(shown, "EnvironmentFiles") if (match := _FILE.fullmatch(value))]


def unit_arguments(shown: str, files: Mapping[str, str]) -> list[str] | None:
    """The arguments of the unit's program; None = there is no such unit, or it has no command.

    `shown`: the output of `systemctl show` with `PROPERTIES`; `files`: the texts of the environment files that there
    are. Raises ValueError for a quote that is not closed.
    """
    commands = [match[1] for value in _values(shown, "ExecStart") if (match := _ARGV.search(value))]
    if "loaded" not in _values(shown, "LoadState") or not commands:
        return None
    variables = unit_environment(shown, files)
    words: list[str] = []
    for word in shlex.split(commands[-1])[1:]:
        if re.fullmatch(r"\$\w+", word):  # a variable alone is split, and left out where it is empty
            words += shlex.split(variables.get(word[1:], ""))
        else:
            words.append(_BRACES.sub(lambda found: variables.get(found[1], ""), word))
    return words


def unit_environment(shown: str, files: Mapping[str, str]) -> dict[str, str]:
    """The variables of the unit's program, arguments as for `unit_arguments`. Raises ValueError likewise."""
    variables: dict[str, str] = {}
    for value in _values(shown, "Environment"):
        variables |= dict(_assignments(shlex.split(value)))
    for path in environment_files(shown):
        for line in files.get(path, "").splitlines():
            if not line.lstrip().startswith(("#", ";")):
                variables |= dict(_assignments([_without_quotes(line)]))
    return variables


def _values(shown: str, name: str) -> list[str]:
    return [line.partition("=")[2] for line in shown.splitlines() if line.startswith(f"{name}=")]


def _assignments(words: list[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        name, sign, value = word.partition("=")
        if sign:
            yield name.strip(), value


def _without_quotes(line: str) -> str:
    """An assignment of an environment file: white space inside quotes is kept, that around the value is not."""
    name, sign, value = line.partition("=")
    value = value.strip()
    return name + sign + ("".join(shlex.split(value)) if value.startswith(("'", '"')) else value)
