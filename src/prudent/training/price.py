"""What an hour of a trial costs on a machine that trials share."""

from __future__ import annotations

import os

from prudent.cloud.catalog import Catalog
from prudent.core.money import Price
from prudent.training.request import TrainingRequest


def cores() -> int:
    """The processors that this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def trial_price(request: TrainingRequest, parallelism: int) -> Price:
    """What an hour of a trial costs: the machine's price, shared by the trials that run on it at once.

    The machine is the request's own, or the first that its computational resources name, or the smallest
    general one with a processor for each trial.
    """
    catalog = Catalog.load()
    resources = request.computational_resources
    named = [found.ec2_instance for found in resources.instances] if resources else []
    name = request.machine or next((type_ for type_ in named if type_ in catalog), None)
    roomy = [machine for machine in catalog.machines("m5") if machine.vcpus >= parallelism]
    machine = catalog[name] if name else (roomy or list(catalog.machines("m5"))[-1:])[0]
    rate = machine.price.usd_per_h / parallelism
    # The machine is rented for the request: its billing minimum is not due for every trial.
    return Price(rate, machine.price.date, f"{machine.price.source} {machine.name} / {parallelism}")
