"""The Kubernetes release whose behaviour this agent keeps, for everything that names one."""

KUBERNETES_VERSION = "1.36"  # major.minor
KUBERNETES_RELEASE = f"v{KUBERNETES_VERSION}.0"  # where a patch release has to be named, too
