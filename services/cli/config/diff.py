"""`bulkhead config diff` prints the effective values in which two configurations differ, with their origins and what a
reload costs.

Which services restart is decided by the table in `shared.config.readers`, which the agent uses for its own reloads, and
what happens to running pods by the table in `shared.config.pod_costs`."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from bus.messages.services import SERVICES
from services.cli.config.found_configuration import read_running_configuration
from services.cli.config.show import leaves, masked, own_flags
from services.cli.terminal.output import write_report
from shared.agent.places import find_places
from shared.config.effective import EffectiveConfig
from shared.config.evaluation import evaluate
from shared.config.field_table import FIELDS
from shared.config.findings import ConfigurationRefusedError
from shared.config.layers import Origin
from shared.config.nested import value_of
from shared.config.pod_costs import PodEffect, gravest
from shared.config.readers import Change, changes, restarted_by
from shared.config.resolve import Resolved
from shared.model.frozen_copy import replace
from shared.model.schema import MapOf

Write = Callable[[str], None]
SAME, DIFFERENT, REFUSED = 0, 1, 2  # exit codes, as those of diff
RUNNING = "running"  # given in place of a file: the configuration in force
CHANGED = "changed"  # shown in place of a secret value
_ABSENT = "not set"


class Side(Struct, frozen=True):
    """One configuration. `values`: each value with its origin, by dotted key or flag."""

    values: dict[str, tuple[Any, str]]
    config: EffectiveConfig


class Difference(Struct, frozen=True, kw_only=True):
    """One value that differs. `services`: those that restart for it at a reload. `fixed`: a reload refuses it. `pods`:
    what happens to running pods, a PodEffect; `pods_note` says it in one phrase."""

    name: str
    old: Any
    new: Any
    old_origin: str
    new_origin: str
    services: tuple[str, ...]
    fixed: bool
    pods: str = str(PodEffect.NONE)
    pods_note: str = ""


def diff_configurations(
    old: str, new: str, arguments: Callable[[], list[str]], form: str, out: Write, err: Write
) -> int:
    """Print the differences of two files, or of `running` and a file, with the same flags. Return the exit code."""
    try:
        flags = arguments()
        sides = [_side(name, flags) for name in (old, new)]
    except ConfigurationRefusedError as error:
        for line in error.lines:
            err(line)
        return REFUSED
    found = differences(*sides)
    lines = _text(found, restarted_by(changes(sides[0].config, sides[1].config)))
    write_report(form, [asdict(one) for one in found], lines, out)
    return DIFFERENT if found else SAME


def differences(old: Side, new: Side) -> list[Difference]:
    """Return every value that differs, by name. A value that is not shown, such as a header of a URL, is `changed`."""
    costs = changes(old.config, new.config)
    absent = None, _ABSENT
    found = {}
    for name in old.values.keys() | new.values.keys():
        before, after = old.values.get(name, absent), new.values.get(name, absent)
        if before[0] != after[0]:
            found[name] = _difference(name, before, after, [cost for cost in costs if _concerns(cost.name, name)])
    for cost in costs:
        if not any(_concerns(cost.name, name) for name in found):
            found[cost.name] = _difference(cost.name, (None, ""), (CHANGED, ""), [cost])
    return [found[name] for name in sorted(found)]


def _side(name: str, flags: Sequence[str]) -> Side:
    if name != RUNNING:
        resolved = evaluate([*flags, f"--config={name}"])
        values = {".".join(path): (value, str(origin)) for path, value, origin in _leaves_of(resolved)}
        return Side(values | _flags_of(resolved), _without_file(resolved.config))
    run_dir = find_places().run_dir
    config = read_running_configuration(run_dir)
    if config is None:
        raise ConfigurationRefusedError((f"{run_dir}: no agent runs (start it, or name two files)",))
    document = masked(config.document)
    in_force = {name: (value, "in force") for name, value in settings(document)}
    return Side(in_force | _flags_of(evaluate(list(flags))), _without_file(config))


def _without_file(config: EffectiveConfig) -> EffectiveConfig:
    """Return the configuration without the name of its file, because the new file replaces the old one."""
    return replace(config, config_file="", given_flags={})


def _leaves_of(resolved: Resolved) -> Iterator[tuple[list[str], Any, Origin]]:
    return leaves(resolved.layers, masked(resolved.layers.data))


def _flags_of(resolved: Resolved) -> dict[str, tuple[Any, str]]:
    return {f"--{name}": (value, origin) for name, value, origin in own_flags(resolved) if name != "config"}


def settings(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield dotted key and value of every value that is set in an effective configuration; for a map, those of each
    entry."""
    for one in FIELDS:
        value = value_of(document, one.key)
        if isinstance(one.schema, MapOf) and value:
            yield from ((f"{one.key}.{name}", item) for name, item in value.items())
        elif value is not None:
            yield one.key, value


def _difference(name: str, before: tuple[Any, str], after: tuple[Any, str], costs: Sequence[Change]) -> Difference:
    of_pods = gravest(tuple(cost.pods for cost in costs))
    return Difference(
        name=name,
        old=before[0],
        new=after[0],
        old_origin=before[1],
        new_origin=after[1],
        services=_ordered(restarted_by(tuple(costs))),
        fixed=any(cost.fixed for cost in costs),
        pods=str(of_pods.effect),
        pods_note=of_pods.phrase,
    )


def _concerns(cost: str, name: str) -> bool:
    """Return whether the change of a setting concerns this value: the setting is the value, is inside it, or contains
    it."""
    return cost == name or cost.startswith(f"{name}.") or name.startswith(f"{cost}.")


def _text(found: Sequence[Difference], restarted: Collection[str]) -> Iterator[str]:
    for one in found:
        yield f"{one.name}: {_cost(one)}"
        if one.pods_note:
            yield f"  pods: {one.pods_note}"
        if one.new == CHANGED:
            continue
        for sign, value, origin in (("-", one.old, one.old_origin), ("+", one.new, one.new_origin)):
            shown = "" if value is None else f" {json.dumps(value)}"
            yield f"  {sign}{shown}  # {origin}"
    if not found:
        yield "no effective value differs"
        return
    services = _ordered(restarted)
    yield ""
    if fixed := [one.name for one in found if one.fixed]:
        yield f"a reload refuses this: stop the agent and start it again for {', '.join(fixed)}; then {_pods(found)}"
    else:
        yield f"a reload restarts {', '.join(services) or 'no service'}; {_pods(found)}"


def _pods(found: Sequence[Difference]) -> str:
    """Return what happens to the running pods, with the names of the values that cause it."""
    texts = {
        PodEffect.RESTART: "pods restart",
        PodEffect.END: "some pods end",
        PodEffect.UNMANAGED: "podsync may not start, and pods run on without it,",
        PodEffect.EVICT: "pods may be evicted",
    }
    causes = {effect: [one.name for one in found if one.pods == effect] for effect in texts}
    costs = [f"{text} for {', '.join(causes[effect])}" for effect, text in texts.items() if causes[effect]]
    return "; ".join(costs) or "pods keep running"


def _cost(one: Difference) -> str:
    if one.fixed:
        return "not by a reload"
    return f"restarts {', '.join(one.services)}" if one.services else "restarts no service"


def _ordered(services: Collection[str]) -> tuple[str, ...]:
    return tuple(service for service in SERVICES if service in services)
