"""Every golden case: both messages are the base's but for the differences of the case."""

import pytest

from shared.cri.interface import Message
from tests.support.recorded.differences import assert_same
from tests.unit.podsync.cri.golden import (
    containers,
    environments,
    mounts,
    names,
    ports,
    resources,
    sandboxes,
    security,
    user_namespaces,
)
from tests.unit.podsync.cri.golden.case import Case, built, expected

MODULES = (sandboxes, ports, containers, environments, security, resources, user_namespaces, mounts, names)
CASES = [
    pytest.param(case, version, id=f"{module.__name__.rpartition('.')[2]}: {case.name}, {version}")
    for module in MODULES
    for case in module.CASES
    for version in case.on
]


def with_env_as_map(message: Message) -> Message:
    """Environments as the cases write them."""
    return {**message, "envs": {env["key"]: env.get("value", "") for env in message.get("envs", ())}}


def test_there_are_enough_of_them_and_each_has_its_own_name() -> None:
    names_of = [case.name for module in MODULES for case in module.CASES]
    assert len(names_of) >= 150
    assert len(set(names_of)) == len(names_of)


@pytest.mark.share(4)
@pytest.mark.parametrize(("case", "version"), CASES)
def test_the_messages_match_the_reference(case: Case, version: str) -> None:
    sandbox, message = built(case, version)
    wanted_sandbox, wanted = expected(case, version)
    wanted.setdefault("envs", {})
    assert_same(sandbox, wanted_sandbox)
    assert_same(with_env_as_map(message), wanted)
