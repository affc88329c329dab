"""Declares the commands of `bulkhead` that exchange the kubelet of a node: options and exit codes. Each imports its
code when it runs."""

import sys

import click

from services.cli.agent.options import output_option, run_dir_option
from services.cli.terminal.output import write, write_error, write_error_if_possible, write_if_possible

_TIMEOUT_SECONDS = 60.0  # the default of --timeout


@click.command(short_help="Run Bulkhead in place of this node's kubelet.")
@run_dir_option
@click.option("--dry-run", is_flag=True, help="Show the checks and each step, and change nothing.")
@click.option(
    "--timeout", type=click.FloatRange(5, 3600), default=_TIMEOUT_SECONDS, show_default=True, metavar="SECONDS",
    help="How long the node may take to be ready after the restart, before the takeover is rolled back.",
)  # fmt: skip
@click.option(
    "--without-api-server", is_flag=True, help="Do not wait for Ready in the cluster: the API server is away."
)
@click.option(
    "--ignore-preflight", is_flag=True, help="Go on where preflight finds problems, such as a pod that cannot run."
)
@output_option("text", "json", "yaml")
def takeover(
    run_dir: str, dry_run: bool, timeout: float, without_api_server: bool, ignore_preflight: bool, output: str
) -> None:
    """Run Bulkhead in place of this node's kubelet, with the same unit, flags and configuration. Containers run on.

    Checks what `bulkhead preflight` checks, writes one drop-in for kubelet.service, restarts it, and waits until the
    node is Ready and every container that ran before is recognised; static pods start again. Where that fails, or at
    Ctrl-C, the node's own kubelet is started again. May be killed at any step and run again.

    \b
    Exit codes: 0 = Bulkhead runs the node, 1 = refused, the kubelet was not stopped, 2 = wrong usage,
    3 = failed and rolled back, 4 = the roll-back is not complete, 130 = ended by Ctrl-C and rolled back.
    """
    from services.cli.takeover.account import Account
    from services.cli.takeover.exchange import Options, take_over

    options = Options(
        timeout=timeout,
        run_dir=run_dir,
        needs_api_server=not without_api_server,
        ignore_preflight=ignore_preflight,
    )
    if dry_run:
        sys.exit(take_over(options, Account("takeover", write, write_error, output), dry_run=True))
    sys.exit(take_over(options, Account("takeover", write_if_possible, write_error_if_possible, output)))


@click.command("give-back", short_help="Run the node's own kubelet again, after a takeover.")
@run_dir_option
@click.option(
    "--timeout", type=click.FloatRange(5, 3600), default=_TIMEOUT_SECONDS, show_default=True, metavar="SECONDS",
    help="How long the kubelet may take to be ready after the restart.",
)  # fmt: skip
@output_option("text", "json", "yaml")
def give_back(run_dir: str, timeout: float, output: str) -> None:
    """Run the node's own kubelet again, as before `bulkhead takeover`. Containers run on.

    Removes the drop-in, restarts kubelet.service, and waits until its kubelet is healthy and, where the API server
    answers, the Node is Ready; static pods start again. May be killed at any step and run again.

    \b
    Exit codes: 0 = the node's own kubelet runs, 1 = refused, nothing was changed, 2 = wrong usage,
    4 = the kubelet does not become ready, 130 = ended by Ctrl-C.
    """
    from services.cli.takeover.account import Account
    from services.cli.takeover.exchange import give_back

    account = Account("give-back", write_if_possible, write_error_if_possible, output)
    sys.exit(give_back(timeout, run_dir, account))


COMMANDS = (takeover, give_back)
