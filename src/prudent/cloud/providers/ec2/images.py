"""Which image a machine starts from, and in which zone it lies: facts of EC2 that are asked for once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from prudent.cloud.providers.ec2.client import Ec2Clients
from prudent.cloud.providers.ec2.errors import ERRORS, translated
from prudent.cloud.providers.ec2.settings import Ec2Settings
from prudent.core.errors import BadInput

T = TypeVar("T")

# Publishers keep the newest image of each kind under a name that does not change.
_NEWEST = {
    ("amazon-linux", "x86_64"): "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64",
    ("amazon-linux", "arm64"): "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64",
    ("debian", "x86_64"): "/aws/service/debian/release/12/latest/amd64",
    ("debian", "arm64"): "/aws/service/debian/release/12/latest/arm64",
}


@dataclass(frozen=True)
class Image:
    """What a machine starts from."""

    id: str
    architecture: str
    root_device: str
    disk_gb: int


class Ec2Images:
    """Images by machine type, and zones by subnet; each is asked for once. Thread-safe."""

    def __init__(self, settings: Ec2Settings, clients: Ec2Clients) -> None:
        self._settings, self._clients = settings, clients
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Any] = {}

    def image(self, type_name: str) -> Image:
        """The image of the settings, for a type: the newest one where only its kind is named."""
        wanted = self.architecture(type_name)
        image_id = self._settings.image
        if not image_id.startswith("ami-"):
            image_id = self._once("newest", wanted, lambda: self._newest(wanted))
        image = self._once("image", image_id, lambda: self._describe(image_id))
        if image.architecture != wanted:
            raise BadInput(
                f"The image {image.id} is for {image.architecture}, but {type_name} is {wanted}; choose an "
                "image or a type that fits."
            )
        return image

    def architecture(self, type_name: str) -> str:
        """x86_64 or arm64; BadInput if the region has no such type."""
        return self._once("architecture", type_name, lambda: self._architecture(type_name))

    def zone(self, subnet: str) -> str:
        """Where a subnet lies."""
        return self._once("zone", subnet, lambda: self._zone(subnet))

    def _once(self, kind: str, name: str, ask: Callable[[], T]) -> T:
        with self._lock:
            if (kind, name) in self._known:
                known: T = self._known[kind, name]
                return known
        answer = ask()
        with self._lock:
            self._known[kind, name] = answer
        return answer

    def _newest(self, architecture: str) -> str:
        name = _NEWEST[self._settings.image, architecture]
        try:
            return str(self._clients.ssm.get_parameter(Name=name)["Parameter"]["Value"])
        except ERRORS as error:
            raise translated(error, f"tell the newest image {self._settings.image} ({name})") from error

    def _describe(self, image_id: str) -> Image:
        try:
            found = self._clients.ec2.describe_images(ImageIds=[image_id])["Images"]
        except ERRORS as error:
            raise translated(error, f"find the image {image_id}") from error
        if not found:
            raise BadInput(f"There is no image {image_id} in {self._settings.region}; name another.")
        [image] = found
        root = image["RootDeviceName"]
        disks = {one["DeviceName"]: one.get("Ebs", {}) for one in image.get("BlockDeviceMappings", ())}
        return Image(image_id, image["Architecture"], root, int(disks.get(root, {}).get("VolumeSize") or 8))

    def _architecture(self, type_name: str) -> str:
        try:
            found = self._clients.ec2.describe_instance_types(InstanceTypes=[type_name])["InstanceTypes"]
        except ERRORS as error:
            raise translated(error, f"find the machine type {type_name}") from error
        offered = found[0]["ProcessorInfo"]["SupportedArchitectures"] if found else []
        for architecture in ("x86_64", "arm64"):
            if architecture in offered:
                return architecture
        raise BadInput(
            f"The machine type {type_name} is not offered in {self._settings.region}; choose another."
        )

    def _zone(self, subnet: str) -> str:
        try:
            [found] = self._clients.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"]
        except ERRORS as error:
            raise translated(error, f"find the subnet {subnet}") from error
        return str(found["AvailabilityZone"])
