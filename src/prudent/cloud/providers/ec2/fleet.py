"""The machines that are there: found by their tags, waited for, ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from prudent.cloud.providers.ec2.client import Ec2Clients
from prudent.cloud.providers.ec2.errors import ERRORS, code_of, translated
from prudent.cloud.providers.ec2.launch import Described
from prudent.cloud.providers.ec2.tags import ALIVE, CLUSTER, LEASE_END, OURS, lease_text, tag_list
from prudent.cloud.providers.provider import Instance

_BATCH = 200
_UNKNOWN = "InvalidInstanceID.NotFound"
_YOUNG_S = 120.0
"""The listing may lag behind the launches: a machine that is this new and not listed may be there."""


@dataclass(frozen=True)
class Ec2Fleet:
    """Lists, tags and ends machines."""

    clients: Ec2Clients
    sleep: Callable[[float], None] = time.sleep

    def ours(self) -> list[Described]:
        """Every machine that is Prudent's and not gone."""
        return self._described({"tag-key": [OURS], "instance-state-name": list(ALIVE)})

    def of_clusters(self, *clusters: str) -> list[Described]:
        """All machines of clusters, those that are gone too, for as long as EC2 remembers them."""
        return self._described({f"tag:{CLUSTER}": list(clusters)})

    def by_id(self, ids: Iterable[str]) -> list[Described]:
        """Those of these machines that EC2 knows."""
        wanted = list(ids)
        return self._described({"instance-id": wanted}) if wanted else []

    def lease(self, ids: Sequence[str], lease_end_s: float) -> None:
        """Write a later end onto the machines."""
        if not ids:
            return
        try:
            self.clients.ec2.create_tags(
                Resources=list(ids), Tags=tag_list({LEASE_END: lease_text(lease_end_s)})
            )
        except ERRORS as error:
            if code_of(error) != _UNKNOWN:
                raise translated(error, "renew the lease") from error
            known = [one["InstanceId"] for one in self.by_id(ids)]
            if len(known) < len(ids):
                self.lease(known, lease_end_s)

    def end(self, instances: Sequence[Instance]) -> None:
        """End machines; those that are gone are no error, those too new to be listed are asked for again."""
        left = [one.id for one in instances]
        young = {one.id for one in instances if time.time() - one.launched_s < _YOUNG_S}
        for pause_s in (0.5, 1.0, 2.0, 4.0, 0.0):
            left = [one for one in self.end_ids(left) if one in young]
            if not left:
                return
            self.sleep(pause_s)

    def end_ids(self, ids: Iterable[str]) -> list[str]:
        """End machines; answers those that EC2 does not know."""
        wanted, unknown = list(dict.fromkeys(ids)), list[str]()
        for first in range(0, len(wanted), _BATCH):
            batch = wanted[first : first + _BATCH]
            try:
                self.clients.ec2.terminate_instances(InstanceIds=batch)
            except ERRORS as error:
                if code_of(error) != _UNKNOWN:
                    raise translated(error, f"end {', '.join(batch[:5])}") from error
                known = {one["InstanceId"] for one in self.by_id(batch)}
                unknown += [one for one in batch if one not in known]
                if known and len(known) < len(batch):
                    unknown += self.end_ids([one for one in batch if one in known])
        return unknown

    def _described(self, filters: dict[str, list[str]]) -> list[Described]:
        asked = [{"Name": name, "Values": values} for name, values in filters.items()]
        try:
            pages: Any = self.clients.ec2.get_paginator("describe_instances").paginate(Filters=asked)
            return [
                one
                for page in pages
                for reservation in page["Reservations"]
                for one in reservation["Instances"]
            ]
        except ERRORS as error:
            raise translated(error, "list machines") from error
