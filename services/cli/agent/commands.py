"""The commands of `bulkhead` about the agent of this machine: names, options and exit codes. Each imports its code when
it runs."""

import sys

import click

from bus.messages.services import SERVICES
from services.cli.agent.options import (
    DIRECTORY,
    FILE,
    namespace_option,
    output_option,
    pod_argument,
    run_dir_option,
    since_option,
)
from services.cli.terminal.output import write, write_error
from shared.errors import OperatorError


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
    Exit codes: 0 = every service works again, 1 = one does not, 2 = wrong usage, 130 = ended by Ctrl-C.
    """
    from services.cli.agent.restart import restart_services

    sys.exit(restart_services(run_dir, service, write, write_error))


@click.command(short_help="List the newest events of the agent, or of one pod.")
@pod_argument(required=False)
@namespace_option
@run_dir_option
@since_option("Only events that are not older, such as 5m or 1h30m.")
@click.option("-w", "--watch", is_flag=True, help="Show new events as they are published, until Ctrl-C.")
@output_option("text", "json", "yaml")
def events(pod: str, namespace: str, run_dir: str, since: float, watch: bool, output: str) -> None:
    """List the newest events of this agent, at most 200 of each service, the oldest first; with POD those of one pod.

    POD is a name, namespace/name, UID, or the name in a static pod's manifest. With -w each event is a line, with
    -o json an object in a line, with -o yaml a document.

    \b
    Exit codes: 0 = listed, 1 = no agent answers, 2 = wrong usage, 130 = ended by Ctrl-C.
    """
    from services.cli.agent.events import list_events

    sys.exit(list_events(run_dir, pod, namespace, output, write, write_error, since=since, watch=watch))


@click.command(short_help="List the images of this node.")
@click.argument("name", required=False, default="", metavar="[NAME]")
@run_dir_option
@output_option("text", "json", "yaml")
def images(name: str, run_dir: str, output: str) -> None:
    """List the images of this node's container runtime, the largest first; with NAME those whose names contain it.

    \b
    Exit codes: 0 = listed, 1 = pleg does not answer, 2 = wrong usage.
    """
    from services.cli.agent.images import list_images

    sys.exit(list_images(run_dir, name, output, write, write_error))


@click.command(short_help="Show when each certificate expires.")
@run_dir_option
@output_option("text", "json", "yaml")
def certs(run_dir: str, output: str) -> None:
    """Show the certificates that the agent uses and trusts: when each expires, the first one first, and whether the
    agent renews it.

    These are the client certificate and the API server's authorities of the kubeconfig, the serving certificate of port
    10250 and the authorities of its clients. No key is shown.

    \b
    Exit codes: 0 = shown, 1 = no agent was started, or a file cannot be read, 2 = wrong usage, 3 = one has expired.
    """
    from services.cli.agent.certificates import list_certificates

    sys.exit(list_certificates(run_dir, output, write, write_error))


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


@click.command(short_help="Show who has which CPUs and NUMA memory.")
@run_dir_option
@output_option("text", "json", "yaml")
def cpus(run_dir: str, output: str) -> None:
    """Show each CPU with its NUMA node, socket and core, and whether containers have it alone, share it, or cannot get
    it alone because it is reserved. With memoryManagerPolicy Static also the memory of NUMA nodes that containers have.

    \b
    Exit codes: 0 = shown, 1 = podsync does not answer, 2 = wrong usage.
    """
    from services.cli.agent.cpus import show_cpus

    sys.exit(show_cpus(run_dir, output, write, write_error))


@click.command(short_help="Show the devices of plugins and claims, and who has them.")
@run_dir_option
@output_option("text", "json", "yaml")
def devices(run_dir: str, output: str) -> None:
    """Show each resource of a device plugin, such as GPUs, and each device with its health, its NUMA nodes and the
    containers that have it; and the devices of resource claims with their pods.

    \b
    Exit codes: 0 = shown, 1 = volume or podsync does not answer, 2 = wrong usage.
    """
    from services.cli.agent.devices import show_devices

    sys.exit(show_devices(run_dir, output, write, write_error))


@click.command("support-bundle", short_help="Write an archive with what is needed to find a fault.")
@run_dir_option
@click.option(
    "--file",
    default="",
    type=FILE,
    metavar="FILE",
    help="Name of the archive; without it, one with node and time in this directory.",
)
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


@click.command(short_help="Show what happened to a pod, an image or the node, and why.")
@click.argument("what", required=False, default="", metavar="[POD | node | image]")
@click.argument("name", required=False, default="", metavar="[IMAGE]")
@namespace_option
@click.option(
    "--root-dir", default="", type=DIRECTORY, metavar="DIRECTORY",
    help="The agent's root directory; without it, the configured one.",
)  # fmt: skip
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
    from shared.agent.places import find_places

    if name and what != "image":
        raise click.UsageError(f"{name}: only image has a second name")
    if follow and (what in ("", "node", "image") or output != "text"):
        raise click.UsageError("--follow: needs a POD and -o text")
    try:
        root = root_dir or _root_dir(run_dir)
    except (OperatorError, OSError) as error:
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
    """Return the root directory of the agent with this run directory, "" = the configured one; where no agent was
    started, that of its flags. Raises OSError, and OperatorError for a configuration that cannot be used."""
    from shared.agent.places import find_places
    from shared.config.excerpt import load_excerpt

    try:
        return load_excerpt(run_dir or find_places().run_dir).root_dir
    except (OperatorError, OSError):
        if run_dir:
            raise
    from services.cli.config.found_configuration import find_machine_arguments
    from shared.config.evaluation import evaluate
    from shared.config.findings import ConfigurationRefusedError

    try:
        return evaluate(find_machine_arguments().arguments).config.root_dir
    except ConfigurationRefusedError as error:
        raise OperatorError(error.lines[0]) from error


COMMANDS = (status, restart, events, explain, top, cpus, devices, images, certs, support_bundle)
