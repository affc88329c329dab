"""Finds the features of a pod's runtime handler (of its RuntimeClass), and which pods need them. Pure."""

from bus.messages.pleg import RuntimeHandler
from services.podsync.core.cri.user_namespaces import needs_user_namespace
from services.podsync.core.node.node_facts import NodeFacts
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.podspec.containers import every_container


def needs_handler_features(pod: Object) -> bool:
    """Return whether the pod requests something that not every handler supports."""
    mounts = (mount for _, container in every_container(pod) for mount in container.get("volumeMounts") or ())
    return needs_user_namespace(pod) or any(mount.get("recursiveReadOnly") for mount in mounts)


def for_handler(facts: NodeFacts, handlers: tuple[RuntimeHandler, ...] | None, name: str) -> NodeFacts:
    """Return the facts for a pod of the handler with this name, "" = the default one. `handlers`: as the runtime
    reports them, None = it does not; a handler that is not reported has no features."""
    features = next((handler for handler in handlers or () if handler.name == name), RuntimeHandler(name=name))
    return replace(
        facts,
        runtime_handler=name,
        user_namespaces=features.user_namespaces,
        recursive_read_only=features.recursive_read_only_mounts,
    )
