"""Driving Slurm from outside: its own commands hold, release, order and cap job arrays.

    wire       what squeue and sinfo print, whatever their version
    client     runs the commands, each under a timeout
    book       what is remembered of the jobs that opted in
    capacity   how many executors there are, and how many are free
    acting     from what is wished to commands, and how everything is given back
    watchdog   gives everything back when the driver dies
    driver     observe and act
    loop       again and again, until everything is given back

Nothing here needs the compiler; the watchdog is a process that must start in a moment.
"""
