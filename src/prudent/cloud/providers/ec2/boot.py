"""What a machine on EC2 starts from: its image, and what it does first.

The first commands are the dead-man's switch, the host key, then what a run needs. The machine gets them as
user-data, a cloud-config document, which Amazon Linux, Debian and most other images understand. The switch
comes before everything that can fail: a machine whose set-up hangs ends as well.
"""

from __future__ import annotations

import gzip
import json
import math
import shlex
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from prudent.cloud.leases import dead_mans_switch
from prudent.cloud.providers.ec2.client import Ec2Clients, translating
from prudent.cloud.providers.ec2.settings import Ec2Settings
from prudent.cloud.providers.ec2.tags import LEASE_END
from prudent.core.errors import BadInput

LEASE = "/var/lib/prudent/lease"
"""The folder of the switch; the login owns it, so that the lease can be renewed through a channel."""

READY, FAILED = "/var/lib/prudent/ready", "/var/lib/prudent/failed"
LOG = "/var/log/prudent-setup.log"
_PROGRAMS = "/usr/local/lib/prudent"
_LARGEST = 16 * 1024
"""The bytes that EC2 takes as user-data."""

_FOLLOW = f"""\
#!/bin/sh
# Brings the lease from the machine's own tag to the switch: renewing then needs no login.
meta=http://169.254.169.254/latest
while :; do
    token=$(curl -sf -m 5 -X PUT "$meta/api/token" -H "X-aws-ec2-metadata-token-ttl-seconds: 60")
    said=$(curl -sf -m 5 -H "X-aws-ec2-metadata-token: $token" "$meta/meta-data/tags/instance/{LEASE_END}")
    end=${{said%%.*}}
    case $end in
        '' | *[!0-9]*) ;;
        *)
            read -r now 2>/dev/null < {LEASE}/lease_end || now=0
            if [ "$end" -gt "$now" ] 2>/dev/null; then
                echo "$end" > {LEASE}/lease_end.tag && mv {LEASE}/lease_end.tag {LEASE}/lease_end
            fi
            ;;
    esac
    sleep 10
done
"""

_INSTALL = """\
python=python3
if command -v dnf >/dev/null; then
    dnf -q -y install python3.11 python3.11-pip && python=python3.11
elif command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q update && apt-get -q -y install python3 python3-venv
fi
$python -m venv /opt/prudent
/opt/prudent/bin/pip install -q {packages}
for program in /opt/prudent/bin/*; do
    ln -sf "$program" /usr/local/bin/
done
"""


@dataclass(frozen=True)
class HostKey:
    """How a machine proves to be the one that we launched. The public half becomes a tag."""

    private: str
    public: str


def new_host_key() -> HostKey:
    """A fresh key for the machines of one cluster."""
    import asyncssh

    key = asyncssh.generate_private_key("ssh-ed25519")
    public = " ".join(key.export_public_key().decode().split()[:2])
    return HostKey(key.export_private_key().decode(), public)


def user_data(settings: Ec2Settings, lease_end_s: float, host_key: HostKey | None) -> bytes:
    """The user-data of a machine whose lease ends at a moment; packed if it would be too large."""
    document: dict[str, object] = {
        "write_files": _files(settings, lease_end_s),
        "runcmd": [
            ["chown", "-R", settings.login, LEASE],
            ["systemctl", "daemon-reload"],
            ["systemctl", "enable", "--now", "prudent-switch.service", "prudent-lease.service"],
            ["sh", f"{_PROGRAMS}/setup.sh"],
        ],
    }
    if host_key is not None:
        document["ssh_deletekeys"] = True
        document["ssh_keys"] = {"ed25519_private": host_key.private, "ed25519_public": host_key.public}
    if authorized := public_key(settings):
        document["ssh_authorized_keys"] = [authorized]
    # JSON is YAML, and every string in it says itself what it is.
    text = f"#cloud-config\n{json.dumps(document)}\n".encode()
    packed = gzip.compress(text, mtime=0) if len(text) > _LARGEST else text
    if len(packed) > _LARGEST:
        raise BadInput(
            f"The packages and set-up of the EC2 settings make {len(packed)} bytes, EC2 takes {_LARGEST}; "
            "put long scripts where the machine can fetch them."
        )
    return packed


def public_key(settings: Ec2Settings) -> str:
    """The public half of the key file; empty if there is none, or if a key pair of EC2 is used instead."""
    if settings.key or settings.key_file is None:
        return ""
    path = settings.key_file.with_name(f"{settings.key_file.name}.pub")
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def setup(packages: Sequence[str], commands: Sequence[str]) -> str:
    """The script that prepares a machine; how it went is written where `ready` looks.

    >>> print(setup([], ["mkdir /data"]))  # doctest: +ELLIPSIS
    #!/bin/sh
    ...
    mkdir /data
    ...
    """
    install = _INSTALL.format(packages=shlex.join(packages)) if packages else ""
    steps = "\n".join([install, *commands])
    return (
        f"#!/bin/sh\nexec > {LOG} 2>&1\n(\nset -ex\n{steps}\n)\n"
        f'code=$?\nif [ "$code" = 0 ]; then touch {READY}; else tail -n 3 {LOG} > {FAILED}; fi\n'
    )


def _files(settings: Ec2Settings, lease_end_s: float) -> list[dict[str, str]]:
    # The switch reads whole seconds; rounded up, so that it never is the first to give up.
    end = f"{math.ceil(lease_end_s)}\n"
    watch = f"{_PROGRAMS}/switch.sh watch {LEASE} PRUDENT_MACHINE=all {dead_mans_switch.POWER_OFF}"
    texts = {
        f"{LEASE}/lease_end": end,
        f"{_PROGRAMS}/switch.sh": dead_mans_switch.script(),
        f"{_PROGRAMS}/follow.sh": _FOLLOW,
        f"{_PROGRAMS}/setup.sh": setup(settings.packages, settings.setup),
        "/etc/systemd/system/prudent-switch.service": _service("Prudent's dead-man's switch", watch),
        "/etc/systemd/system/prudent-lease.service": _service("Prudent's lease", f"{_PROGRAMS}/follow.sh"),
    }
    return [{"path": path, "content": text} for path, text in texts.items()]


def _service(what: str, command: str) -> str:
    return (
        f"[Unit]\nDescription={what}\n[Service]\nExecStart=/bin/sh {command}\nRestart=always\nRestartSec=5\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


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
        """The image for a machine type: the one in the settings, or the newest of the kind that they name."""
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
        with translating(f"tell the newest image {self._settings.image} ({name})"):
            return str(self._clients.ssm.get_parameter(Name=name)["Parameter"]["Value"])

    def _describe(self, image_id: str) -> Image:
        with translating(f"find the image {image_id}"):
            found = self._clients.ec2.describe_images(ImageIds=[image_id])["Images"]
        if not found:
            raise BadInput(f"There is no image {image_id} in {self._settings.region}; name another.")
        [image] = found
        root = image["RootDeviceName"]
        disks = {one["DeviceName"]: one.get("Ebs", {}) for one in image.get("BlockDeviceMappings", ())}
        return Image(image_id, image["Architecture"], root, int(disks.get(root, {}).get("VolumeSize") or 8))

    def _architecture(self, type_name: str) -> str:
        with translating(f"find the machine type {type_name}"):
            found = self._clients.ec2.describe_instance_types(InstanceTypes=[type_name])["InstanceTypes"]
        offered = found[0]["ProcessorInfo"]["SupportedArchitectures"] if found else []
        for architecture in ("x86_64", "arm64"):
            if architecture in offered:
                return architecture
        raise BadInput(
            f"The machine type {type_name} is not offered in {self._settings.region}; choose another."
        )

    def _zone(self, subnet: str) -> str:
        with translating(f"find the subnet {subnet}"):
            [found] = self._clients.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"]
        return str(found["AvailabilityZone"])
