"""`bulkhead images` lists the images of this node from pleg's stream `node.images`, also without a cluster."""

from collections.abc import Callable
from typing import Any

from services.cli.agent.local_agent import Agent, local_agent
from services.cli.terminal.output import dump
from services.cli.terminal.table import size, table, terminal_width
from shared.errors import OperatorError

Write = Callable[[str], None]
STREAM = "node.images"
_NO_TAG = "<none>"
_ID_CHARACTERS = 13  # as crictl shows them


def list_images(run_dir: str, name: str, form: str, out: Write, err: Write) -> int:
    """Print the images whose names or ids contain `name` ("" = all), the largest first. Return the exit code."""
    try:
        with local_agent(run_dir) as agent:
            images = _images(agent)
    except OperatorError as error:
        err(str(error))
        return 1
    found = [one for one in images if any(name in text for text in (one["id"], *one["names"]))]
    if form != "text":
        out(dump(found, form))
    elif found:
        for line in image_lines(found, terminal_width()):
            out(line)
    else:
        err("no images on this node" + (f" with {name!r} in their name" if name else ""))
    return 0


def image_lines(images: list[dict[str, Any]], width: int) -> list[str]:
    """Return a table with a row for each tag; an image without a tag has one row with its repository."""
    rows = []
    for one in images:
        short = str(one["id"]).removeprefix("sha256:")[:_ID_CHARACTERS]
        tagged = [text.rpartition(":") for text in one["names"] if "@" not in text]
        digests = [text.partition("@")[0] for text in one["names"] if "@" in text]
        named = [(repository, tag) for repository, _, tag in tagged] or [((digests or [_NO_TAG])[0], _NO_TAG)]
        rows += [[repository, tag, short, size(one["size_bytes"])] for repository, tag in named]
    return table(["IMAGE", "TAG", "IMAGE ID", "SIZE"], rows, width)


def _images(agent: Agent) -> list[dict[str, Any]]:
    """Return the images of the node. Raises OperatorError where pleg does not answer."""
    agent.require("pleg")
    items = agent.streams(STREAM)[STREAM]
    if items is None:
        raise agent.silence_of("pleg")
    if "node" not in items:
        raise OperatorError("the runtime has not listed its images yet", remedy="bulkhead status shows the runtime")
    return list(items["node"]["images"])
