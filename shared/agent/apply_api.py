"""Says where the local API for applied objects is, and what it takes at most: sources serves it, `bulkhead pods`
uses it."""

SOCKET = "manifests.sock"  # below the run directory
PATH = "/manifests"
MAX_APPLIED_BYTES = 3 << 19  # of an object, and of its file; etcd takes no larger one
DIRECTORY = "bulkhead/manifests"  # the directory of the files, below the root directory
