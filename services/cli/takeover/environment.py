"""The variables and flags with which systemd starts the unit's kubelet. They decide which directories its agent has,
and not the shell of the command that takes the node over."""

import os

from services.cli.config.found_configuration import file_text
from services.cli.config.systemd_unit import expanded, variables_of
from services.cli.takeover.unit import UNIT, KubeletUnit
from shared.errors import OperatorError
from shared.places import PLACE_VARIABLES


def variables_of_unit(unit: KubeletUnit) -> dict[str, str]:
    """The variables of Environment= and the environment files, by name. Raises OperatorError."""
    texts = [text for path in unit.environment_files if (text := file_text(path)) is not None]
    try:
        return variables_of(unit.environment, texts)
    except ValueError as error:
        remedy = "close the quote in the unit's environment files"
        raise OperatorError(f"its variables cannot be read: {error}", where=UNIT, remedy=remedy) from error


def flags_of_kubelet(unit: KubeletUnit) -> list[str]:
    """The flags of the unit's kubelet, each word as systemd has it. Raises OperatorError."""
    words = unit.commands[-1][1:] if unit.commands else ()
    try:
        return expanded(words, variables_of_unit(unit))
    except ValueError as error:
        remedy = "close the quote in a variable of the unit"
        raise OperatorError(f"its command line cannot be split: {error}", where=UNIT, remedy=remedy) from error


def use_places_of(unit: KubeletUnit) -> None:
    """Set the variables of this process that decide where an agent has its directories to those of the unit. Raises
    OperatorError."""
    variables = variables_of_unit(unit)
    for name in PLACE_VARIABLES:
        os.environ.pop(name, None)
        if name in variables:
            os.environ[name] = variables[name]
