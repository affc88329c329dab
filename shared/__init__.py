"""What more than one service needs: Kubernetes views and rules (pure), clients of the outside world, process basics.

Imports nothing from `bus` or `services`. `shared.model` and `shared.podspec` are pure: no I/O, no clock, no randomness.
"""
