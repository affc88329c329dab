"""Reads and writes the files of one pod: directories, user namespace records, environment files, subpaths."""
