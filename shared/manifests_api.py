"""Where the local API for manifests is: sources serves it, `bulkhead pods` uses it."""

SOCKET = "manifests.sock"  # below the run directory
PATH = "/manifests"
DIRECTORY = "bulkhead/manifests"  # of the files, below the root directory
