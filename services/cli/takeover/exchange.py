"""`bulkhead takeover` and `bulkhead give-back`: exchange the kubelet of a node that systemd runs, in both directions.

Mechanism
    One drop-in for kubelet.service, which replaces the program in ExecStart= and keeps its words and variables. systemd
    runs one main process for a unit, so two kubelets cannot run, and the unit's Restart= starts one that is missing.
    A second unit with Conflicts= would need two changes (enable one, disable the other), with a moment of none or two
    between them, and `systemctl restart kubelet`, which kubeadm uses, would act on the wrong one.
Owns
    `<unit>.d/90-bulkhead.conf` in /etc/systemd/system; no file of the kubelet is changed.
Persists
    `/var/lib/bulkhead/takeover.json` (`record`): the intent, the next step, and the containers that ran
    before. It is saved before each step. `takeover.lock` beside it is held while a command works.
On restart
    `plan` derives the next step from the intent and from what systemd shows, not from the saved step. A second
    command therefore continues from any point at which the first one was killed, in its own direction: `takeover`
    forward, `give-back` backward; a roll-back that was begun is completed first.
Modules
    `plan` and `unit` decide (pure); `record` and `node` act; `operation` is the loop; `prerequisites`
    refuses before anything is changed. This one decides what is run, and what an operator reads of it.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from msgspec import Struct

from services.cli.agent.local_agent import local_agent
from services.cli.preflight.examination import Options as Preflight
from services.cli.preflight.examination import examine
from services.cli.preflight.text import report_data, report_text
from services.cli.systemd.command_line import unit_variables, use_places_of
from services.cli.systemd.unit import ServiceUnit
from services.cli.takeover.account import Account
from services.cli.takeover.api_server import node_ready
from services.cli.takeover.containers import compare, running_containers
from services.cli.takeover.node import SystemdNode, Target, describe, running_kubelet
from services.cli.takeover.operation import DONE, INTERRUPTED, REFUSED, ROLLED_BACK, Operation, Outcome
from services.cli.takeover.plan import Intent, Kubelet, Step, intent_after, steps_of
from services.cli.takeover.prerequisites import Found, check_takeover, configuration, kubelet_unit, preflight_problems
from services.cli.takeover.record import Record, RecordFile, hold_lock
from services.cli.takeover.unit import DROP_IN, DROP_INS, UNIT, loaded_kubelet
from services.cli.terminal.table import paint
from shared.agent.places import find_places
from shared.config.effective import EffectiveConfig
from shared.errors import OperatorError
from shared.model.frozen_copy import replace

Write = Callable[[str], None]
STATE = Path("/var/lib/bulkhead")
_PROGRAM = "kubelet"
_MAX_PREFLIGHT_SECONDS = 60.0  # of each check
_FILE = DROP_INS / f"{UNIT}.d" / DROP_IN


class Options(Struct, frozen=True, kw_only=True):
    """The options of a takeover. `timeout`: seconds that the node has to become ready. `run_dir`: "" = that of the
    unit. `needs_api_server`: the API server must show the node as Ready. `ignore_preflight`: preflight's problems do
    not count."""

    timeout: float = 60.0
    run_dir: str = ""
    needs_api_server: bool = True
    ignore_preflight: bool = False


def take_over(options: Options, account: Account, *, dry_run: bool = False) -> int:
    """Run Bulkhead in place of the unit's kubelet. Return the exit code (`operation`)."""
    try:
        unit = kubelet_unit()
        use_places_of(unit)
        if dry_run:
            account.is_dry_run = True
            return account.finish(_show_plan(unit, options, account))
        with hold_lock(STATE):
            return account.finish(_take_over(unit, options, account))
    except OperatorError as error:
        account.problem(str(error))
    except OSError as error:
        if dry_run and isinstance(error, BrokenPipeError):  # as with `| head`
            raise
        account.problem(f"{error.filename or STATE}: {error.strerror} (nothing was changed)")
    except KeyboardInterrupt:
        account.problem("interrupted: nothing was changed")
        return account.finish(INTERRUPTED)
    return account.finish(REFUSED)


def give_back(timeout: float, run_dir: str, account: Account) -> int:
    """Run the unit's own kubelet again. Return the exit code (`operation`)."""
    try:
        unit = kubelet_unit()
        with suppress(OperatorError):  # the way back does not depend on them, and _give_back reports the error
            use_places_of(unit)
        with hold_lock(STATE):
            return account.finish(_give_back(unit, timeout, run_dir, account))
    except OperatorError as error:
        account.problem(str(error))
    except OSError as error:
        account.problem(f"{error.filename or STATE}: {error.strerror} (bulkhead give-back continues)")
    except KeyboardInterrupt:
        account.problem("interrupted (bulkhead give-back continues)")
        return account.finish(INTERRUPTED)
    return account.finish(REFUSED)


def our_program() -> str:
    """Return the `kubelet` beside the interpreter of this command."""
    return str(Path(sys.executable).parent / _PROGRAM)


def _take_over(unit: ServiceUnit, options: Options, account: Account) -> int:
    out, err = account.line, account.problem
    run_dir, timeout, needs_api_server = options.run_dir, options.timeout, options.needs_api_server
    file, program = RecordFile(STATE), our_program()
    record = file.load()
    unfinished = record if record is not None and not record.done else None
    if unfinished and intent_after(unfinished.intent, Intent.TAKEOVER) is Intent.ROLL_BACK:
        out(f"the last takeover failed ({unfinished.reason}) and is not rolled back yet: this is done now")
        node = SystemdNode(_own_target(unit, run_dir, out), file)
        _end_with_ctrl_c()
        outcome = Operation(node, unfinished, timeout, out).roll_back(unfinished.reason)
        account.ended(outcome)
        return _rolled_back(outcome, err)
    loaded = loaded_kubelet(unit, program) is Kubelet.BULKHEAD
    begun = bool(unfinished) or loaded or _FILE.exists()
    found = _unfinished_takeover(unit) if begun else _checked(unit, run_dir, needs_api_server=needs_api_server)
    if not begun and not found.problems and not options.ignore_preflight:
        problems = preflight_problems(
            examine(Preflight(timeout=_MAX_PREFLIGHT_SECONDS)), needs_api_server=needs_api_server
        )
        found = replace(found, problems=tuple(problems))
    if found.problems or found.config is None:
        for line in found.problems:
            err(line)
        err(f"nothing was changed: {UNIT} is as it was")
        return REFUSED
    for line in found.notes:
        out(f"note: {line}")
    if not begun:
        out(f"{UNIT} runs {unit.program} ({found.version}); {_counted(found)}")
    first = Record(intent=Intent.TAKEOVER, step=Step.WRITE, words=_words(unit), containers=found.containers)
    if loaded and record:
        first = record
    # The drop-in belongs to a Bulkhead of another directory: the words are not the kubelet's own.
    elif record and _is_replaced(unit):
        first = replace(first, words=record.words)
    needs = needs_api_server and bool(found.config.kubeconfig)
    target = Target(program=program, config=found.config, run_dir=_run_dir(run_dir), needs_api_server=needs)
    _end_with_ctrl_c()
    account.node = found.config.node_name
    outcome = Operation(SystemdNode(target, file), first, timeout, out).take_over()
    account.ended(outcome)
    if outcome.code != DONE:
        if first.done:
            err(outcome.line)
            return outcome.code
        return _rolled_back(outcome, err)
    compared = _comparison_phrase(first, found.config, account, _static_pods(run_dir))
    out(f"Bulkhead runs as {UNIT}, {'Ready' if needs else 'ready'}{_after(outcome)}; {compared}")
    out("bulkhead status shows the agent, bulkhead give-back returns to the unit's own kubelet")
    return DONE


def _give_back(unit: ServiceUnit, timeout: float, run_dir: str, account: Account) -> int:
    out, err = account.line, account.problem
    file, program = RecordFile(STATE), our_program()
    try:
        record = file.load()
    except OperatorError as error:  # the way back does not depend on it
        out(f"note: {error}; it is not used")
        record = None
    if (record is None or record.done) and not _FILE.exists() and loaded_kubelet(unit, program) is not Kubelet.BULKHEAD:
        out(f"{UNIT} is not taken over; it runs {unit.program or 'nothing'}")
        return DONE
    if record is not None and not os.access(record.words[0], os.X_OK):
        err(f"{record.words[0]} is not there or not executable: {UNIT} is as it was (install the kubelet first)")
        return REFUSED
    try:
        unit_variables(unit)
    except OperatorError as error:  # Bulkhead would be stopped, and the kubelet could not start
        err(str(error))
        err(f"nothing was changed: {UNIT} is as it was")
        return REFUSED
    target = _own_target(unit, run_dir, out)
    first = record or Record(intent=Intent.GIVE_BACK, step=Step.REMOVE, words=_words(unit))
    if running_kubelet(unit, program) is Kubelet.BULKHEAD and target.config:
        with suppress(OperatorError):  # the runtime may be the reason for the give-back
            first = replace(first, containers=running_containers(target.config.container_runtime_endpoint))
    _end_with_ctrl_c()
    account.node = target.config.node_name if target.config else ""
    outcome = Operation(SystemdNode(target, file), first, timeout, out).give_back()
    account.ended(outcome)
    if outcome.code != DONE:
        err(outcome.line)
        return outcome.code
    ready = "Ready" if target.needs_api_server else "running"
    compared = _comparison_phrase(first, target.config, account) if target.config else "containers are not compared"
    out(f"{UNIT} runs its own kubelet again, {ready}{_after(outcome)}; {compared}")
    return DONE


def _own_target(unit: ServiceUnit, run_dir: str, out: Write) -> Target:
    """Return the unit's own kubelet as the target. It must work also where Bulkhead refuses the configuration."""
    config, needs = None, False
    try:
        config = configuration(unit)
        if config.kubeconfig:
            node_ready(config.kubeconfig, config.node_name)
            needs = True
    except OperatorError as error:
        out(f"note: {error}; Ready is not waited for")
    return Target(program=our_program(), config=config, run_dir=_run_dir(run_dir), needs_api_server=needs)


def _words(unit: ServiceUnit) -> tuple[str, ...]:
    """Return the words of the unit's ExecStart=; none for a unit without one, which an unfinished takeover may meet."""
    return (unit.program, *unit.words)


def _is_replaced(unit: ServiceUnit) -> bool:
    """Return whether the drop-in names the program that systemd has loaded."""
    try:
        lines = _FILE.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return False
    return [f"ExecStart={unit.program}"] in [line.split()[:1] for line in lines]


def _checked(unit: ServiceUnit, run_dir: str, *, needs_api_server: bool) -> Found:
    directories = (DROP_INS, STATE, Path(_run_dir(run_dir)), Path(find_places().log_dir))
    return check_takeover(unit, our_program(), _run_dir(run_dir), directories, needs_api_server=needs_api_server)


def _unfinished_takeover(unit: ServiceUnit) -> Found:
    """Return what is known of a takeover that was begun or done. It is not refused, because the loop completes it."""
    config = configuration(unit)
    containers = running_containers(config.container_runtime_endpoint)
    return Found(unit=unit, config=config, containers=containers)


def _show_plan(unit: ServiceUnit, options: Options, account: Account) -> int:
    out, err = account.line, account.problem
    report = examine(Preflight(timeout=_MAX_PREFLIGHT_SECONDS))
    account.node, account.preflight = report.node, report_data(report)
    account.show((*report_text(report, paint()), ""))
    found = _checked(unit, options.run_dir, needs_api_server=options.needs_api_server)
    problems = [*found.problems]
    if not options.ignore_preflight:
        problems += preflight_problems(report, needs_api_server=options.needs_api_server)
    for line in found.notes:
        out(f"note: {line}")
    if not found.problems:
        out(f"{UNIT} runs {unit.program} {f'({found.version})' if found.version else ''}; {_counted(found)}")
    steps = steps_of(Intent.TAKEOVER)
    for number, step in enumerate(steps, 1):
        out(f"would do {number}/{len(steps)}: {describe(step, _FILE)}")
    for line in problems:
        err(f"prevents it: {line}")
    return REFUSED if problems else DONE


def _rolled_back(outcome: Outcome, err: Write) -> int:
    if outcome.code == REFUSED:
        err(f"{outcome.line}: nothing was exchanged, {UNIT} runs its own kubelet")
    elif outcome.code in (ROLLED_BACK, INTERRUPTED):
        err(f"{outcome.line}: rolled back, {UNIT} runs its own kubelet")
    else:
        err(outcome.line)
    return outcome.code


def _counted(found: Found) -> str:
    pods = len({one.pod for one in found.containers})
    return f"{len(found.containers)} containers of {pods} pods run"


def _static_pods(run_dir: str) -> frozenset[str]:
    """Return namespace and name of the pods that Bulkhead has from manifests."""
    try:
        with local_agent(run_dir) as agent:
            return frozenset(f"{row.namespace}/{row.name}" for row in agent.pods()[0] if row.source in ("file", "http"))
    except OperatorError:
        return frozenset()


def _comparison_phrase(
    record: Record, config: EffectiveConfig, account: Account, static: frozenset[str] = frozenset()
) -> str:
    """Return a phrase that says what became of the containers that ran before."""
    try:
        change = compare(record.containers, running_containers(config.container_runtime_endpoint), static)
    except OperatorError as error:
        return str(error)
    account.compared(len(record.containers), change)
    text = f"{change.kept} of {len(record.containers)} containers run on"
    if change.restarted:
        text += f"; restarted: {', '.join(change.restarted)}"
    if change.ended:
        text += f"; ended or not started again yet: {', '.join(change.ended)}"
    return text


def _after(outcome: Outcome) -> str:
    return f" after {outcome.seconds:.1f} s" if outcome.seconds is not None else ""


def _run_dir(given: str) -> str:
    return given or find_places().run_dir


def _end_with_ctrl_c() -> None:
    """Let a closed terminal and SIGTERM roll back as Ctrl-C does. A signal that is ignored, as under nohup, stays
    ignored."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(number: int, frame: FrameType | None) -> None:
        # A session that ends sends two of these signals, and the second one would end what the first one began.
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            with suppress(ValueError):
                signal.signal(number, interrupt)
