"""The commands of `bulkhead` about the agent of this machine: names, options and exit codes. Each imports its code when
it runs."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from bus.messages.services import SERVICES
from services.cli.output import write, write_error

F = TypeVar("F", bound=Callable[..., Any])


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
@click.argument("pod", required=False, default="")
@namespace_option
@run_dir_option
@output_option("text", "json", "yaml")
def pods(pod: str, namespace: str, run_dir: str, output: str) -> None:
    """List the pods of this node: state, restarts and what each waits for.

    POD is a name, namespace/name, UID, or the name in a static pod's manifest.

    \b
    Exit codes: 0 = listed, 1 = no agent answers or there is no such pod, 2 = wrong usage.
    """
    from services.cli.pods import list_pods

    sys.exit(list_pods(run_dir, pod, namespace, output, write, write_error))


@click.command()
@click.argument("pod")
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
@click.argument("pod", required=False, default="")
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
@click.option(
    "--service", "services", multiple=True, required=True, type=click.Choice((*SERVICES, "all")),
    help="Service whose log is shown; may be repeated.",
)  # fmt: skip
@click.option("--pod", default="", help="Only records that contain this name or UID.")
@click.option(
    "--tail", type=click.IntRange(0, 1_000_000), help="Only this many of the newest records; without it, all."
)
@click.option("-f", "--follow", is_flag=True, help="Show new records as they are written, until Ctrl-C.")
@run_dir_option
def logs(services: tuple[str, ...], pod: str, tail: int | None, follow: bool, run_dir: str) -> None:
    """Show the logs of services, merged by time; also while the agent is down.

    \b
    Exit codes: 0 = shown, 1 = the logs cannot be read, 2 = wrong usage, 130 = ended by Ctrl-C.
    """
    from services.cli.service_logs import show_service_logs

    chosen = tuple(service for service in SERVICES if service in services or "all" in services)
    sys.exit(show_service_logs(run_dir, chosen, pod, tail, follow, write, write_error))


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


COMMANDS = (status, restart, pods, describe, events, logs, top)
