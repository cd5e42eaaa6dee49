"""Tags: they mark a machine on EC2 as ours, even if the process that launched it is gone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from prudent.cloud.providers.provider import GONE, PENDING, RUNNING, Instance, LaunchOrder
from prudent.core.errors import BadInput
from prudent.core.money import Price

OURS = "prudent"
CLUSTER, RUN, OWNER = "prudent:cluster", "prudent:run", "prudent:owner"
LEASE_END, PRICE, NOTES = "prudent:lease-end-s", "prudent:price", "prudent:notes"
HOST_KEY = "prudent:host-key"
LONGEST = 256
"""A tag's value has at most so many characters."""

TAGGED = ("instance", "volume", "network-interface")
SPOT_REQUEST = "spot-instances-request"
_STATES = {"pending": PENDING, "running": RUNNING, "shutting-down": GONE, "terminated": GONE}
_WHEN = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
ALIVE = ("pending", "running", "stopping", "stopped")


def tags_of(
    order: LaunchOrder, price: Price, notes: Sequence[str], host_key: str, extra: Mapping[str, str]
) -> dict[str, str]:
    """All that `instance_of` reads back, and the user's own tags.

    EC2 numbers the machines of a launch itself, so the place in the cluster is not a tag: a tag of its own
    for each machine would need a second call, which a crash could leave out.
    """
    for what, text in (("cluster", order.cluster), ("run", order.run), ("owner", order.owner)):
        if len(text) > LONGEST:
            raise BadInput(f"The {what} has {len(text)} characters; EC2 keeps {LONGEST}: shorten it.")
    return {
        "Name": f"prudent {order.run}"[:LONGEST],
        **extra,
        OURS: "machine",
        CLUSTER: order.cluster,
        RUN: order.run,
        OWNER: order.owner,
        LEASE_END: lease_text(order.lease_end_s),
        PRICE: price_text(price),
        **({NOTES: notes_text(notes)} if notes else {}),
        **({HOST_KEY: host_key} if host_key else {}),
    }


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as EC2 wants them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tag_map(described: Mapping[str, Any]) -> dict[str, str]:
    """Tags as EC2 gives them."""
    return {tag["Key"]: tag["Value"] for tag in described.get("Tags", ())}


def lease_text(lease_end_s: float) -> str:
    """The end of a lease as text, from which exactly the same moment is read.

    >>> lease_text(1800000000.25)
    '1800000000.25'
    """
    return repr(float(lease_end_s))


def price_text(price: Price) -> str:
    """
    >>> price = Price(0.096, "2025-01-01", "catalog aws us-east-1", 60.0)
    >>> price_of(price_text(price)) == price
    True
    """
    return f"{price.usd_per_h!r} {price.date or '-'} {price.minimum_s!r} {price.source}"[:LONGEST]


def price_of(text: str) -> Price:
    """The price that `price_text` wrote; if somebody changed the tag, an unknown price of 0."""
    try:
        usd, date, minimum_s, source = text.split(" ", 3)
        return Price(float(usd), "" if date == "-" else date, source, float(minimum_s))
    except (ValueError, BadInput):
        return Price(0.0, "", "unknown")


def notes_text(notes: Sequence[str]) -> str:
    """The notes in one tag; where it is too short for all, the last ones, which led to this launch.

    >>> notes_text(["a: full", "b: full"])
    'a: full / b: full'
    """
    notes = [note.replace(" / ", " or ") for note in notes]
    kept: list[str] = []
    for note in reversed(notes):
        if len(" / ".join([note, *kept])) > LONGEST:
            break
        kept.insert(0, note)
    return " / ".join(kept) or notes[-1][:LONGEST]


def instance_of(described: Mapping[str, Any], address: str) -> Instance:
    """A machine as EC2 describes it; `address` says which of its addresses is ours: public or private."""
    tags = tag_map(described)
    # A stopped machine is not gone: its disk is paid for, and it may come back.
    state = _STATES.get(described["State"]["Name"], PENDING)
    key = "PublicIpAddress" if address == "public" else "PrivateIpAddress"
    return Instance(
        id=described["InstanceId"],
        provider="ec2",
        type=described["InstanceType"],
        cluster=tags.get(CLUSTER, ""),
        run=tags.get(RUN, ""),
        owner=tags.get(OWNER, ""),
        index=int(described.get("AmiLaunchIndex", 0)),
        state=state,
        address=described.get(key) or "",
        launched_s=described["LaunchTime"].timestamp(),
        lease_end_s=_moment(tags.get(LEASE_END, "")),
        price=price_of(tags.get(PRICE, "")),
        zone=described.get("Placement", {}).get("AvailabilityZone", ""),
        spot=described.get("InstanceLifecycle") == "spot",
        notes=tuple(filter(None, tags.get(NOTES, "").split(" / "))),
    )


def ended_s(described: Mapping[str, Any]) -> float | None:
    """When a machine ended, which EC2 writes into the reason; None while it is there, or if it does not say.

    EC2 tells whole seconds: it is taken to have ended at the end of that second.

    >>> reason = "User initiated (2026-11-18 05:30:00 GMT)"
    >>> ended_s({"State": {"Name": "terminated"}, "StateTransitionReason": reason})
    1794979801.0
    """
    if _STATES.get(described["State"]["Name"]) != GONE:
        return None
    said = _WHEN.search(described.get("StateTransitionReason") or "")
    return None if said is None else datetime.fromisoformat(said[1]).replace(tzinfo=UTC).timestamp() + 1.0


def _moment(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0  # long past: a machine of ours that has no lease has no right to be


def in_order(instances: Iterable[Instance]) -> tuple[Instance, ...]:
    """Clusters together, each from its first machine on."""
    return tuple(sorted(instances, key=lambda one: (one.cluster, one.index, one.id)))
