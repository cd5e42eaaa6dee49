"""The words in which EC2 is asked for machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prudent.cloud.providers.ec2.images import Image
from prudent.cloud.providers.ec2.launch import Site
from prudent.cloud.providers.ec2.settings import PUBLIC, Ec2Settings
from prudent.cloud.providers.ec2.tags import SPOT_REQUEST, TAGGED, tag_list
from prudent.cloud.providers.provider import Order

_METADATA = {"HttpTokens": "required", "HttpEndpoint": "enabled", "InstanceMetadataTags": "enabled"}


def run_request(
    settings: Ec2Settings, order: Order, site: Site, image: Image, script: bytes, tags: Mapping[str, str]
) -> dict[str, Any]:
    """The parameters of RunInstances, but for the token: all machines of an order, or none."""
    disk = {
        "VolumeSize": max(image.disk_gb, settings.disk_gb or 0),
        "VolumeType": "gp3",
        # Some images keep their disks, and those would be paid for ever.
        "DeleteOnTermination": True,
    }
    request: dict[str, Any] = {
        "ImageId": image.id,
        "InstanceType": site.type,
        "MinCount": order.count,
        "MaxCount": order.count,
        "UserData": script,
        # With this the switch on the machine, which can only shut it down, ends it for good.
        "InstanceInitiatedShutdownBehavior": "terminate",
        "BlockDeviceMappings": [{"DeviceName": image.root_device, "Ebs": disk}],
        # The machine may read its own tags: the lease is one of them.
        "MetadataOptions": {
            "HttpTokens": "required",
            "HttpEndpoint": "enabled",
            "InstanceMetadataTags": "enabled",
        },
        "TagSpecifications": _tagged(order, tags),
        **_network(settings, site),
    }
    if settings.key:
        request["KeyName"] = settings.key
    if settings.instance_profile:
        word = "Arn" if settings.instance_profile.startswith("arn:") else "Name"
        request["IamInstanceProfile"] = {word: settings.instance_profile}
    if order.spot:
        request["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": _spot(settings)}
    return request


def _tagged(order: Order, tags: Mapping[str, str]) -> list[dict[str, Any]]:
    kinds = (*TAGGED, SPOT_REQUEST) if order.spot else TAGGED
    return [{"ResourceType": kind, "Tags": tag_list(tags)} for kind in kinds]


def _spot(settings: Ec2Settings) -> dict[str, str]:
    options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    if settings.spot_max_usd_per_h is not None:
        options["MaxPrice"] = f"{settings.spot_max_usd_per_h:.6f}"
    return options


def _network(settings: Ec2Settings, site: Site) -> dict[str, Any]:
    groups = list(settings.security_groups)
    if site.subnet:
        card = {
            "DeviceIndex": 0,
            "SubnetId": site.subnet,
            "AssociatePublicIpAddress": settings.address == PUBLIC,
            "DeleteOnTermination": True,
        }
        return {"NetworkInterfaces": [{**card, **({"Groups": groups} if groups else {})}]}
    where = {"Placement": {"AvailabilityZone": site.zone}} if site.zone else {}
    return {**where, **({"SecurityGroupIds": groups} if groups else {})}
