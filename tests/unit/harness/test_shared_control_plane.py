"""When a control plane is lent to the next test, and when not."""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.support.clusters import shared_control_plane
from tests.support.clusters.shared_control_plane import control_plane, lending


class Double:
    """Stands for a control plane; `done` has what was done with it."""

    def __init__(self, directory: Path, *, place: Path | None = None, audit: bool = False) -> None:
        self.place, self.hurt, self.breaks, self.done = place, False, False, [f"{directory.name} audit={audit}"]

    async def begin(self, directory: Path) -> None:
        self.done.append(f"begin {directory.name}")

    async def end_use(self) -> None:
        self.done.append("end")

    async def put_back(self) -> None:
        if self.breaks:
            raise OSError
        self.done.append("put back")

    def kill(self) -> None:
        self.done.append("kill")

    async def __aenter__(self) -> Self:
        self.done.append("enter")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.done.append("exit")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Double]:
    """The control planes in the order in which they were made."""
    found: list[Double] = []

    def make(directory: Path, **arguments: Any) -> Double:
        found.append(Double(directory, **arguments))
        return found[-1]

    monkeypatch.setattr(shared_control_plane, "ControlPlane", make)
    monkeypatch.setattr(shared_control_plane, "_lenders", [])  # without that of tests/e2e in the same process
    return found


async def use(name: str, **arguments: Any) -> None:
    async with control_plane(Path(name), **arguments):
        pass


async def test_one_serves_one_test_after_the_other_and_is_killed_at_the_end(made: list[Double], tmp_path: Path) -> None:
    with lending(tmp_path):
        await use("a")
        await use("b")
        [plane] = made
        assert plane.done[1:] == ["begin a", "end", "put back", "begin b", "end", "put back"]
        assert plane.place is not None and plane.place.parent == tmp_path
    assert plane.done[-1] == "kill"


async def test_one_of_two_that_are_in_use_at_the_same_time_is_kept(made: list[Double], tmp_path: Path) -> None:
    with lending(tmp_path):
        async with control_plane(Path("a")):
            await use("b")
            assert made[1].done[-2:] == ["end", "kill"]
        await use("c")
    assert len(made) == 2


async def test_one_that_a_test_has_hurt_or_that_is_not_as_new_is_not_lent_again(
    made: list[Double], tmp_path: Path
) -> None:
    with lending(tmp_path):
        async with control_plane(Path("a")):
            made[0].hurt = True
        assert made[0].done[-2:] == ["end", "kill"]
        with pytest.raises(OSError):
            async with control_plane(Path("b")):
                made[1].breaks = True
        assert made[1].done[-2:] == ["end", "kill"]
        await use("c")
    assert len(made) == 3


async def test_one_whose_test_failed_is_lent_again_as_new(made: list[Double], tmp_path: Path) -> None:
    with lending(tmp_path):
        with pytest.raises(ValueError):
            async with control_plane(Path("a")):
                raise ValueError
        assert made[0].done[-2:] == ["end", "put back"]
        await use("b")
    assert len(made) == 1


async def test_one_with_other_arguments_takes_the_place_of_the_one_that_is_kept(
    made: list[Double], tmp_path: Path
) -> None:
    with lending(tmp_path):
        await use("a")
        await use("b", audit=True)
        assert made[0].done[-1] == "kill"
        await use("c", audit=True)
    assert [plane.done[0] for plane in made] == ["a audit=False", "b audit=True"]
    assert made[1].done[-1] == "kill"


async def test_where_nothing_is_lent_each_ends_with_its_test(made: list[Double]) -> None:
    await use("a")
    await use("b", audit=True)
    assert [plane.done[1:] for plane in made] == [["enter", "exit"]] * 2


async def test_the_double_refuses_what_it_does_not_have(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TEST_API_SERVER", "double")
    with pytest.raises(AssertionError, match="no feature_gates"):
        await use(str(tmp_path), feature_gates={"EphemeralContainers": True})
    await use(str(tmp_path))
