"""The decisions of podsync, pure: events and the time go in, instructions come out (design: the pure core).

`machine` is the one gate; `knowledge` takes events in; `steps` and `actions` decide what a pod needs next; `record` is
what is remembered of a pod; `pod_status` and `container_status` compute what the API shows; the `*_config` modules
write CRI messages; `admission` judges a pod once, with `predicates`, `node_selector`, `taints`, `sysctls` and, for
critical pods, `preemption`.
"""
