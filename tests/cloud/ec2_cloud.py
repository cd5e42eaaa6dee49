"""EC2 on loopback: moto's server, made more like the real one, with machines that can be entered.

Added to moto: a launch with a token that was used already gives the same machines, or is refused when it
says something else (as AWS documents it); requests are served one after the other, for moto's tables are not
made for threads; and each machine that somebody logs in to is a real SSH server with the host key, the
authorised key and the set-up script that its user-data brought. And ending a machine twice is no error.
Left out: all images but Amazon's newest, whose disks moto would make anew for every account.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import gzip
import json
import os
import shutil
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import asyncssh
import yaml
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.amis import Ami, AmiBackend
from moto.ec2.models.instances import Instance, InstanceState
from moto.ec2.responses.instances import InstanceResponse
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.utilities.utils import load_resource
from werkzeug.serving import WSGIRequestHandler, make_server

from prudent.cloud.providers.channel import Channel
from prudent.cloud.providers.ec2 import provider as ec2_provider
from prudent.cloud.providers.ec2.client import new_session
from prudent.cloud.providers.ec2.provider import Ec2Provider
from prudent.cloud.providers.ec2.settings import Ec2Settings

from .ssh_server import SshHost

REGION = "us-east-1"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002
        pass


def _terminated_once(original: Any, machine: Any) -> Any:
    """Ending what is ended is not an error on AWS; moto then misses the network card."""
    return InstanceState("terminated", 48) if machine.state == "terminated" else original(machine)


@cache
def _newest_images(region: str) -> list[dict[str, Any]]:
    try:
        every = load_resource(f"ec2/resources/latest_amis/{region}.json")
    except FileNotFoundError:
        return []
    return [
        {**one, "owner_alias": "amazon", "creation_date": None}
        for one in every
        if one["name"].startswith("al2023-ami-2")
    ]


def _load_few_images(backend: Any) -> None:
    for one in _newest_images(backend.region_name):
        backend.amis[one["ami_id"]] = Ami(backend, **one)


class Ec2Cloud:
    """A cloud of one's own. `with` starts it; `provider` is a way in, with the settings changed as told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._made: dict[str, tuple[str, Any]] = {}
        self._services: dict[str, Any] = {}
        self._spare: dict[tuple[Any, ...], list[Any]] = {}
        self._lent: list[tuple[tuple[Any, ...], Any, Any]] = []
        self._hosts: dict[str, SshHost] = {}
        self._undo = contextlib.ExitStack()
        self.key = folder / "client_key"

    def __enter__(self) -> Ec2Cloud:
        self.folder.mkdir(parents=True, exist_ok=True)
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(str(self.key))
        self.key.chmod(0o600)
        key.write_public_key(f"{self.key}.pub")
        served = DomainDispatcherApplication(create_backend_app)
        one_by_one = threading.Lock()

        def serve(environ: Any, start: Any) -> list[bytes]:
            with one_by_one:
                return list(served(environ, start))

        self._server = make_server("127.0.0.1", 0, serve, threaded=True, request_handler=_Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._undo.callback(self._server.server_close)
        self._undo.callback(self._server.shutdown)
        self._replace(InstanceResponse, "run_instances", self._run)
        self._replace(InstanceResponse, "terminate_instances", self._terminate)
        self._replace(Instance, "terminate", _terminated_once)
        self._replace(AmiBackend, "_load_amis", _load_few_images)
        self.reset()
        return self

    def __exit__(self, *_: object) -> None:
        self._lose(list(self._hosts))
        self._undo.close()

    def reset(self) -> None:
        """An account with nothing in it but what AWS gives everyone, and an open port 22."""
        self._lose(list(self._hosts))
        self._made.clear()
        self._take_back()
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")).close()
        self.client = self.service("ec2")
        found = self.client.describe_subnets()["Subnets"]
        self.subnets = {one["AvailabilityZone"]: one["SubnetId"] for one in found}
        [self.group] = [one["GroupId"] for one in self.client.describe_security_groups()["SecurityGroups"]]
        self.client.authorize_security_group_ingress(
            GroupId=self.group, IpProtocol="tcp", FromPort=22, ToPort=22, CidrIp="0.0.0.0/0"
        )

    def service(self, name: str) -> Any:
        if name not in self._services:
            self._services[name] = new_session().create_client(
                name, REGION, endpoint_url=self.url, aws_access_key_id="test", aws_secret_access_key="test"
            )
        return self._services[name]

    # Settings and providers

    def said(self, **changes: Any) -> dict[str, Any]:
        """Settings that work; keyword arguments change or (None) remove keys."""
        whole = {
            "region": REGION,
            "endpoint": self.url,
            "subnets": [self.subnets["us-east-1a"], self.subnets["us-east-1b"]],
            "security_groups": [self.group],
            "key_file": str(self.key),
            **changes,
        }
        return {key: value for key, value in whole.items() if value is not None}

    def file(self, name: str = "aws.yaml", **changes: Any) -> Path:
        path = self.folder / name
        path.write_text(yaml.safe_dump(self.said(**changes)))
        return path

    def provider(self, sleep: Callable[[float], None] = lambda _: None, **changes: Any) -> Ec2Provider:
        """By default one that does not wait between attempts: moto is never busy."""
        path = self.file(**changes)
        made = Ec2Provider(Ec2Settings.read(path), path, sleep)
        self._lend_clients(made)
        return made

    def _lend_clients(self, provider: Ec2Provider) -> None:
        """Clients take long to make: after a reset, those of the providers before it are used again."""
        place, make = provider.place, provider.clients._new

        def lent(service: str, patient: bool) -> Any:
            who = tuple(os.environ.get(name) for name in CREDENTIALS)
            key = (service, patient, place.region, place.endpoint, place.profile, who)
            spare = self._spare.get(key)
            client = spare.pop() if spare else make(service, patient)
            self._lent.append((key, client, copy.copy(client.meta.events._emitter)))
            return client

        provider.clients._new = lent  # type: ignore[method-assign]

    def _take_back(self) -> None:
        """Without what tests have hung on them."""
        for key, client, heard in self._lent:
            client.meta.events._emitter = heard
            self._spare.setdefault(key, []).append(client)
        self._lent.clear()

    # What is really there

    def machines(self, *states: str) -> list[dict[str, Any]]:
        wanted = states or ("pending", "running", "stopping", "stopped")
        pages = self.client.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "instance-state-name", "Values": list(wanted)}]
        )
        return [one for page in pages for held in page["Reservations"] for one in held["Instances"]]

    def user_data(self, machine: str) -> dict[str, Any]:
        """The cloud-config of a machine, as cloud-init would read it."""
        said = self.client.describe_instance_attribute(InstanceId=machine, Attribute="userData")
        raw = base64.b64decode(said["UserData"]["Value"])
        raw = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
        assert raw.startswith(b"#cloud-config\n")
        document: dict[str, Any] = yaml.safe_load(raw)
        return document

    # Machines that can be entered

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Let providers of this process log in: a machine's address leads to its own SSH server."""
        from prudent.cloud.providers.ec2 import fleet

        with contextlib.ExitStack() as undo:
            self._replace(ec2_provider, "open_channel", self._open, undo)
            look = fleet._LOOK.replace("/var/lib/prudent/", '"$HOME"/.prudent/')
            self._replace(fleet, "_LOOK", look, undo)
            yield

    def lose(self, machine: str) -> None:
        self._lose([machine])

    def _open(self, login: Any, workspace: str, environment: Mapping[str, str]) -> Channel:
        from prudent.cloud.providers.ssh.channel import SshChannel

        host = self._host(login.name)
        return SshChannel(replace(login, address="127.0.0.1", port=host.port), workspace, environment)

    def _host(self, machine: str) -> SshHost:
        with self._lock:
            if machine not in self._hosts:
                self._hosts[machine] = self._boot(machine)
            return self._hosts[machine]

    def _boot(self, machine: str) -> SshHost:
        document = self.user_data(machine)
        folder = self.folder / machine
        (folder / "home" / ".prudent").mkdir(parents=True)
        key = folder / "host_key"
        key.write_text(document["ssh_keys"]["ed25519_private"])
        key.chmod(0o600)
        (folder / "authorized_keys").write_text("\n".join(document["ssh_authorized_keys"]) + "\n")
        [setup] = [one["content"] for one in document["write_files"] if one["path"].endswith("setup.sh")]
        for there in ("/var/lib/prudent", "/var/log"):
            setup = setup.replace(there, str(folder / "home" / ".prudent"))
        subprocess.run(["sh", "-c", setup], check=False)
        return SshHost(folder, machine).start().wait()

    def _lose(self, machines: Iterable[str]) -> None:
        for machine in machines:
            if host := self._hosts.pop(machine, None):
                host.lose()
                shutil.rmtree(host.folder)

    # What moto leaves out

    def _run(self, original: Any, request: Any) -> Any:
        token = request._get_param("ClientToken")
        if request._get_param("DryRun") or not token:
            return original(request)
        said = json.dumps(
            {key: value for key, value in sorted(request.querystring.items()) if key != "Timestamp"}
        )
        if token in self._made:
            before, reservation = self._made[token]
            if before != said:
                raise EC2ClientError(
                    "IdempotentParameterMismatch", "The token was used with other parameters."
                )
            return ActionResult(reservation)
        answer = original(request)
        self._made[token] = said, answer.result
        return answer

    def _terminate(self, original: Any, request: Any) -> Any:
        answer = original(request)
        self._lose(request._get_param("InstanceIds", []))
        return answer

    def _replace(self, place: Any, name: str, made: Any, undo: contextlib.ExitStack | None = None) -> None:
        original = getattr(place, name)
        around = place in (InstanceResponse, Instance)
        setattr(place, name, (lambda one: made(original, one)) if around else made)
        (undo or self._undo).callback(setattr, place, name, original)
