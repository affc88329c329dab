"""`bulkhead logs POD -f` or `bulkhead exec POD -- yes` for the container of tests/service/server: KIND RUN_DIR."""

import signal
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import click

from services.cli.command import SectionedGroup
from services.cli.pods import logs, remote_command
from services.cli.terminal.output import write_error
from tests.service.server.running import CONTAINER, NAMESPACE, POD


@click.group(cls=SectionedGroup)
def main() -> None:
    """As `bulkhead`."""


@main.command("logs")
@click.argument("run_dir")
def logs_command(run_dir: str) -> None:
    """The log of the container, followed."""
    sys.exit(logs.show_pod_logs(run_dir, POD, NAMESPACE, logs.LogOptions(follow=True), write_error))


@main.command("exec")
@click.argument("run_dir")
def exec_command(run_dir: str) -> None:
    """A command that writes without an end."""
    code = remote_command.run_in_container(
        run_dir, POD, NAMESPACE, CONTAINER, ("yes",), write_error, stdin=False, terminal=False
    )
    sys.exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background of a shell ignores it
    agent: Any = SimpleNamespace(run_dir=sys.argv[2], require=lambda _: None)
    for module in (logs, remote_command):  # the streams of the agent are not asked
        vars(module)["local_agent"] = lambda _: nullcontext(agent)
        vars(module)["find_pod"] = lambda *_: (SimpleNamespace(namespace=NAMESPACE, name=POD), None)
        vars(module)["choose_container"] = lambda *_: CONTAINER
    main()
