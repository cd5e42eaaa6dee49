"""The file of EC2 settings, and what a machine is told to do when it starts."""

from __future__ import annotations

import gzip
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from prudent.cloud.providers.ec2.boot import LEASE, HostKey, new_host_key, user_data
from prudent.cloud.providers.ec2.provider import Ec2Provider
from prudent.cloud.providers.ec2.settings import Ec2Settings
from prudent.cloud.providers.provider import Provider
from prudent.core.errors import BadInput

KEY = HostKey("PRIVATE", "ssh-ed25519 PUBLIC")


def settings(**said: Any) -> Ec2Settings:
    return Ec2Settings.parse({"region": "us-east-1", **said})


def document(raw: bytes) -> dict[str, Any]:
    text = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    assert text.startswith(b"#cloud-config\n")
    said: dict[str, Any] = yaml.safe_load(text)
    return said


def files(raw: bytes) -> dict[str, str]:
    return {one["path"]: one["content"] for one in document(raw)["write_files"]}


def test_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "aws.yaml"
    path.write_text(
        "region: eu-west-1\nsubnets: [subnet-1, subnet-2]\nsecurity_groups: sg-1\nkey_file: keys/mine\n"
        "alternatives: {m5.large: m5a.large}\nspot_max_usd_per_h: 5 cents\nprices: mine.csv\nuser: me\n"
    )
    read = Ec2Settings.read(path)
    assert read.subnets == ("subnet-1", "subnet-2")
    assert read.security_groups == ("sg-1",)
    assert read.key_file == tmp_path / "keys" / "mine"
    assert read.prices == tmp_path / "mine.csv"
    assert read.alternatives == {"m5.large": ("m5a.large",)}
    assert read.spot_max_usd_per_h == pytest.approx(0.05)
    assert read.login == "me"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "It holds no keys"),
        ("image: debian", 'There is no "region"'),
        ("region: us-east-1\nsubnetz: []", 'Did you mean "subnets"'),
        ("region: us-east-1\nsubnet: subnet-1", 'written "subnets: […]"'),
        ("region: us-east-1\nsecret_key: x", "does not belong in a file"),
        ("region: us-east-1\nimage: debain", 'Did you mean "debian"'),
        ("region: us-east-1\naddress: publik", 'Did you mean "public"'),
        ("region: us-east-1\nport: 0", "whole number of 1 or more"),
        ("region: us-east-1\ndisk_gb: big", "whole number of 1 or more"),
        ("region: us-east-1\nsubnets: [1]", "not a list of names"),
        ("region: us-east-1\nsubnets: [a]\nzones: [b]", "keep one of the two"),
        ("region: us-east-1\ntags: {'prudent:run': x}", "not yours to set"),
        ("region: us-east-1\nspot_max_usd_per_h: 5 min", "money"),
        ("region: [", "not YAML"),
    ],
)
def test_wrong_files_are_refused_by_name_and_key(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "aws.yaml"
    path.write_text(text)
    with pytest.raises(BadInput) as refused:
        Ec2Provider.of("aws.yaml", tmp_path, tmp_path)
    assert says in str(refused.value)
    assert str(refused.value).startswith("aws.yaml")


@pytest.mark.parametrize("setting", [None, {"region": "us-east-1"}, "nowhere.yaml"])
def test_without_a_file_it_is_said_how_to_get_one(tmp_path: Path, setting: Any) -> None:
    with pytest.raises(BadInput, match="prudent infra aws"):
        Ec2Provider.of(setting, tmp_path, tmp_path)


def test_it_is_a_provider(tmp_path: Path) -> None:
    (tmp_path / "aws.yaml").write_text("region: us-east-1")
    provider = Ec2Provider.of("aws.yaml", tmp_path, tmp_path)
    assert isinstance(provider, Provider)
    assert provider.settings == {"ec2": str(tmp_path / "aws.yaml")}
    assert "m5.large" in provider.catalog()


# What a machine does first


def test_a_machine_is_told_its_lease_and_its_host_key() -> None:
    told = user_data(settings(), 1_800_000_000.2, KEY)
    assert files(told)[f"{LEASE}/lease_end"] == "1800000001\n"
    said = document(told)
    assert said["ssh_keys"] == {"ed25519_private": "PRIVATE", "ed25519_public": "ssh-ed25519 PUBLIC"}
    commands = [" ".join(command) for command in said["runcmd"]]
    switch = next(number for number, text in enumerate(commands) if "prudent-switch.service" in text)
    setup = next(number for number, text in enumerate(commands) if "setup.sh" in text)
    assert switch < setup
    assert f"watch {LEASE}" in files(told)["/etc/systemd/system/prudent-switch.service"]
    assert "poweroff" in files(told)["/etc/systemd/system/prudent-switch.service"]


def test_the_scripts_are_shell_scripts() -> None:
    told = files(user_data(settings(packages=["numpy>=2", "a b"], setup=["echo 'x'"]), 1.0, KEY))
    for path, text in told.items():
        if path.endswith(".sh"):
            done = subprocess.run(["sh", "-n"], input=text, text=True, check=False, capture_output=True)
            assert done.returncode == 0, (path, done.stderr)
    assert "'numpy>=2' 'a b'" in next(text for path, text in told.items() if path.endswith("setup.sh"))


def test_the_key_is_given_to_the_machine_unless_ec2_has_it(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text("ssh-ed25519 MINE me@here\n")
    (tmp_path / "key").write_text("secret")
    ours = settings(key_file=str(tmp_path / "key"))
    assert document(user_data(ours, 1.0, KEY))["ssh_authorized_keys"] == ["ssh-ed25519 MINE me@here"]
    theirs = settings(key_file=str(tmp_path / "key"), key="pair")
    assert "ssh_authorized_keys" not in document(user_data(theirs, 1.0, KEY))
    assert b"secret" not in user_data(ours, 1.0, KEY)


def test_long_user_data_is_packed_and_too_long_is_refused() -> None:
    long = user_data(settings(setup=["echo " + "x" * 20_000]), 1.0, KEY)
    assert len(long) < 16_384
    assert "x" * 20_000 in files(long)["/usr/local/lib/prudent/setup.sh"]
    with pytest.raises(BadInput, match="EC2 takes 16384"):
        user_data(settings(setup=[os.urandom(40_000).hex()]), 1.0, KEY)


def test_each_cluster_has_a_key_of_its_own() -> None:
    assert new_host_key().public != new_host_key().public
    assert len(new_host_key().public) < 256


def run_setup(tmp_path: Path, **said: Any) -> Path:
    text = files(user_data(settings(**said), 1.0, KEY))["/usr/local/lib/prudent/setup.sh"]
    for there in ("/var/lib/prudent", "/var/log"):
        text = text.replace(there, str(tmp_path))
    subprocess.run(["sh", "-c", text], check=False)
    return tmp_path


def test_a_set_up_that_works(tmp_path: Path) -> None:
    done = run_setup(tmp_path, setup=[f"echo one > {tmp_path}/made", "test -n x"])
    assert (done / "ready").exists()
    assert (done / "made").read_text() == "one\n"
    assert not (done / "failed").exists()


def test_a_set_up_that_fails_says_where(tmp_path: Path) -> None:
    done = run_setup(tmp_path, setup=["true", "cat /nowhere/at-all", f"touch {tmp_path}/never"])
    assert not (done / "ready").exists()
    assert "/nowhere/at-all" in (done / "failed").read_text()
    assert not (done / "never").exists()


def test_a_machine_follows_its_tag(tmp_path: Path) -> None:
    """With a `curl` that plays the machine's metadata: a later end is taken over, an earlier one is not."""
    told = files(user_data(settings(), 1.0, KEY))["/usr/local/lib/prudent/follow.sh"]
    told = told.replace(LEASE, str(tmp_path)).replace("sleep 10", "sleep 0.05")
    tag, end, curl = tmp_path / "tag", tmp_path / "lease_end", tmp_path / "curl"
    curl.write_text(f"#!/bin/sh\ncase $* in *api/token*) echo t ;; *lease-end-s) cat {tag} ;; esac\n")
    curl.chmod(0o755)
    end.write_text("1800000000\n")
    tag.write_text("1800000500.75")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    following = subprocess.Popen(["sh", "-c", told], env=environment, start_new_session=True)
    try:
        assert becomes(end, "1800000500\n")
        for said in ("1800000100.0", "", "soon"):
            tag.write_text(said)
            time.sleep(0.3)
            assert end.read_text() == "1800000500\n"
        tag.write_text("1800000900.0")
        assert becomes(end, "1800000900\n")
    finally:
        os.killpg(following.pid, 9)
        following.wait()


def becomes(path: Path, text: str) -> bool:
    until_s = time.monotonic() + 20
    while path.read_text() != text and time.monotonic() < until_s:
        time.sleep(0.05)
    return path.read_text() == text
