"""The command line and the variables of a kubelet's systemd unit, expanded as systemd does: from what `systemctl show`
prints, or from the words that systemd's bus has. Pure."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

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
    return expanded(shlex.split(commands[-1])[1:], unit_environment(shown, files))


def expanded(given: Iterable[str], variables: Mapping[str, str]) -> list[str]:
    """The words with their variables replaced. Raises ValueError for a quote in a variable that is not closed."""
    words: list[str] = []
    for word in given:
        if re.fullmatch(r"\$\w+", word):  # a variable alone is split, and left out where it is empty
            words += shlex.split(variables.get(word[1:], ""))
        else:
            words.append(_BRACES.sub(lambda found: variables.get(found[1], ""), word))
    return words


def unit_environment(shown: str, files: Mapping[str, str]) -> dict[str, str]:
    """The variables of the unit's program, arguments as for `unit_arguments`. Raises ValueError likewise."""
    assignments = [word for value in _values(shown, "Environment") for word in shlex.split(value)]
    return variables_of(assignments, [files.get(path, "") for path in environment_files(shown)])


def variables_of(assignments: Iterable[str], texts: Iterable[str]) -> dict[str, str]:
    """The variables, by name, of Environment= and of the texts of environment files, which win. Raises ValueError
    for a quote that is not closed."""
    variables = dict(_assignments(assignments))
    for text in texts:
        for line in text.splitlines():
            if not line.lstrip().startswith(("#", ";")):
                variables |= dict(_assignments([_without_quotes(line)]))
    return variables


def _values(shown: str, name: str) -> list[str]:
    return [line.partition("=")[2] for line in shown.splitlines() if line.startswith(f"{name}=")]


def _assignments(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        name, sign, value = word.partition("=")
        if sign:
            yield name.strip(), value


def _without_quotes(line: str) -> str:
    """An assignment of an environment file: white space inside quotes is kept, that around the value is not."""
    name, sign, value = line.partition("=")
    value = value.strip()
    return name + sign + ("".join(shlex.split(value)) if value.startswith(("'", '"')) else value)
