"""One of several learners, in a process of its own: a module that such a process can import."""

import toys

from ganger.training.exchange.packing import unpack
from ganger.training.group import Together, meet, stay_on_this_machine

UPDATES = 3


def learned(learner, trajectories):
    """The learner's state after some updates from these packed trajectories, and its metrics."""
    samples = [unpack(*packed).payload.samples for packed in trajectories]
    metrics = [learner.update(samples, 0.1 * k) for k in range(UPDATES)]
    return learner.state(), metrics[-1]


def learn_together(talk):
    """What the process does; it is told and answers through the connection."""
    config, trajectory, rank, address = talk.recv()
    stay_on_this_machine()
    learner = toys.learner(config)
    learner.group = Together(meet(address, config.learners), rank, config.learners)
    talk.send(learned(learner, [trajectory]))
    learner.group.close()
