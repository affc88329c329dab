"""`bulkhead get` offers the listing commands by the names that kubectl has for them."""

import click

from services.cli.agent.commands import certs, events, images, status
from services.cli.pods.commands import list_command

_SHORT = {
    "pod": "pods", "po": "pods", "event": "events", "ev": "events", "image": "images", "cert": "certs",
    "nodes": "node", "no": "node",
}  # fmt: skip


class GetGroup(click.Group):
    """Finds commands also by the singular and the short names of kubectl."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name for click, or None where there is none."""
        return super().get_command(ctx, _SHORT.get(cmd_name, cmd_name))


@click.group(cls=GetGroup, short_help="List pods, events, images, certs or the node.")
def get() -> None:
    """List what kubectl get lists, of this node: bulkhead get pods

    `get pods` is `bulkhead pods`, `get node` is `bulkhead status`, and the others are the commands of their name. Each
    takes the options of that command; -o json and -o yaml print its data, not objects of the API.
    """


for _name, _command in (
    ("pods", list_command),
    ("events", events),
    ("images", images),
    ("certs", certs),
    ("node", status),
):
    get.add_command(_command, _name)
