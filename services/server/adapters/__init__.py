"""How the server meets the world: sockets and TLS, HTTP handlers, log files, inotify."""
