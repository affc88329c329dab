"""Declares the command `bulkhead preflight`: its options and exit codes."""

import sys

import click

from services.cli.agent.options import FILE, output_option
from services.cli.terminal.output import dump, write


@click.command(short_help="Check whether this agent would run the pods of this node.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED, metavar="[-- KUBELET FLAGS]")
@click.option(
    "--unit", default="kubelet.service", show_default=True, metavar="NAME", help="The kubelet's systemd unit."
)
@click.option(
    "--pods", default="", type=FILE, metavar="FILE",
    help="Check the pods of this file or directory (- = standard input) in place of the node's.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(0.1, 600), default=10.0, show_default=True, metavar="SECONDS",
    help="How long each check may take.",
)  # fmt: skip
@output_option("text", "json", "yaml")
def preflight(flags: tuple[str, ...], unit: str, pods: str, timeout: float, output: str) -> None:
    """Check whether this agent would run the pods of this node, before it replaces the kubelet. Changes nothing.

    Reads the kubelet's unit with its drop-ins and environment files (or the flags after `--`), the configuration, the
    node's pods from the API server or the kubelet, the runtime, cgroups, kernel, ports and disk. Each pod keeps
    running, restarts (a static pod), or cannot run yet, with the field and what follows.

    \b
    Exit codes: 0 = it can take over, perhaps with warnings, 1 = there are problems, 2 = wrong usage.
    """
    from services.cli.preflight.examination import Options, examine
    from services.cli.preflight.text import report_data, report_text
    from services.cli.terminal.table import paint

    report = examine(Options(unit=unit, flags=flags, pods=pods, timeout=timeout))
    if output == "text":
        for line in report_text(report, paint()):
            write(line)
    else:
        write(dump(report_data(report), output))
    sys.exit(int(not report.can_take_over))
