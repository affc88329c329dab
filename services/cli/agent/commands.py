"""The commands of `bulkhead` about the agent of this machine: names, options and exit codes. Each imports its code when
it runs."""

import sys

import click

from bus.messages.services import SERVICES
from services.cli.agent.options import namespace_option, output_option, pod_argument, run_dir_option
from services.cli.terminal.output import write, write_error


@click.command(short_help="Show whether the node is ready, and what the agent does.")
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
    from services.cli.agent.status import show_status

    sys.exit(show_status(run_dir, output, watch, wait_ready, write, write_error))


@click.command(short_help="Restart services. Pods keep running.")
@click.argument("service", nargs=-1, required=True, type=click.Choice(SERVICES), metavar="SERVICE...")
@run_dir_option
def restart(service: tuple[str, ...], run_dir: str) -> None:
    """Restart services, one after the other, and wait until each works. Pods keep running.

    SERVICE is bootstrap, sources, podsync, volume, pleg, status or server.

    \b
    Exit codes: 0 = every service works again, 1 = one does not, 2 = wrong usage.
    """
    from services.cli.agent.restart import restart_services

    sys.exit(restart_services(run_dir, service, write, write_error))


@click.command(short_help="List the newest events of the agent, or of one pod.")
@pod_argument(required=False)
@namespace_option
@run_dir_option
@output_option("text", "json", "yaml")
def events(pod: str, namespace: str, run_dir: str, output: str) -> None:
    """List the newest events of this agent, at most 200 of each service, the oldest first; with POD those of one pod.

    POD is a name, namespace/name, UID, or the name in a static pod's manifest.

    \b
    Exit codes: 0 = listed, 1 = no agent answers, 2 = wrong usage.
    """
    from services.cli.agent.events import list_events

    sys.exit(list_events(run_dir, pod, namespace, output, write, write_error))


@click.command(short_help="Show CPU and memory of the node, its pods and containers.")
@pod_argument(required=False)
@namespace_option
@run_dir_option
@output_option("text", "json", "yaml")
@click.option("--containers", is_flag=True, help="Show each container, too.")
@click.option("-w", "--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
def top(pod: str, namespace: str, run_dir: str, output: str, containers: bool, watch: bool) -> None:
    """Show CPU and memory of the node and its pods, the pod with the highest CPU usage first; with POD or -n only those
    pods.

    POD is a name, namespace/name, UID, or the name in a static pod's manifest.

    \b
    Exit codes: 0 = shown, 1 = pleg does not answer or there is no such pod, 2 = wrong usage, 130 = ended by Ctrl-C.
    """
    from services.cli.agent.top import show_usage

    sys.exit(show_usage(run_dir, pod, namespace, output, containers, watch, write, write_error))


@click.command("support-bundle", short_help="Write an archive with what is needed to find a fault.")
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
    from services.cli.agent.support_bundle import make_bundle

    sys.exit(make_bundle(run_dir, file, write, write_error))


COMMANDS = (status, restart, events, top, support_bundle)
