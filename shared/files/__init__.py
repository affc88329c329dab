"""Files and directory trees on disk that stay whole or are removed whole, whatever is killed."""
