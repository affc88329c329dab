"""Finds the kubelet flags of this machine: those of the environment, the running agent, the args file, or a systemd
unit. Says where they were found."""

import os
import shlex
from pathlib import Path

from msgspec import Struct

from services.cli.systemd import control
from services.cli.systemd.command_line import unit_flags, unit_variables
from services.report.processes import process_of
from shared.agent.places import AgentPaths, find_arguments, find_places
from shared.config.effective import EffectiveConfig
from shared.config.fields import FlagKind
from shared.config.flag_table import FLAGS
from shared.config.loader import load_effective
from shared.errors import OperatorError

UNITS = ("bulkhead.service", "kubelet.service")


class FoundArguments(Struct, frozen=True):
    """Flags, with one phrase about where they come from."""

    arguments: list[str]
    origin: str
    is_default: bool = False  # no flags were found, so the defaults are used


def find_machine_arguments() -> FoundArguments:
    """Return the flags with which the agent of this machine runs or would be started. Raises OperatorError for a file
    that cannot be read.
    """
    places = find_places()
    if "KUBELET_ARGS" in os.environ:
        return FoundArguments(find_arguments(places), "the flags in KUBELET_ARGS")
    if (config := read_running_configuration(places.run_dir)) is not None:
        return FoundArguments(list_given_arguments(config), f"the flags of the running agent ({places.run_dir})")
    return read_unit_flags(UNITS[0]) or _of_args_file(places) or read_unit_flags(UNITS[1]) or _defaults(places)


def read_running_configuration(run_dir: str) -> EffectiveConfig | None:
    """Return the configuration in force of the agent with this run directory; None = none runs, or it cannot be
    read."""
    if process_of(run_dir, "bootstrap").holder is None:
        return None
    try:
        return load_effective(run_dir)
    except (OSError, OperatorError):
        return None


def list_given_arguments(config: EffectiveConfig) -> list[str]:
    """Return the flags with which a configuration was evaluated, without those whose values are secret."""
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


def read_unit_flags(name: str) -> FoundArguments | None:
    """Return the flags of an installed unit; None = there is no unit, it has no flags, or systemd does not run this
    machine. Raises OperatorError where systemd does not answer: using the defaults would be wrong for this node."""
    if not control.is_booted():
        return None
    try:
        unit = control.read_unit(name)
        if unit.load_state != "loaded" or not unit.commands:
            return None
        arguments, given = unit_flags(unit), unit_variables(unit).get("KUBELET_ARGS")
        if given and not arguments:
            return FoundArguments(shlex.split(given, comments=True), f"the flags in KUBELET_ARGS of {name}")
    except OperatorError as error:
        remedy = f"{error.remedy}, or give flags" if error.remedy else "give flags"
        raise OperatorError(error.what, where=error.where, remedy=remedy) from error
    except ValueError as error:
        what = f"KUBELET_ARGS cannot be split: {error}"
        raise OperatorError(what, where=name, remedy="close the quote, or give flags") from error
    return FoundArguments(arguments, f"the flags of {name}") if arguments else None


def _defaults(places: AgentPaths) -> FoundArguments:
    agent = f"no agent runs in {places.run_dir}"
    if Path(places.run_dir).exists() and not os.access(places.run_dir, os.R_OK | os.X_OK):
        agent = f"{places.run_dir} cannot be read by this user"
    missing = f"{agent}, and there is no {places.args_file} and no unit with flags"
    return FoundArguments([], f"the defaults ({missing})", is_default=True)
