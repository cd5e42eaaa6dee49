"""A cluster or fleet as people write it: `4*m5.large`, `8*m3.medium,3*m3.2xlarge`."""

from __future__ import annotations

import re

from prudent.core.errors import BadInput

_CLUSTER = re.compile(r"\s*(?:(?P<count>[^*\s]+)\s*\*\s*)?(?P<name>[^*\s,]+)\s*")


def parse_cluster(text: str) -> tuple[int, str]:
    """Count and type of a cluster of equal machines; a type alone is one machine.

    >>> parse_cluster("4*m5.large"), parse_cluster("m5.large")
    ((4, 'm5.large'), (1, 'm5.large'))
    """
    match = _CLUSTER.fullmatch(text)
    if match is None:
        raise BadInput(f'"{text}" is no cluster: write count*type, like 4*m5.large.')
    count = match["count"] or "1"
    if not (count.isascii() and count.isdigit() and int(count) >= 1):
        raise BadInput(f'"{count}" in "{text}" is no number of machines: write a whole number, 1 or more.')
    return int(count), match["name"]


def parse_fleet(text: str) -> list[tuple[int, str]]:
    """Counts and types of a fleet of several kinds, in the order written.

    >>> parse_fleet("8*m3.medium, 3*m3.2xlarge")
    [(8, 'm3.medium'), (3, 'm3.2xlarge')]
    """
    if not text.strip():
        raise BadInput("The fleet is empty: write it like 8*m3.medium,3*m3.2xlarge.")
    return [parse_cluster(part) for part in text.split(",")]


def cluster_text(count: int, name: str) -> str:
    """The text that `parse_cluster` reads.

    >>> cluster_text(4, "m5.large")
    '4*m5.large'
    """
    return f"{count}*{name}"
