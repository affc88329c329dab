"""`bulkhead pods` and the commands below it, which list, apply and delete pods: names, options and exit codes.

Each imports its code when it runs.
"""

import sys

import click

from services.cli.agent_commands import namespace_option, output_option, pod_argument, run_dir_option
from services.cli.output import write, write_error

_DEFAULT = "list"

files_option = click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="YAML or JSON; - is standard input. May be repeated.",
)
space_option = click.option("-n", "--namespace", default="", help="Namespace of what names none; without it, default.")


class PodsGroup(click.Group):
    """Without a command of its own it is `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the remaining words, as click does."""
        own = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if args and args[0] in own else [_DEFAULT, *args])


@click.group(cls=PodsGroup)
def pods() -> None:
    """List the pods of this node, or run pods on a node without a cluster.

    `bulkhead pods [POD] [OPTIONS]` is `bulkhead pods list [POD] [OPTIONS]`.
    """


@pods.command(_DEFAULT)
@pod_argument(required=False)
@namespace_option
@run_dir_option
@output_option("text", "json", "yaml")
@click.option("--applied", is_flag=True, help="List what was applied instead, with ConfigMaps and Secrets.")
def list_command(pod: str, namespace: str, run_dir: str, output: str, applied: bool) -> None:
    """List the pods of this node: state, restarts and what each waits for.

    POD is a name, namespace/name, UID, or the name in a static pod's manifest.

    \b
    Exit codes: 0 = listed, 1 = no agent answers or there is no such pod, 2 = wrong usage.
    """
    if applied:
        if pod:
            raise click.UsageError("POD: not with --applied")
        from services.cli.manifests import list_manifests

        sys.exit(list_manifests(_run_dir(run_dir), namespace, output, write, write_error))
    from services.cli.pods import list_pods

    sys.exit(list_pods(run_dir, pod, namespace, output, write, write_error))


@pods.command("apply")
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
    from services.cli.manifests import apply_manifests

    sys.exit(apply_manifests(_run_dir(run_dir), files, namespace, write, write_error))


@pods.command("delete")
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
    from services.cli.manifests import delete_manifests

    sys.exit(delete_manifests(_run_dir(run_dir), files, names, namespace, write, write_error))


@click.command("what-if")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@space_option
@click.option("--static", is_flag=True, help="As a manifest in staticPodPath, on a node of a cluster, too.")
@run_dir_option
@output_option("text", "json", "yaml")
def what_if(files: tuple[str, ...], namespace: str, static: bool, run_dir: str, output: str) -> None:
    """Show what would become of the pods of files on this node now: bulkhead what-if pod.yaml

    Admitted or not, and why; which pods it would preempt; images, cgroup, mounts, and which Secrets, ConfigMaps and
    claims are absent. Nothing is started, and no record changes. FILE is YAML or JSON, - is standard input; of a
    Deployment, StatefulSet, DaemonSet, Job or CronJob its pod template is meant. On a node of a cluster it is a pod of
    the API server, on a node that runs alone one that `bulkhead pods apply` applies.

    \b
    Exit codes: 0 = every pod is admitted, 1 = one is not, 2 = wrong usage or a file that cannot be used,
    3 = no agent answers, or admission waits.
    """
    from services.cli.what_if import print_what_if

    sys.exit(print_what_if(run_dir, files, namespace, output, write, write_error, static=static))


def _run_dir(given: str) -> str:
    from shared.places import find_places

    return given or find_places().run_dir
