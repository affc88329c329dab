"""The kubelet flags of this machine, found without being named: those of the environment, the running agent, the args
file, or a systemd unit; and where they were found."""

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from services.cli.config.systemd_unit import PROPERTIES, environment_files, unit_arguments, unit_environment
from services.report.processes import process_of
from shared.config.effective import EffectiveConfig
from shared.config.fields import FlagKind
from shared.config.flag_table import FLAGS
from shared.config.loader import load_effective
from shared.errors import OperatorError
from shared.places import AgentPaths, find_arguments, find_places

UNITS = ("bulkhead.service", "kubelet.service")
_SYSTEMCTL = 60.0  # seconds; a machine under load, or in a daemon-reload, takes some
BOOTED = Path("/run/systemd/system")  # as sd_booted(3)
_LONGEST_FILE = 1 << 20  # bytes of an environment file that are read


@dataclass(frozen=True)
class FoundArguments:
    """Flags, and in one phrase where they come from."""

    arguments: list[str]
    origin: str
    is_default: bool = False  # nothing was found: these are the defaults


def found_arguments() -> FoundArguments:
    """The flags with which the agent of this machine runs or would be started. Raises OperatorError for a file that
    cannot be read."""
    places = find_places()
    if "KUBELET_ARGS" in os.environ:
        return FoundArguments(find_arguments(places), "the flags in KUBELET_ARGS")
    if (config := running_configuration(places.run_dir)) is not None:
        return FoundArguments(given_arguments(config), f"the flags of the running agent ({places.run_dir})")
    return flags_of_unit(UNITS[0]) or _of_args_file(places) or flags_of_unit(UNITS[1]) or _defaults(places)


def running_configuration(run_dir: str) -> EffectiveConfig | None:
    """The configuration in force of the agent with this run directory; None = none runs, or it cannot be read."""
    if process_of(run_dir, "bootstrap").holder is None:
        return None
    try:
        return load_effective(run_dir)
    except (OSError, OperatorError):
        return None


def given_arguments(config: EffectiveConfig) -> list[str]:
    """The flags with which a configuration was evaluated, without those whose values are secret."""
    arguments = []
    for name, text in config.given_flags.items():
        flag = FLAGS.get(name)
        if flag is not None and not flag.secret:
            given = text[1:-1] if flag.kind is FlagKind.STRINGS else text  # Go prints a list in brackets
            arguments.append(f"--{name}={given}")
    return arguments


def _of_args_file(places: AgentPaths) -> FoundArguments | None:
    if not Path(places.args_file).exists():
        return None
    return FoundArguments(find_arguments(places), f"the flags in {places.args_file}")


def flags_of_unit(name: str) -> FoundArguments | None:
    """The flags of an installed unit; None = there is none, it has no flags, or there is no systemd. Raises
    OperatorError where systemctl does not answer: the defaults would not be those of this node."""
    command = ["systemctl", "show", name, *(f"--property={each}" for each in PROPERTIES)]
    try:
        answer = subprocess.run(
            command, capture_output=True, check=False, timeout=_SYSTEMCTL, text=True, errors="replace"
        )
        if answer.returncode and BOOTED.is_dir():
            line = " ".join(answer.stderr.split())[:200]
            raise OperatorError(f"systemctl show fails: {line}", where=name, remedy="try again, or give flags")
        texts = {path: text for path in environment_files(answer.stdout) if (text := file_text(path)) is not None}
        arguments = unit_arguments(answer.stdout, texts)
        if not arguments and (given := unit_environment(answer.stdout, texts).get("KUBELET_ARGS")):
            return FoundArguments(shlex.split(given, comments=True), f"the flags in KUBELET_ARGS of {name}")
    except OSError:
        return None
    except subprocess.TimeoutExpired as error:
        raise OperatorError(
            f"systemctl show does not answer within {_SYSTEMCTL:.0f} s", where=name, remedy="try again, or give flags"
        ) from error
    except ValueError as error:
        raise OperatorError(
            f"its command line cannot be split: {error}", where=name, remedy="close the quote, or give flags"
        ) from error
    return FoundArguments(arguments, f"the flags of {name}") if arguments else None


def file_text(path: str) -> str | None:
    """The beginning of an environment file; None = it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(_LONGEST_FILE).decode("utf-8", "replace")
    except OSError:
        return None


def _defaults(places: AgentPaths) -> FoundArguments:
    agent = f"no agent runs in {places.run_dir}"
    if Path(places.run_dir).exists() and not os.access(places.run_dir, os.R_OK | os.X_OK):
        agent = f"{places.run_dir} cannot be read by this user"
    missing = f"{agent}, and there is no {places.args_file} and no unit with flags"
    return FoundArguments([], f"the defaults ({missing})", is_default=True)
