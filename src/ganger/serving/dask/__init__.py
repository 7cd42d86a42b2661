"""Drives a stock Dask cluster: a plugin in its scheduler, and an agent that decides.

    dask scheduler --preload ganger.dask     (plugin.py: holds the tasks of marked jobs back)
    ganger drive dask tcp://...              (agent.py: says which of them go where)

They talk through two handlers of the scheduler's (messages.py). docs/drivers/dask.md.
"""
