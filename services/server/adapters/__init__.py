"""Does the I/O of server: sockets and TLS, HTTP handlers, log files, inotify."""
