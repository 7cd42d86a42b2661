"""Drives the jobs of one Spark application, from inside it: a gate before actions, and pools.

    ganger.spark.driving(spark, ...)    (driver.py: a thread that looks, has a guard decide, opens)
    ganger.spark.pool(spark, name)      (waits at the gate, then submits into the pool it was given)

looking.py asks Spark's status tracker, book.py keeps what is known of jobs, pools.py says which
FAIR pool means what. docs/drivers/spark.md.
"""
