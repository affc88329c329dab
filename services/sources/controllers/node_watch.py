"""Lists, watches and publishes our own Node as the API server has it."""

import logging
from typing import Any

from bus.interface import OwnedStream
from bus.messages.sources import FoundObject, NodeObject
from services.sources.controllers.api_server import ApiServer
from services.sources.controllers.list_watch import ListWatch
from services.sources.core.api_objects import metadata_text, without_managed_fields
from services.sources.core.reflector import MAX_PROMPT_PAUSE_SECONDS, Reflector
from shared.kube import paths
from shared.model.objects import Object
from shared.podspec.schema import plain_copy

log = logging.getLogger(__name__)

KEY = "node"
WHAT = "node"  # the name of its requests in log lines
UNREAD = "nodes have not yet been read at least once, cannot construct node object"


class NodeWatch:
    """Owns `node.object`, which is complete with the first list, also where there is no such Node. `prompt`: the return
    of the API server is noticed soon, until `relax` is called."""

    def __init__(self, api: ApiServer, stream: OwnedStream[NodeObject], node_name: str, *, prompt: bool) -> None:
        self._stream, self._name = stream, node_name
        self._list_watch = ListWatch(
            api=api,
            client=api.clients.node,
            what=WHAT,
            path=paths.NODES,
            selector=f"metadata.name={node_name}",
            on_list=self._on_list,
            on_change=self._on_change,
            reflector=Reflector(longest_pause=MAX_PROMPT_PAUSE_SECONDS, probes=True, prompt=prompt),
        )
        self.synced = self._list_watch.synced

    @property
    def node(self) -> Object | None:
        """Return the Node without managedFields; None = there is none, or it was not read yet."""
        known = self._stream.get(KEY)
        return None if known is None else known.node

    def relax(self) -> None:
        """Note that the pods are known, so that in an outage the return of the API server may be noticed later."""
        self._list_watch.reflector.prompt = False

    def restore(self, node: Object) -> None:
        """Publish the Node as it was known before; the stream does not become complete."""
        self._put(node)

    async def run(self) -> None:
        """List and watch until cancelled."""
        await self._list_watch.run()

    def get(self) -> FoundObject:
        """Return the answer to a request that need not be fresh."""
        if self.node is not None:
            return FoundObject(object=self.node)
        if not self.synced.is_set():
            return FoundObject(object=None, error=UNREAD)
        return FoundObject(object=None, not_found=True, error=f'node "{self._name}" not found')

    def _on_list(self, items: list[Any]) -> None:
        ours = [item for item in items if metadata_text(item, "name") == self._name]
        if ours:
            self._put(ours[0])
        elif not items:
            self._stream.delete(KEY, "the API server has no such node")
        else:
            log.warning("the list of nodes holds something else than node %s; ignored", self._name)
            return
        self._stream.mark_complete()

    def _on_change(self, kind: str, item: Any) -> None:
        if metadata_text(item, "name") != self._name:
            log.warning("the watch of node %s brought something else; ignored", self._name)
        elif kind == "DELETED":
            log.warning("node %s was deleted from the API server", self._name)
            self._stream.delete(KEY, "object deleted")
        else:
            self._put(item)

    def _put(self, item: Object) -> None:
        node, errors = plain_copy(without_managed_fields(item), nul=True)
        if errors:
            log.warning("node %s cannot be passed on: %s", self._name, "; ".join(errors[:3]))
            return
        self._stream.put(KEY, NodeObject(node=node), "object read")
