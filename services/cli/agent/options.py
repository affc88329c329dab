"""Declares the options and arguments that several commands have, each once, with its help."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shared.config.durations import parse_duration

F = TypeVar("F", bound=Callable[..., Any])
# A shell completes the names of files. Whether the file exists and is readable is checked when the command runs.
FILE = click.Path(allow_dash=True, readable=False)
DIRECTORY = click.Path(file_okay=False, readable=False)
_MAX_SINCE_SECONDS = 10 * 365 * 86_400.0  # the limit of --since


def since_option(help_text: str) -> Callable[[F], F]:
    """Declare `--since`, a duration such as 90s, 5m or 1h30m, which is passed in seconds; 0 = not given."""

    def seconds(_context: click.Context, _parameter: click.Parameter, given: str) -> float:
        if not given:
            return 0.0
        try:
            found = parse_duration(given)
        except ValueError:
            raise click.BadParameter(f"{given!r} is not a duration such as 90s, 5m or 1h30m") from None
        if not 0 < found <= _MAX_SINCE_SECONDS:
            raise click.BadParameter("must be longer than 0s, and at most 87600h")
        return found

    return click.option("--since", metavar="DURATION", default="", callback=seconds, help=help_text)


def run_dir_option(command: F) -> F:
    """Declare `--run-dir` for a command about the agent."""
    return click.option(
        "--run-dir",
        default="",
        type=DIRECTORY,
        metavar="DIRECTORY",
        help="Run directory of the agent; without it BULKHEAD_RUN_DIR, BULKHEAD_HOME, /run/bulkhead.",
    )(command)


def namespace_option(command: F) -> F:
    """Declare `-n` for a command about pods, and `-A`, which is the default here but a habit from kubectl."""
    every = click.option("-A", "--all-namespaces", is_flag=True, expose_value=False, help="Any namespace, the default.")
    named = click.option("-n", "--namespace", default="", metavar="NAME", help="Namespace of the pod; without it, any.")
    return named(every(command))


def space_option(command: F) -> F:
    """Declare `-n` for a command that reads manifests."""
    help_text = "Namespace of what names none; without it, default."
    return click.option("-n", "--namespace", default="", metavar="NAME", help=help_text)(command)


def pod_argument(*, required: bool = True) -> Callable[[F], F]:
    """Declare the argument `POD`, which a shell completes with the pods of the running agent."""

    def complete(context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
        from services.cli.agent.local_agent import pod_names

        return pod_names(context.params.get("run_dir") or "", context.params.get("namespace") or "", typed)

    if required:  # click counts an argument with a default, even None, as given
        return click.argument("pod", required=True, shell_complete=complete)
    return click.argument("pod", required=False, default="", shell_complete=complete)


def container_option(command: F) -> F:
    """Declare `-c` for a command about one container."""
    return click.option(
        "-c", "--container", default="", metavar="NAME", help="The container; without it, the default or first one."
    )(command)


def output_option(*forms: str) -> Callable[[F], F]:
    """Declare `-o` with these forms; the first one is the default."""
    return click.option(
        "-o", "--output", type=click.Choice(forms), default=forms[0], show_default=True, help="Form of the output."
    )
