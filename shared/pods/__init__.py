"""What several services know of a pod besides its objects: its directory, and the wait after a failure."""
