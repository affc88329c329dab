"""Does the I/O of sources on the static pod path and its own records on disk."""
