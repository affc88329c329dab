"""Has the errors for a CRI message that cannot be built: the text and the reason that API clients see."""


class ContainerConfigError(Exception):
    """No ContainerConfig can be built. `reason` is containerStatuses[].state.waiting.reason (pods.md 7.1), `message`
    its message. Nothing was done yet, so the call can be tried again."""

    def __init__(self, message: str, reason: str = "CreateContainerConfigError") -> None:
        self.reason, self.message = reason, message
        super().__init__(message)


class SandboxConfigError(Exception):
    """No PodSandboxConfig can be built; the text follows "Failed to create pod sandbox: " in the event
    FailedCreatePodSandBox (pods.md 5.5)."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)
