"""The command `bulkhead`: parses its arguments and runs the subcommand, whose code is imported then."""

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from services.cli.agent.commands import COMMANDS as AGENT_COMMANDS
from services.cli.agent.options import namespace_option, output_option, run_dir_option, since_option
from services.cli.pods.commands import COMMANDS as POD_COMMANDS
from services.cli.preflight.command import preflight
from services.cli.takeover.commands import COMMANDS as TAKEOVER_COMMANDS
from services.cli.terminal.output import write, write_error
from services.cli.what_if.command import what_if
from shared.config.findings import ConfigurationRefusedError
from shared.errors import OperatorError
from shared.places import find_places

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SECTIONS = {
    "See what the agent and its pods do": ("status", "top", "pods", "describe", "logs", "events", "explain"),
    "Act": ("exec", "restart"),
    "Ask before a change": ("what-if", "config"),
    "Take over a node": ("preflight", "takeover", "give-back"),
    "Other": ("support-bundle", "completion", "version"),
}
LONGEST = 60  # characters of a command's line in a list of commands: two columns fit into a terminal of 80
_WRONG_USAGE = 2  # exit code, as click's own
_KUBELET_FLAGS = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}


class KubeletFlagsCommand(click.Command):
    """A command whose arguments are kubelet flags, which a shell completes."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list["CompletionItem"]:
        """Called by click for a word that begins with a dash."""
        from services.cli.completion import kubelet_flags

        return [*super().shell_complete(ctx, incomplete), *kubelet_flags(incomplete)]


class SectionedGroup(click.Group):
    """Lists its commands by purpose."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Called by click for the list in the help."""
        width = max(map(len, self.commands))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                rows = [(f"{name:{width}}", self.commands[name].get_short_help_str(LONGEST)) for name in names]
                formatter.write_dl(rows)


@click.group(cls=SectionedGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "--version", package_name="bulkhead-kubelet", message="bulkhead %(version)s")
def main() -> None:
    """Bulkhead: a Kubernetes node agent made of separate, supervised processes."""


@main.command()
def version() -> None:
    """Print the version, as --version does.

    \b
    Exit codes: 0 = printed, 2 = wrong usage.
    """
    from importlib.metadata import version as version_of

    write(f"bulkhead {version_of('bulkhead-kubelet')}")


@main.command(short_help="Show what happened to a pod, an image or the node, and why.")
@click.argument("what", required=False, default="", metavar="[POD | node | image]")
@click.argument("name", required=False, default="", metavar="[IMAGE]")
@namespace_option
@click.option("--root-dir", default="", help="The agent's root directory; without it, the configured one.")
@run_dir_option
@since_option("Only what is not older, such as 5m or 1h30m.")
@click.option("-f", "--follow", is_flag=True, help="Show new lines of a pod as they are written, until Ctrl-C.")
@output_option("text", "json", "yaml")
def explain(
    what: str, name: str, namespace: str, root_dir: str, run_dir: str, since: float, follow: bool, output: str
) -> None:
    """Show what happened to a pod on this node, in order and with causes, and why its containers were restarted.

    POD is a name, namespace/name or UID, or the name in a static pod's manifest; without it, the pods with a record
    are listed. `node` shows the changes of the node's conditions, `image IMAGE` what pods did with the images whose
    names contain IMAGE; a pod with such a name is named with its namespace. Reads the agent's own records, so it works
    while the agent is down; those of removed pods are kept for a while.

    \b
    Exit codes: 0 = shown, 1 = there is no such pod, or its record cannot be read, 2 = wrong usage,
    130 = ended by Ctrl-C.
    """
    from services.cli.agent.explain import explain_image, explain_node, explain_pod, list_stories

    if name and what != "image":
        raise click.UsageError(f"{name}: only image has a second name")
    if follow and (what in ("", "node", "image") or output != "text"):
        raise click.UsageError("--follow: needs a POD and -o text")
    try:
        root = root_dir or _root_dir(run_dir)
    except (ConfigurationRefusedError, OperatorError, OSError) as error:
        write_error(f"{error}\nname the agent's root directory with --root-dir")
        sys.exit(1)
    match what:
        case "":
            sys.exit(list_stories(root, namespace, output, write, write_error, since=since))
        case "node":
            sys.exit(explain_node(root, run_dir or find_places().run_dir, output, write, write_error, since=since))
        case "image":
            sys.exit(explain_image(root, name, output, write, write_error, since=since))
    sys.exit(explain_pod(root, what, namespace, output, write, write_error, since=since, follow=follow))


def _root_dir(run_dir: str) -> str:
    """That of the agent with this run directory, "" = the configured one; where none was started, of its flags."""
    from services.cli.config.found_configuration import found_arguments
    from shared.config.evaluation import evaluate
    from shared.config.loader import load_effective

    try:
        return load_effective(run_dir or find_places().run_dir).root_dir
    except (OperatorError, OSError):
        if run_dir:
            raise
    return evaluate(found_arguments().arguments).config.root_dir


@main.group()
def config() -> None:
    """Check, show or compare kubelet configurations."""


@config.command(cls=KubeletFlagsCommand, context_settings=_KUBELET_FLAGS, short_help="Check a configuration.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def check(context: click.Context, flags: tuple[str, ...]) -> None:
    """Check a configuration: `bulkhead config check [kubelet flags] [-o text|json|yaml]`.

    Without flags it checks those of the running agent, else those with which it would be started: KUBELET_ARGS, the
    args file, or the systemd unit bulkhead or kubelet; a note names them. Where there is none of these, that is a
    problem. Prints every problem with its place, the text there and the remedy. Keys that the kubelet would silently
    ignore are problems here. At the end it names the files that were read.

    \b
    Exit codes: 0 = good, 1 = there is a problem, 2 = wrong usage.
    """
    from services.cli.config.check import check_configuration

    _run(context, flags, ("text", "json", "yaml"), check_configuration, takes_defaults=False)


@config.command(
    cls=KubeletFlagsCommand, context_settings=_KUBELET_FLAGS, short_help="Show the effective configuration."
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def show(context: click.Context, flags: tuple[str, ...]) -> None:
    """Show the effective configuration: `bulkhead config show [kubelet flags] [-o text|json|yaml]`.

    Prints each value with its origin: default, file and line, drop-in, or flag. Without flags it uses those that
    `config check` finds.

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
    """`takes_defaults`: where no configuration is found, the defaults are used."""
    if {"--help", "-h"} & set(given):
        click.echo(context.get_help())
        return
    try:
        flags, form = split_output(list(given), forms)
    except ConfigurationRefusedError as error:
        write_error(str(error))
        sys.exit(_WRONG_USAGE)

    def arguments() -> list[str]:
        if flags:
            return flags
        from services.cli.config.found_configuration import found_arguments

        try:
            found = found_arguments()
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
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
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


@main.command(short_help="Print the shell completion of bulkhead or kubelet.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.argument("program", type=click.Choice(("bulkhead", "kubelet")), default="bulkhead")
def completion(shell: str, program: str) -> None:
    """Print the completion of a program, bulkhead or kubelet, for a shell.

    bash loads it with `source <(bulkhead completion bash)`.

    \b
    Exit codes: 0 = printed, 2 = wrong usage.
    """
    from services.cli.completion import script

    write(script(shell, program, main))


for _command in (*AGENT_COMMANDS, *POD_COMMANDS, *TAKEOVER_COMMANDS, preflight, what_if):
    main.add_command(_command)


if __name__ == "__main__":
    main()
