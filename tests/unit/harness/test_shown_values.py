"""A failed assertion in what tests share shows its values, as one in a test file does."""

import pytest

from tests.unit.cri.runtime_contract import RuntimeContract


class _Runtime:
    async def observe(self, uid: str) -> dict[str, str]:
        return {uid: "found"}


class _World:
    runtime = _Runtime()


async def test_a_failed_assertion_of_a_contract_shows_its_values() -> None:
    with pytest.raises(AssertionError, match="'no-such-pod': 'found'"):
        await RuntimeContract().test_an_unknown_pod_is_absent(_World())  # type: ignore[arg-type]
