"""The commands of `bulkhead` about the agent of this machine: names, options and exit codes. Each imports its code when
it runs."""

import sys
from collections.abc import Callable
from math import ceil
from typing import Any, TypeVar

import click

from bus.messages.services import SERVICES
from services.cli.output import write, write_error
from shared.config.durations import parse_duration

F = TypeVar("F", bound=Callable[..., Any])
_LONGEST = 10 * 365 * 86_400.0  # seconds of --since


def since_option(help_text: str) -> Callable[[F], F]:
    """`--since`, a duration such as 90s, 5m or 1h30m, passed in seconds; 0 = not given."""

    def seconds(_context: click.Context, _parameter: click.Parameter, given: str) -> float:
        if not given:
            return 0.0
        try:
            found = parse_duration(given)
        except ValueError:
            raise click.BadParameter(f"{given!r} is not a duration such as 90s, 5m or 1h30m") from None
        if not 0 < found <= _LONGEST:
            raise click.BadParameter("must be longer than 0s, and at most 87600h")
        return found

    return click.option("--since", metavar="DURATION", default="", callback=seconds, help=help_text)


def run_dir_option(command: F) -> F:
    """`--run-dir`, which every command about the agent has."""
    return click.option(
        "--run-dir",
        default="",
        help="Run directory of the agent; without it BULKHEAD_RUN_DIR, BULKHEAD_HOME, /run/bulkhead.",
    )(command)


def namespace_option(command: F) -> F:
    """`-n`, which every command about pods has."""
    return click.option("-n", "--namespace", default="", help="Namespace of the pod; without it, any.")(command)


def pod_argument(*, required: bool = True) -> Callable[[F], F]:
    """`POD`, completed with the pods of the running agent."""

    def complete(context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
        from services.cli.completion import pod_names

        return pod_names(context.params.get("run_dir") or "", context.params.get("namespace") or "", typed)

    return click.argument("pod", required=required, default=None if required else "", shell_complete=complete)


def container_option(command: F) -> F:
    """`-c`, which every command about one container has."""
    return click.option(
        "-c", "--container", default="", help="Name of the container; without it, the default or first one."
    )(command)


def output_option(*forms: str) -> Callable[[F], F]:
    """`-o`, the first form is the default."""
    return click.option(
        "-o", "--output", type=click.Choice(forms), default=forms[0], show_default=True, help="Form of the output."
    )


@click.command()
@run_dir_option
@output_option("text", "wide", "json", "yaml")
@click.option("-w", "--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@click.option(
    "--wait-ready", is_flag=False, flag_value=120.0, type=click.FloatRange(0, 86_400), metavar="[SECONDS]",
    help="Wait until the node is ready, without a number 120 seconds.",
)  # fmt: skip
def status(run_dir: str, output: str, watch: bool, wait_ready: float | None) -> None:
    """Show the state of the agent: processes, streams, troubles, API server, runtime, and what pods wait for.

    Asks the processes themselves, so it answers while some of them do not. `wide` lists all streams and pods.

    \b
    Exit codes: 0 = the node is ready, 1 = no agent can be asked, 2 = wrong usage,
    3 = the node is not ready, 130 = ended by Ctrl-C.
    """
    from services.cli.status import show_status

    sys.exit(show_status(run_dir, output, watch, wait_ready, write, write_error))


@click.command()
@click.argument("service", nargs=-1, required=True, type=click.Choice(SERVICES))
@run_dir_option
def restart(service: tuple[str, ...], run_dir: str) -> None:
    """Restart services, one after the other, and wait until each works. Pods keep running.

    \b
    Exit codes: 0 = every service works again, 1 = one does not, 2 = wrong usage.
    """
    from services.cli.restart import restart_services

    sys.exit(restart_services(run_dir, service, write, write_error))


@click.command()
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
    from services.cli.pods import describe_pod

    sys.exit(describe_pod(run_dir, pod, namespace, output, write, write_error))


@click.command()
@pod_argument(required=False)
@namespace_option
@run_dir_option
@output_option("text", "json", "yaml")
def events(pod: str, namespace: str, run_dir: str, output: str) -> None:
    """List the newest events of this agent, at most 200 of each service, the oldest first; with POD those of one pod.

    \b
    Exit codes: 0 = listed, 1 = no agent answers, 2 = wrong usage.
    """
    from services.cli.events import list_events

    sys.exit(list_events(run_dir, pod, namespace, output, write, write_error))


@click.command()
@pod_argument(required=False)
@namespace_option
@container_option
@click.option("-f", "--follow", is_flag=True, help="Show new lines as they are written, until Ctrl-C.")
@click.option("-p", "--previous", is_flag=True, help="The log of the container's instance before this one.")
@click.option("--timestamps", is_flag=True, help="Begin each line of a container with its time.")
@since_option("Only lines of a container not older, such as 5m or 1h30m.")
@click.option("--tail", type=click.IntRange(0, 1_000_000), help="Only so many of the newest lines, or records.")
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
        from services.cli.service_logs import show_service_logs

        chosen = tuple(service for service in SERVICES if service in services or "all" in services)
        sys.exit(show_service_logs(run_dir, chosen, pod, tail, follow, write, write_error))
    if not pod:
        raise click.UsageError("name a POD, or a service with --service")
    from services.cli.pod_logs import LogOptions, show_pod_logs

    options = LogOptions(
        container=container,
        follow=follow,
        previous=previous,
        timestamps=timestamps,
        tail=tail,
        since=ceil(since),
    )
    sys.exit(show_pod_logs(run_dir, pod, namespace, options, write_error))


@click.command("exec")
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
    from services.cli.remote_command import run_in_container

    sys.exit(run_in_container(run_dir, pod, namespace, container, command, write_error, stdin=stdin, terminal=terminal))


@click.command()
@run_dir_option
@output_option("text", "json", "yaml")
@click.option("--containers", is_flag=True, help="Show each container, too.")
@click.option("-w", "--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
def top(run_dir: str, output: str, containers: bool, watch: bool) -> None:
    """Show CPU and memory of the node and its pods, the pod with the highest CPU usage first.

    \b
    Exit codes: 0 = shown, 1 = pleg does not answer, 2 = wrong usage, 130 = ended by Ctrl-C.
    """
    from services.cli.top import show_usage

    sys.exit(show_usage(run_dir, output, containers, watch, write, write_error))


@click.command("support-bundle")
@run_dir_option
@click.option("--file", default="", help="Name of the archive; without it, one with node and time in this directory.")
def support_bundle(run_dir: str, file: str) -> None:
    """Write an archive for who is to find a fault: status, configuration, events, stacks, logs and records of pods.

    It has at most 20 MiB and no credentials: files of keys, tokens and kubeconfigs are not read, and what looks like a
    credential is masked. What pods wrote into logs of the agent, events and probes is in it. Works while processes do
    not answer.

    \b
    Exit codes: 0 = written, 1 = there is no agent, or it cannot be written, 2 = wrong usage.
    """
    from services.cli.support_bundle import make_bundle

    sys.exit(make_bundle(run_dir, file, write, write_error))


COMMANDS = (status, restart, describe, events, logs, execute, top, support_bundle)
