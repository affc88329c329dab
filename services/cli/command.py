"""The command `bulkhead`: parses its arguments and runs the subcommand, whose code is imported then."""

import sys
from typing import Any

import click

from services.cli.agent.commands import COMMANDS as AGENT_COMMANDS
from services.cli.config.commands import config
from services.cli.get import get
from services.cli.pods.commands import COMMANDS as POD_COMMANDS
from services.cli.preflight.command import preflight
from services.cli.takeover.commands import COMMANDS as TAKEOVER_COMMANDS
from services.cli.terminal.output import drop_output, write
from services.cli.what_if.command import what_if
from shared.process.standard_streams import open_standard_streams

SECTIONS = {
    "See what the agent and its pods do": (
        "status",
        "top",
        "cpus",
        "devices",
        "pods",
        "describe",
        "logs",
        "events",
        "explain",
        "images",
        "certs",
        "get",
    ),
    "Act": ("exec", "restart"),
    "Ask before a change": ("what-if", "config"),
    "Take over a node": ("preflight", "takeover", "give-back"),
    "Other": ("support-bundle", "completion", "help", "version"),
}
_INTERRUPTED = 130  # exit code of a program that SIGINT has ended
MAX_SUMMARY_CHARACTERS = 60  # of a command's line in a list of commands: two columns fit into a terminal of 80


class SectionedGroup(click.Group):
    """Lists its commands by purpose. Ctrl-C ends a command that does not handle it with exit code 130."""

    def main(self, *args: Any, **more: Any) -> Any:
        """Run the program."""
        open_standard_streams()
        return super().main(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command for click, and return what it returns."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            drop_output()
            sys.exit(_INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands into the help, for click."""
        width = max(map(len, self.commands))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                rows = [
                    (f"{name:{width}}", self.commands[name].get_short_help_str(MAX_SUMMARY_CHARACTERS))
                    for name in names
                ]
                formatter.write_dl(rows)


@click.group(cls=SectionedGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "--version", package_name="bulkhead-kubelet", message="bulkhead %(version)s")
def main() -> None:
    """Bulkhead: a Kubernetes node agent made of separate, supervised processes.

    This command shows and explains the agent of this machine and its pods, checks configurations, and exchanges the
    kubelet of a node. The agent itself is the program `kubelet`. Ctrl-C ends a command with exit code 130.
    """


@main.command()
def version() -> None:
    """Print the version, as --version does.

    \b
    Exit codes: 0 = printed, 2 = wrong usage.
    """
    from importlib.metadata import version as version_of

    write(f"bulkhead {version_of('bulkhead-kubelet')}")


@main.command("help", short_help="Show the help of a command, as its -h does.")
@click.argument("names", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def show_help(context: click.Context, names: tuple[str, ...]) -> None:
    """Show the help of a command, such as `bulkhead help pods apply`.

    \b
    Exit codes: 0 = shown, 2 = there is no such command.
    """
    assert context.parent is not None
    command, path = context.parent.command, context.parent
    for name in names:
        found = command.get_command(path, name) if isinstance(command, click.Group) else None
        if found is None:
            raise click.UsageError(f"No such command {name!r}.", path)
        command, path = found, click.Context(found, parent=path, info_name=name)
    write(command.get_help(path))


@main.command(short_help="Print the shell completion of bulkhead or kubelet.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.argument("program", type=click.Choice(("bulkhead", "kubelet")), default="bulkhead")
def completion(shell: str, program: str) -> None:
    """Print the completion of a program, bulkhead or kubelet, for a shell.

    bash loads it with `source <(bulkhead completion bash)`.

    \b
    Exit codes: 0 = printed, 2 = wrong usage.
    """
    from services.cli.completion import completion_script

    write(completion_script(shell, program, main))


for _command in (*AGENT_COMMANDS, *POD_COMMANDS, *TAKEOVER_COMMANDS, config, get, preflight, what_if):
    main.add_command(_command)


if __name__ == "__main__":
    main()
