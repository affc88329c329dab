"""Declares the command `bulkhead what-if`: its options and exit codes."""

import sys

import click

from services.cli.agent.options import FILE, output_option, run_dir_option, space_option
from services.cli.terminal.output import write, write_error


@click.command("what-if", short_help="Show what would become of a pod on this node now.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=FILE)
@space_option
@click.option("--static", is_flag=True, help="As a manifest in staticPodPath, on a node of a cluster, too.")
@run_dir_option
@output_option("text", "json", "yaml")
def what_if(files: tuple[str, ...], namespace: str, static: bool, run_dir: str, output: str) -> None:
    """Show what would become of the pods of files on this node now: bulkhead what-if pod.yaml

    Admitted or not, and why; which pods it would preempt; images, cgroup, mounts, CPUs and devices; which Secrets,
    ConfigMaps, claims and drivers of resource claims are absent. Nothing is started, and no record changes. FILE is
    YAML or JSON, - is standard input; of a Deployment, StatefulSet, DaemonSet, Job or CronJob its pod template is
    meant. On a node of a cluster it is a pod of the API server, on a node that runs alone one that
    `bulkhead pods apply` applies.

    \b
    Exit codes: 0 = every pod is admitted, 1 = one is not, 2 = wrong usage or a file that cannot be used,
    3 = no agent answers, or admission waits.
    """
    from services.cli.what_if.answers import print_what_if

    sys.exit(print_what_if(run_dir, files, namespace, output, write, write_error, static=static))
