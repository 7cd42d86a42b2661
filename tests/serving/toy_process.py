"""A scheduler's process that misbehaves as its setting says; run as the real one is."""

import os
import signal
import socket
import sys
import time

import msgspec

from ganger.errors import SchedulerError
from ganger.serving import asking, process
from ganger.simulator.observation import Decision


class Toy:
    """Decides for the first job; from the Nth question on it does something else."""

    def __init__(self, setting):
        self.what, _, after = setting.scheduler.partition("@")
        self.left = int(after or 0)
        if self.what == "refuse":
            raise SchedulerError("no such scheduler")

    def warm_up(self):
        if self.what == "exit":
            os._exit(3)

    def round(self, observation):
        self.left -= 1
        if self.left < 0:
            match self.what:
                case "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "hang":
                    time.sleep(3600)
                case "freeze":
                    os.kill(os.getpid(), signal.SIGSTOP)
                case "slow":
                    time.sleep(1.5)
                case "raise":
                    raise ZeroDivisionError("division by zero")
                case "illegal":
                    return (Decision("nobody", "0", 1),), (), None
                case "greedy":
                    return (Decision("a", "0", 9), Decision("b", "0", 9)), (), None
        return (Decision("a", "0", 9),), (0.5,), None


asking.Asked = Toy
if __name__ == "__main__":
    connection = socket.socket(fileno=int(sys.argv[1]))
    if "garbage" in sys.argv[2]:
        connection.sendall(process._framed(process._Reply(0)) + b"\x05\0\0\0hello")
        time.sleep(3600)
    setting = msgspec.json.decode(sys.argv[2], type=process.Setting)
    process._serve(connection, setting)
