#!/usr/bin/env python3
"""A FlexVolume driver that mounts nothing: a volume that it has mounted has a file `mounted` with its options, and a
device a file `device` with its name and options.

Beside it, `calls` has a line for each call, `attach` says that it attaches volumes, and `fault`, a line
`<command> <fault>`, lets it misbehave.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def main() -> None:
    here, command, arguments = Path(sys.argv[0]).parent, sys.argv[1], sys.argv[2:]
    with (here / "calls").open("a") as calls:
        calls.write(" ".join([command, *arguments[:1]]) + "\n")
    wanted, _, fault = (
        (here / "fault").read_text().strip().partition(" ") if (here / "fault").exists() else ("", "", "")
    )
    fault = fault if wanted == command else ""
    answer: dict[str, object] = {"status": "Success"}
    if fault == "hang":
        signal.pause()
    while fault == "wait" and not (here / "go").exists():
        time.sleep(0.01)
    if command == "init":
        attaches = (here / "attach").exists()
        answer["Capabilities"] = {"Attach": attaches, "fsGroup": fault != "no fsGroup", "supportsMetrics": True}
    elif command == "waitforattach":
        answer["device"] = "/dev/\0" if fault == "device" else f"{arguments[0]}-1"
    elif command == "mountdevice":
        (Path(arguments[0]) / "device").write_text(" ".join(arguments[1:]))
    elif command == "unmountdevice":
        (Path(arguments[0]) / "device").unlink(missing_ok=True)
    elif command == "mount":
        (Path(arguments[0]) / "mounted").write_text(arguments[1])
    elif command == "unmount":
        (Path(arguments[0]) / "mounted").unlink(missing_ok=True)
    elif command == "expandfs":
        (here / "expanded").write_text(json.dumps(arguments))
    else:
        answer["status"] = "Not supported"
    if fault == "fork" and os.fork() == 0:
        (here / "child").write_text(str(os.getpid()))
        signal.pause()
    if fault == "fail":
        for name in ("mounted", "device"):
            (Path(arguments[0]) / name).unlink(missing_ok=True)
        answer = {"status": "Failure", "message": f"cannot\n{' '.join(arguments)}"}
    text = json.dumps(answer)
    sys.stdout.write({"half": text[:-5], "long": text + " " * (100 << 10), "more": text + text}.get(fault, text))
    sys.stdout.flush()
    sys.exit(3 if fault == "exit" else 0)


main()
