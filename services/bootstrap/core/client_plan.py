"""Decides what a start does to get a client certificate, by the table of config.md 5.4. Pure."""

from enum import StrEnum


class ClientPlan(StrEnum):
    """What a start does about the node's own credentials."""

    AS_IS = "use the kubeconfig as it is"
    MANAGED = "ask for certificates with the kubeconfig's credentials, and use only those certificates"
    BOOTSTRAP_ONCE = "ask for one certificate with the bootstrap kubeconfig, then write the kubeconfig"
    BOOTSTRAP_MANAGED = "write the kubeconfig, ask for certificates with the bootstrap kubeconfig"


def plan_client(*, rotate: bool, bootstrap_given: bool, still_valid: bool) -> ClientPlan:
    """Return the plan of a start. `still_valid`: the kubeconfig can be used, and contains a client certificate that has
    not ended."""
    if not bootstrap_given or still_valid:
        return ClientPlan.MANAGED if rotate else ClientPlan.AS_IS
    return ClientPlan.BOOTSTRAP_MANAGED if rotate else ClientPlan.BOOTSTRAP_ONCE


def asks_as_node(*, own_valid: bool, own_refused: bool, bootstrap_usable: bool) -> bool:
    """Return whether the next certificate is requested with the present one. If the API server refuses the present one,
    because its authority was replaced, the bootstrap kubeconfig is used instead, where there is one."""
    return own_valid and not (own_refused and bootstrap_usable)
