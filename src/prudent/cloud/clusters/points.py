"""The places in the life of a cluster at which a run may die, in the order in which they are passed.

The kill matrix ends a run at each of them; whoever adds a step that costs money adds its place here.
"""

from __future__ import annotations

LAUNCH = (
    "launch.decided",  # nothing is written yet
    "launch.recorded",  # the lease is on disk, nobody was asked for machines
    "launch.partial",  # inside the provider: some machines are there, others not
    "launch.accepted",  # the provider has said yes, and nobody has written it down
    "launch.up",  # the machines are in the register
)
READY = ("ready.waiting", "ready.done")
RENEW = ("renew.due", "renew.recorded", "renew.done")
TRIAL = ("trial.put", "trial.started", "trial.ended", "trial.fetched")
RELEASE = ("release.begun", "release.terminated", "release.recorded")

POINTS = (*LAUNCH, *READY, *RENEW, *TRIAL, *RELEASE)
