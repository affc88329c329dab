"""Has one pod on this node, its lifecycle, and the events and instructions about it. Where each value is:

    on disk         `saved`, in the form of `saved_format`
    in memory       `tracked_pod`, of which `saved` is a part; `progress` and `retry` end with the process
    from outside    `observed_in_runtime`, `listed_by_source`, `api_baseline`, `call_results`
    to outside      `published_items`, `instructions`

Every room that decides about a pod imports this one. Must not know how a pod is synced, shown or admitted.
"""
