"""Why a CRI message can't be built: the text that API clients see, and the reason they find it under."""


class ContainerConfigError(Exception):
    """The container can't be described to the runtime. `reason` is containerStatuses[].state.waiting.reason
    (pods.md 7.1), `message` its message; nothing was done yet, so trying again later is safe."""

    def __init__(self, message: str, reason: str = "CreateContainerConfigError") -> None:
        self.reason, self.message = reason, message
        super().__init__(message)


class SandboxConfigError(Exception):
    """The sandbox can't be described to the runtime; the text follows "Failed to create pod sandbox: " in the
    event FailedCreatePodSandBox (pods.md 5.5)."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)
