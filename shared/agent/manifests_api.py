"""Where the local API for manifests is, and what it takes at most: sources serves it, `bulkhead pods` uses it."""

SOCKET = "manifests.sock"  # below the run directory
PATH = "/manifests"
MAX_SUBMISSION_BYTES = 3 << 19  # bytes of a submission and of its file: what etcd takes
DIRECTORY = "bulkhead/manifests"  # of the files, below the root directory
