"""The command `bulkhead`: what an operator asks at a prompt. Reads and prints; starts nothing."""

import sys
import tempfile
from importlib.metadata import version as version_of
from pathlib import Path

import click

from services.bootstrap.adapters.kubeconfig import resolve_in_child
from shared.config.findings import ConfigurationRefusedError
from shared.config.flags import FIELD_FLAGS, OWN_FLAGS
from shared.config.loader import evaluate
from shared.config.places import find_arguments, find_places
from shared.errors import OperatorError


@click.group()
def main() -> None:
    """Bulkhead: a Kubernetes node agent made of separate, supervised processes."""


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(f"bulkhead {version_of('bulkhead-kubelet')}")


@main.group()
def config() -> None:
    """The kubelet configuration."""


@config.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def check(flags: tuple[str, ...]) -> None:
    """Check a configuration: `bulkhead config check [--config FILE] [kubelet flags]`.

    Without flags, those bootstrap would use (KUBELET_ARGS, or the args file). Every problem is one line; exit 1 if any.
    """
    try:
        resolved = evaluate(list(flags) or find_arguments(find_places()))
        if problems := _kubeconfig_problems(resolved.config.kubeconfig):
            raise ConfigurationRefusedError(problems)
    except ConfigurationRefusedError as error:
        for line in error.lines:
            click.echo(line, err=True)
        sys.exit(1)
    except OperatorError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    for remark in resolved.remarks:
        click.echo(f"note: {remark}")
    if resolved.without_effect:
        click.echo(f"note: accepted, but without effect yet: {', '.join(resolved.without_effect)}")
    click.echo(f"{resolved.config.config_file or 'the flags'}: good")


def _kubeconfig_problems(kubeconfig: str) -> tuple[str, ...]:
    """What is wrong with the kubeconfig and the files it names; plugins are not run."""
    if not kubeconfig:
        return ()
    with tempfile.TemporaryDirectory() as scratch:
        return resolve_in_child(kubeconfig, Path(scratch), patience=0).problems


@config.command("flags")
def list_flags() -> None:
    """List the kubelet flags that exist, with the configuration key each one sets."""
    for name in sorted((*OWN_FLAGS, *FIELD_FLAGS)):
        key = FIELD_FLAGS[name][0] if name in FIELD_FLAGS else ""
        click.echo(f"--{name:45} {key}".rstrip())


if __name__ == "__main__":
    main()
