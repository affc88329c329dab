"""Creates our Node, or returns the one that exists; retried until it succeeds (node.md 1.1)."""

import asyncio
from collections.abc import Callable

from services.status.controllers.node_startup import NodeStartup
from services.status.core.initial_node import initial_node
from services.status.core.node_facts import NodeFacts
from shared.kube import paths
from shared.kube.interface import READ_TIMEOUT_SECONDS, WRITE_TIMEOUT_SECONDS, ApiClient, ApiError, ApiStatusError
from shared.model.objects import Object
from shared.time.backoff import Backoff

RETRIES = Backoff(initial=0.1, cap=7.0)


async def register(
    client: ApiClient, facts: Callable[[], NodeFacts], note: Callable[[str], None], startup: NodeStartup
) -> Object:
    """Create the Node with the present facts and return it; a Node that exists is returned as it is. `note` receives
    failures, and `startup` the moment of the creation."""
    failures = 0
    while True:
        known = facts()
        try:
            node = await client.create(paths.NODES, initial_node(known), timeout=WRITE_TIMEOUT_SECONDS)
            await startup.created()
            return node
        except ApiError as error:
            failure = error
        if isinstance(failure, ApiStatusError) and (failure.already_exists or failure.forbidden):
            try:
                return await client.get(paths.node(known.identity.name), timeout=READ_TIMEOUT_SECONDS)
            except ApiError as error:
                failure = error if not failure.forbidden else failure
        note(f"the node cannot be registered: {failure}")
        failures += 1
        await asyncio.sleep(RETRIES.delay(failures))
