"""How bootstrap reaches the machine: supervisord, ports, certificates, files."""
