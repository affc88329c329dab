"""Does the I/O of bootstrap on the machine: supervisord, ports, certificates, files."""
