"""SPDY/3.1 as bytes: what clients of exec, attach and port-forward speak."""
