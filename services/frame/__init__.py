"""Frames every service: configuration, lock and succession, log, bus, beats, watchdog, signals.

Imports no service. A service's `__main__` calls `launch.launch`; `preloading` and `prompt_restarts` run in supervisord.
"""
