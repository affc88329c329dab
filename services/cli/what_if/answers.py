"""`bulkhead what-if` asks podsync what would become of the pods of files, and prints the answers. Nothing is started.

podsync decides with the code that admits pods; sources says which Secrets and ConfigMaps exist."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from bus.client import Question, Refusal
from bus.messages.pod_preview import GetPodPreview, PodPreview
from services.cli.agent.local_agent import Agent, local_agent
from services.cli.pods.manifest_files import Document, read_manifest_file
from services.cli.terminal.output import write_report
from services.cli.what_if.candidates import KINDS, Candidate, NodeIdentity, candidate
from services.cli.what_if.claims import KINDS as CLAIM_KINDS
from services.cli.what_if.claims import STREAMS, previewed_claims, registered_drivers
from services.cli.what_if.text import Answer, Reference, Verdict, lines
from shared.config.loader import load_effective
from shared.errors import OperatorError
from shared.host.listening_sockets import listening_ports
from shared.model.objects import Object
from shared.podspec.containers import used_volumes
from shared.podspec.gated import unheeded_fields
from shared.podspec.references import claim_names, referenced_objects
from shared.podspec.support import unsupported

Write = Callable[[str], None]

ADMITTED, NOT_ADMITTED, WRONG_USAGE, NO_ANSWER = 0, 1, 2, 3  # exit codes
MAX_FILE_BYTES = 16 << 20  # of one file, and of its content with aliases expanded; a pod has at most 8 MiB
MAX_PODS = 500
TIMEOUT_SECONDS = (
    5.0  # for an answer of podsync, which itself waits for the runtime and sources, and for an answer of sources
)
_OBJECTS = ("ConfigMap", "Secret", "PersistentVolumeClaim", *CLAIM_KINDS)
_OPTIONAL = {"configMap", "secret", "configMapRef", "secretRef", "configMapKeyRef", "secretKeyRef"}


def print_what_if(
    run_dir: str, files: Sequence[str], namespace: str, form: str, out: Write, err: Write, *, static: bool
) -> int:
    """Print what would become of each pod of the files ("-" = standard input). Return the exit code."""
    try:
        documents = [(file, document) for file in files for document in read_manifest_file(file, MAX_FILE_BYTES)]
        asked = [(file, one) for file, one in documents if one.get("kind") in KINDS]
        if not asked:
            raise OperatorError(f"no pod: kind is none of {', '.join(KINDS)}", where=files[0], remedy="name others")
        if len(asked) > MAX_PODS:
            raise OperatorError(f"{len(asked)} pods, {MAX_PODS} are the most", where=files[0], remedy="divide them")
    except OperatorError as error:
        err(str(error))
        return WRONG_USAGE
    try:
        with local_agent(run_dir) as agent:
            answers = [*_answers(agent, asked, _given_objects(documents, namespace), namespace, static=static)]
    except OperatorError as error:
        err(str(error))
        return NO_ANSWER
    text = (line for number, one in enumerate(answers) for line in [""] * (number > 0) + lines(one))
    write_report(form, {"pods": [one.data for one in answers]}, text, out)
    verdicts = {one.verdict for one in answers}
    if verdicts <= {Verdict.ADMITTED}:
        return ADMITTED
    return NOT_ADMITTED if verdicts & {Verdict.REJECTED, Verdict.INVALID} else NO_ANSWER


def _given_objects(documents: Sequence[tuple[str, Document]], namespace: str) -> dict[str, Document]:
    """Return the objects that the files contain besides the pods, by `<kind>/<namespace>/<name>`."""
    found = {}
    for _, document in documents:
        metadata = document.get("metadata")
        if document.get("kind") in _OBJECTS and isinstance(metadata, dict):
            space = metadata.get("namespace") or namespace or "default"
            found[f"{document['kind']}/{space}/{metadata.get('name')}"] = document
    return found


def _answers(
    agent: Agent, asked: Sequence[tuple[str, Document]], given: Mapping[str, Document], namespace: str, *, static: bool
) -> Iterator[Answer]:
    """Return podsync's answers. Raises OperatorError where podsync does not answer."""
    config = load_effective(agent.run_dir)
    alone = not config.joins_cluster
    if static and not config.static_pod_path:
        raise OperatorError("the agent has no staticPodPath", where="--static", remedy="configure it, or omit --static")
    node = NodeIdentity(name=config.node_name, root_dir=config.root_dir, static_pod_path=config.static_pod_path)
    agent.require("podsync")
    candidates = [
        candidate(document, file, namespace, node, static=static or alone, applied=alone and not static)
        for file, document in asked
    ]
    has_claims = any(found.pod is not None and found.pod["spec"].get("resourceClaims") for found in candidates)
    streams = agent.streams("objects.changed", *(STREAMS if has_claims else ()), timeout=TIMEOUT_SECONDS)
    listening = listening_ports()
    for found in candidates:
        if found.pod is None:
            yield Answer(candidate=found)
            continue
        yield Answer(
            candidate=found,
            preview=_preview(agent, found, found.pod),
            references=tuple(_references(found.pod, given, streams["objects.changed"], alone=alone)),
            claims=previewed_claims(found.pod, given, streams),
            drivers=registered_drivers(streams),
            unsupported=(
                *unsupported(found.pod),
                *unheeded_fields(found.pod, config.feature_gates, config.emulated_version),
            ),
            listening=listening,
        )


def _preview(agent: Agent, found: Candidate, pod: Object) -> PodPreview:
    question = Question("podsync", GetPodPreview(source=found.source, pod=pod), PodPreview)
    answer = agent.client.ask([question], TIMEOUT_SECONDS).get(question)
    if isinstance(answer, PodPreview):
        return answer
    if isinstance(answer, Refusal):
        remedy = "bulkhead status shows the processes"
        raise OperatorError(f"podsync refuses: {answer.line}", where=agent.run_dir, remedy=remedy)
    raise agent.silence_of("podsync")


def _references(
    pod: Object, given: Collection[str], known: Mapping[str, Mapping[str, Any]] | None, *, alone: bool
) -> Iterator[Reference]:
    """Yield what the pod names, and whether it exists. `known`: the objects of which sources has versions, None = it
    did not answer. A volume that no container uses is not set up, so its objects do not matter."""
    space, used = str(pod["metadata"]["namespace"]), used_volumes(pod)
    volumes = [volume for volume in pod["spec"].get("volumes") or () if volume.get("name") in used]
    pod = {**pod, "spec": {**pod["spec"], "volumes": volumes}}
    named = [(one.kind, one.name) for one in referenced_objects(pod)]
    named += [("PersistentVolumeClaim", name) for name in claim_names(pod)]
    optional = optional_names(pod)
    for kind, name in named:
        key = f"{kind}/{space}/{name}"
        if known is not None and key in known:
            state = "present" if known[key].get("resource_version") else "absent"
        else:
            state = "absent" if alone and known is not None else "not known"
        if state != "present" and key in given:
            state = "given"
        yield Reference(kind=kind, namespace=space, name=name, state=state, optional=(kind, name) in optional)


def optional_names(pod: Object) -> set[tuple[str, str]]:
    """Return kind and name of the Secrets and ConfigMaps without which the pod runs as well."""
    needed: set[tuple[str, Any]] = set()
    optional: set[tuple[str, Any]] = set()
    waiting: list[Any] = [pod.get("spec")]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
            for field in _OPTIONAL & value.keys():
                one = value[field] if isinstance(value[field], dict) else {}
                kind = "Secret" if field.startswith("secret") else "ConfigMap"
                (optional if one.get("optional") is True else needed).add(
                    (kind, one.get("name") or one.get("secretName"))
                )
    pull_secrets = {("Secret", one.get("name")) for one in (pod.get("spec") or {}).get("imagePullSecrets") or ()}
    return (optional - needed) | (pull_secrets - needed)
