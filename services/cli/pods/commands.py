"""Declares the commands of `bulkhead` about pods and containers: names, options and exit codes. Each imports its code
when it runs."""

import sys
from math import ceil

import click

from bus.messages.services import SERVICES
from services.cli.agent.options import (
    FILE,
    container_option,
    namespace_option,
    output_option,
    pod_argument,
    run_dir_option,
    since_option,
    space_option,
)
from services.cli.terminal.output import write, write_error

_DEFAULT = "list"

files_option = click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="YAML or JSON; - is standard input. May be repeated.",
)


class PodsGroup(click.Group):
    """Runs `list` when it is given no command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments for click, and return the remaining words."""
        own = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if args and args[0] in own else [_DEFAULT, *args])


@click.group(cls=PodsGroup, short_help="List pods; apply and delete them without a cluster.")
def pods() -> None:
    """List the pods of this node, or run pods on a node without a cluster.

    `bulkhead pods [POD] [OPTIONS]` is `bulkhead pods list [POD] [OPTIONS]`.
    """


@pods.command(_DEFAULT, short_help="List the pods of this node and what each waits for.")
@pod_argument(required=False)
@namespace_option
@run_dir_option
@output_option("text", "wide", "json", "yaml")
@click.option("--applied", is_flag=True, help="List what was applied instead, with ConfigMaps and Secrets.")
def list_command(pod: str, namespace: str, run_dir: str, output: str, applied: bool) -> None:
    """List the pods of this node: state, restarts and what each waits for.

    POD is a name, namespace/name, UID, or the name in a static pod's manifest. `wide` adds IP, source and UID.

    \b
    Exit codes: 0 = listed, 1 = no agent answers or there is no such pod, 2 = wrong usage.
    """
    if applied:
        if pod:
            raise click.UsageError("POD: not with --applied")
        if output == "wide":
            raise click.UsageError("-o wide: not with --applied")
        from services.cli.pods.applied import list_applied

        sys.exit(list_applied(_run_dir(run_dir), namespace, output, write, write_error))
    from services.cli.pods.listing import list_pods

    sys.exit(list_pods(run_dir, pod, namespace, output, write, write_error))


@pods.command("apply", short_help="Run the pods of files on this node, without a cluster.")
@files_option
@space_option
@run_dir_option
def apply_command(files: tuple[str, ...], namespace: str, run_dir: str) -> None:
    """Run the pods of files on this node, which has no cluster: bulkhead pods apply -f pod.yaml

    Pods, ConfigMaps and Secrets are taken. The agent keeps them as files, so they are there after a restart. A pod that
    changes is stopped and started again; a ConfigMap or Secret that changes reaches the volumes of running pods.

    \b
    Exit codes: 0 = all were taken, 1 = one was refused or no agent answers, 2 = wrong usage.
    """
    if not files:
        raise click.UsageError("name a file with -f")
    from services.cli.pods.applied import apply_files

    sys.exit(apply_files(_run_dir(run_dir), files, namespace, write, write_error))


@pods.command("delete", short_help="Remove what was applied. Pods are stopped.")
@click.argument("names", nargs=-1, metavar="[[KIND/]NAME]...")
@files_option
@space_option
@run_dir_option
def delete_command(names: tuple[str, ...], files: tuple[str, ...], namespace: str, run_dir: str) -> None:
    """Remove what was applied: by -f FILE, NAME of a pod, configmap/NAME or secret/NAME. Pods are stopped.

    NAME is the name in the manifest.

    \b
    Exit codes: 0 = all were removed, 1 = one is not there or no agent answers, 2 = wrong usage.
    """
    if not files and not names:
        raise click.UsageError("name a file with -f, or a name")
    from services.cli.pods.applied import delete_applied

    sys.exit(delete_applied(_run_dir(run_dir), files, names, namespace, write, write_error))


@click.command(short_help="Describe one pod: containers, volumes, conditions, events.")
@pod_argument()
@namespace_option
@run_dir_option
@output_option("text", "json", "yaml")
def describe(pod: str, namespace: str, run_dir: str, output: str) -> None:
    """Describe one pod: state, containers, volumes, conditions and events, as this node has them.

    POD is a name, namespace/name, UID, or the name in a static pod's manifest. json and yaml print the Pod.

    \b
    Exit codes: 0 = described, 1 = no agent answers or there is no such pod, 2 = wrong usage.
    """
    from services.cli.pods.listing import describe_pod

    sys.exit(describe_pod(run_dir, pod, namespace, output, write, write_error))


@click.command(short_help="Show the log of a container, or those of services.")
@pod_argument(required=False)
@namespace_option
@container_option
@click.option("-f", "--follow", is_flag=True, help="Show new lines as they are written, until Ctrl-C.")
@click.option("-p", "--previous", is_flag=True, help="The log of the container's instance before this one.")
@click.option("--timestamps", is_flag=True, help="Begin each line of a container with its time.")
@since_option("Only lines of a container not older, such as 5m or 1h30m.")
@click.option(
    "--tail", type=click.IntRange(0, 1_000_000), metavar="NUMBER", help="Only so many of the newest lines, or records."
)
@click.option(
    "--service", "services", multiple=True, type=click.Choice((*SERVICES, "all")),
    help="Show the log of this service; may be repeated.",
)  # fmt: skip
@run_dir_option
def logs(
    pod: str,
    namespace: str,
    container: str,
    follow: bool,
    previous: bool,
    timestamps: bool,
    since: float,
    tail: int | None,
    services: tuple[str, ...],
    run_dir: str,
) -> None:
    """Show the log of a container of POD; with --service the logs of services, merged by time.

    POD is a name, namespace/name, UID, or the name in a static pod's manifest. With --service it is a text, such as a
    name or UID: only records that contain it are shown. Logs of services are shown while the agent is down, too.

    \b
    Exit codes: 0 = shown, 1 = the log cannot be read, 2 = wrong usage, 130 = ended by Ctrl-C.
    """
    if services:
        given = {"-n": namespace, "-c": container, "-p": previous, "--timestamps": timestamps, "--since": since}
        if wrong := [name for name, value in given.items() if value]:
            raise click.UsageError(f"{', '.join(wrong)}: not with --service")
        from services.cli.agent.service_logs import show_service_logs

        chosen = tuple(service for service in SERVICES if service in services or "all" in services)
        sys.exit(show_service_logs(run_dir, chosen, pod, tail, follow, write, write_error))
    if not pod:
        raise click.UsageError("name a POD, or a service with --service")
    from services.cli.pods.logs import LogOptions, show_pod_logs

    options = LogOptions(
        container=container,
        follow=follow,
        previous=previous,
        timestamps=timestamps,
        tail=tail,
        since=ceil(since),
    )
    sys.exit(show_pod_logs(run_dir, pod, namespace, options, write_error))


@click.command("exec", short_help="Run a command in a container of a pod.")
@pod_argument()
@click.argument("command", nargs=-1, required=True)
@namespace_option
@container_option
@click.option("-i", "--stdin", is_flag=True, help="Pass standard input to the command.")
@click.option("-t", "--tty", "terminal", is_flag=True, help="Give the command a terminal.")
@run_dir_option
def execute(
    pod: str, command: tuple[str, ...], namespace: str, container: str, stdin: bool, terminal: bool, run_dir: str
) -> None:
    """Run a command in a container of POD: bulkhead exec -it POD -- sh

    POD is a name, namespace/name, UID, or the name in a static pod's manifest. Options of the command follow `--`.

    \b
    Exit codes: that of the command; 1 = it was not run, 2 = wrong usage, 130 = ended by Ctrl-C.
    """
    from services.cli.pods.remote_command import run_in_container

    sys.exit(run_in_container(run_dir, pod, namespace, container, command, write_error, stdin=stdin, terminal=terminal))


def _run_dir(given: str) -> str:
    from shared.agent.places import find_places

    return given or find_places().run_dir


COMMANDS = (pods, describe, logs, execute)
