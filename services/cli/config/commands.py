"""Declares `bulkhead config` and the commands below it: names, options and exit codes. Each imports its code when it
runs."""

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from services.cli.terminal.output import write, write_error
from shared.config.findings import ConfigurationRefusedError
from shared.errors import OperatorError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_WRONG_USAGE = 2  # exit code, as click's own
_KUBELET_FLAGS = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}


class KubeletFlagsCommand(click.Command):
    """A command whose arguments are kubelet flags, which a shell completes."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options into the help, for click: those that this command takes before the kubelet's are parsed."""
        with formatter.section("Options"):
            formatter.write_dl(
                [
                    ("-o, --output [text|json|yaml]", "Form of the output.  [default: text]"),
                    ("-h, --help", "Show this message and exit."),
                    (
                        "--FLAG[=VALUE]",
                        "Any flag of the kubelet, such as --config=FILE (bulkhead config flags lists them).",
                    ),
                ]
            )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list["CompletionItem"]:
        """Complete a word that begins with a dash, for click."""
        from click.shell_completion import CompletionItem

        from shared.config.flag_table import FLAGS

        flags = (CompletionItem(f"--{flag.name}", help=flag.doc) for flag in FLAGS.values())
        return [*super().shell_complete(ctx, incomplete), *(one for one in flags if one.value.startswith(incomplete))]


def complete_file(_context: click.Context, _parameter: click.Parameter, typed: str) -> list["CompletionItem"]:
    """Complete a word that begins with no dash, for click: the shell completes the name of a file."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(typed, type="file")]


flags_argument = click.argument("flags", nargs=-1, type=click.UNPROCESSED, shell_complete=complete_file)


@click.group()
def config() -> None:
    """Check, show or compare kubelet configurations."""


@config.command(cls=KubeletFlagsCommand, context_settings=_KUBELET_FLAGS, short_help="Check a configuration.")
@flags_argument
@click.pass_context
def check(context: click.Context, flags: tuple[str, ...]) -> None:
    """Check a configuration: `bulkhead config check [FILE] [kubelet flags] [-o text|json|yaml]`.

    FILE is short for --config=FILE. Without flags it checks the first of these that there are, and names them: those of
    KUBELET_ARGS, of the running agent, of the systemd unit bulkhead, of the args file, of the systemd unit kubelet.
    Where there are none, that is a problem. Prints every problem with its place, the text there and the remedy. A
    misspelt key, which the agent only logs, is a problem here. At the end it names the files that were read.

    \b
    Exit codes: 0 = good, 1 = there is a problem, 2 = wrong usage.
    """
    from services.cli.config.check import check_configuration

    _run(context, flags, ("text", "json", "yaml"), check_configuration, takes_defaults=False)


@config.command(
    cls=KubeletFlagsCommand, context_settings=_KUBELET_FLAGS, short_help="Show the effective configuration."
)
@flags_argument
@click.pass_context
def show(context: click.Context, flags: tuple[str, ...]) -> None:
    """Show the effective configuration: `bulkhead config show [FILE] [kubelet flags] [-o text|json|yaml]`.

    FILE is short for --config=FILE. Prints each value with its origin: default, file and line, drop-in, or flag.
    Without flags it uses those that `config check` finds.

    \b
    Exit codes: 0 = shown, 1 = the configuration is refused, 2 = wrong usage.
    """
    from services.cli.config.show import show_configuration

    _run(context, flags, ("text", "json", "yaml"), show_configuration)


def _run(
    context: click.Context,
    given: tuple[str, ...],
    forms: tuple[str, ...],
    command: Callable[[Callable[[], list[str]], str, Callable[[str], None], Callable[[str], None]], int],
    *,
    takes_defaults: bool = True,
) -> None:
    """Run `command` on the configuration of these flags. `takes_defaults`: where no configuration is found, the
    defaults are used."""
    if {"--help", "-h"} & set(given):
        click.echo(context.get_help())
        return
    try:
        flags, form = split_output(list(given), forms)
    except ConfigurationRefusedError as error:
        write_error(str(error))
        sys.exit(_WRONG_USAGE)
    if flags and not flags[0].startswith("-"):  # a file alone, as kubectl users expect
        flags[0] = f"--config={flags[0]}"

    def arguments() -> list[str]:
        if flags:
            return flags
        from services.cli.config.found_configuration import find_machine_arguments

        try:
            found = find_machine_arguments()
        except OperatorError as error:
            raise ConfigurationRefusedError((str(error),)) from error
        if found.is_default and not takes_defaults:
            why = found.origin.removeprefix("the defaults (").removesuffix(")")
            raise ConfigurationRefusedError((f"no configuration to check: {why} (give flags, such as --config=FILE)",))
        write_error(f"note: without flags here, these are {found.origin}")
        return found.arguments

    sys.exit(command(arguments, form, write, write_error))


def split_output(flags: list[str], forms: tuple[str, ...]) -> tuple[list[str], str]:
    """Return the flags without our own `-o` or `--output`, in any position, and its value. Raise
    ConfigurationRefusedError."""
    rest: list[str] = []
    form = forms[0]
    words = iter(flags)
    for word in words:
        name, sign, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:].lstrip("="))
        if name in ("-o", "--output"):
            form = value if sign else next(words, "")
            if form not in forms:
                line = f'--output: is "{form}", must be one of {", ".join(forms)} (of this command)'
                raise ConfigurationRefusedError((line,))
        else:
            rest.append(word)
    return rest, form


@config.command(
    cls=KubeletFlagsCommand,
    context_settings=_KUBELET_FLAGS,
    short_help="Compare two configurations, and what it costs.",
)
@flags_argument
@click.pass_context
def diff(context: click.Context, flags: tuple[str, ...]) -> None:
    """Compare two configurations: `bulkhead config diff OLD NEW [kubelet flags] [-o text|json|yaml]`.

    OLD and NEW are KubeletConfiguration files; OLD may be `running`, the configuration in force. The same flags apply
    to both, without any those that `config check` finds. Prints each effective value that differs, with its origins,
    which services a reload to NEW restarts, and what becomes of the pods that run.

    \b
    Exit codes: 0 = no value differs, 1 = values differ, 2 = a configuration is refused, or wrong usage.
    """
    from services.cli.config.diff import REFUSED, diff_configurations

    if {"-h", "--help"} & set(flags):
        click.echo(context.get_help())
        return
    if len(flags) < 2 or any(name.startswith("-") for name in flags[:2]):
        write_error("name two files, or running and a file, before the flags (bulkhead config diff -h)")
        sys.exit(REFUSED)
    _run(context, flags[2:], ("text", "json", "yaml"), partial(diff_configurations, flags[0], flags[1]))


@config.command("flags", short_help="List the kubelet flags, with the key each one sets.")
def list_flags() -> None:
    """List the kubelet flags that exist, with the configuration key each one sets.

    \b
    Exit codes: 0 = listed, 2 = wrong usage.
    """
    from shared.config.flag_table import FLAGS

    for name, flag in FLAGS.items():
        write(f"--{name:45} {flag.key}".rstrip())
