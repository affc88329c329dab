"""The seven services, one process each, and around them `frame`, `kubelet` and `cli`.

Services never import each other; what several of them need is in `bus` and `shared`.
"""
