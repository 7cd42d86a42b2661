"""How a scheduler is used on a real cluster: asked by a service or a driver, under a guard.

A driver observes its cluster, has a `Guard` decide, and acts on the decisions. Whatever decides in
the simulator decides here, on the same `Observation`.
"""
