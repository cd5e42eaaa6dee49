"""`prudent infra aws`: Terraform that its parser reads and that Prudent can live on."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hcl2
import pytest
import yaml

from prudent.cli.infra import FILES, network, terraform
from prudent.cloud.providers.ec2.settings import Ec2Settings
from prudent.core.errors import BadInput


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return terraform("eu-west-1", "lab", 2, ["203.0.113.7/32"])


@pytest.fixture(scope="module")
def parsed(texts: dict[str, str]) -> dict[str, Any]:
    """All files as one document, as Terraform reads a folder."""
    whole: dict[str, Any] = {}
    for text in texts.values():
        for kind, blocks in hcl2.loads(text).items():
            whole.setdefault(kind, []).extend(blocks)
    return whole


def plain(name: str) -> str:
    return name.strip('"')


def declared(parsed: dict[str, Any], kind: str) -> dict[str, Any]:
    """Resources or data by `type.name`."""
    return {
        f"{plain(one)}.{plain(name)}": body
        for block in parsed[kind]
        for one, named in block.items()
        if not one.startswith("__")
        for name, body in named.items()
        if not name.startswith("__")
    }


def test_every_file_is_what_terraform_reads(texts: dict[str, str]) -> None:
    assert set(texts) == set(FILES)
    for text in texts.values():
        assert hcl2.loads(text)
        assert "{{" not in text
        assert "{%" not in text


def test_what_must_exist_is_there(parsed: dict[str, Any]) -> None:
    kinds = {name.split(".")[0] for name in declared(parsed, "resource")}
    assert {
        "aws_vpc", "aws_subnet", "aws_internet_gateway", "aws_security_group", "aws_iam_role",
        "aws_iam_instance_profile", "aws_iam_policy", "aws_s3_bucket", "aws_sqs_queue",
    } <= kinds  # fmt: skip


def test_everything_that_is_named_is_declared(texts: dict[str, str], parsed: dict[str, Any]) -> None:
    whole = "\n".join(re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE) for text in texts.values())
    resources, data = declared(parsed, "resource"), declared(parsed, "data")
    variables = {plain(name) for block in parsed["variable"] for name in block}
    for used in re.findall(r"(?<![\w.])data\.(aws_\w+\.\w+)", whole):
        assert used in data
    for used in re.findall(r"(?<![\w.\"])(aws_\w+\.\w+)", whole):
        assert used in resources
    for used in re.findall(r"(?<![\w.])var\.(\w+)", whole):
        assert used in variables


def test_what_was_said_is_in_it(parsed: dict[str, Any]) -> None:
    values = {
        plain(name): body.get("default") for block in parsed["variable"] for name, body in block.items()
    }
    assert plain(values["region"]) == "eu-west-1"
    assert values["zones"] == 2
    assert [plain(one) for one in values["ssh_from"]] == ["203.0.113.7/32"]


def test_terraform_asks_who_may_log_in_if_nobody_said() -> None:
    text = terraform("us-east-1", "lab", 3, [])["variables.tf"]
    [said] = [block for block in hcl2.loads(text)["variable"] if "ssh_from" in map(plain, block)]
    assert "default" not in next(iter(said.values()))


def test_only_the_port_of_ssh_is_open(parsed: dict[str, Any]) -> None:
    ingress = declared(parsed, "resource")["aws_security_group.machines"]["ingress"]
    outside = [rule for rule in ingress if "self" not in rule]
    assert [(rule["from_port"], rule["to_port"], rule["cidr_blocks"]) for rule in outside] == [
        (22, 22, "${var.ssh_from}")
    ]


def test_the_bucket_is_closed_and_the_queue_keeps_what_failed(parsed: dict[str, Any]) -> None:
    resources = declared(parsed, "resource")
    block = resources["aws_s3_bucket_public_access_block.data"]
    assert all(
        value is True for key, value in block.items() if key.startswith(("block_", "ignore_", "restrict_"))
    )
    assert "aws_sqs_queue.failed.arn" in json.dumps(resources["aws_sqs_queue.requests"])


def test_the_policy_allows_every_call_that_the_provider_makes(parsed: dict[str, Any]) -> None:
    statements = declared(parsed, "data")["aws_iam_policy_document.operator"]["statement"]
    allowed = [plain(action) for statement in statements for action in statement["actions"]]
    source = Path(__file__).resolve().parents[2] / "src" / "prudent" / "cloud" / "providers"
    code = "\n".join(path.read_text() for path in source.glob("ec2/*.py"))
    called = re.findall(r"(?:clients?\.(\w+)|client\(\))\.([a-z]+_[a-z_]+)\(", code)
    for name in re.findall(r'get_paginator\("(\w+)"\)', code):
        called.append(("pricing" if name == "get_products" else "ec2", name))
    actions = {
        f"{'ec2' if service in ('', 'launching') else service}:{name.title().replace('_', '')}"
        for service, name in called
        if name != "get_paginator"
    }
    assert len(actions) > 12
    for action in actions:
        assert any(fnmatch.fnmatchcase(action, pattern) for pattern in allowed), action


def test_only_tagged_machines_can_be_launched_and_ended(parsed: dict[str, Any]) -> None:
    statements = declared(parsed, "data")["aws_iam_policy_document.operator"]["statement"]
    by_name = {plain(one["sid"]): one for one in statements}
    for name, key in (
        ("LaunchTagged", "aws:RequestTag/prudent"),
        ("RenewAndEndOurs", "aws:ResourceTag/prudent"),
    ):
        [condition] = by_name[name]["condition"]
        assert plain(condition["variable"]) == key
        assert [plain(value) for value in condition["values"]] == ["machine"]


def test_its_output_is_a_file_of_settings(texts: dict[str, str]) -> None:
    lines = re.findall(r'^    "(.*)",$', texts["outputs.tf"].split("bucket")[0], re.MULTILINE)
    said = "\n".join(re.sub(r"\$\{[^{}]*\}", "x-1", line) for line in lines).replace("x-1", "subnet-1")
    settings = Ec2Settings.parse(yaml.safe_load(said))
    assert settings.security_groups
    assert settings.instance_profile


def test_the_command(prudent: Callable[..., Any], tmp_path: Path) -> None:
    done = prudent("infra", "aws", "--out", tmp_path / "tf", "--ssh-from", "203.0.113.7")
    assert done.code == 0
    assert "output -raw aws_yaml > aws.yaml" in done.out
    assert sorted(path.name for path in (tmp_path / "tf").iterdir()) == sorted(FILES)
    again = prudent("infra", "aws", "--out", tmp_path / "tf", "--ssh-from", "203.0.113.7", "--json")
    assert json.loads(again.out)["files"] == list(FILES)


def test_what_somebody_changed_is_not_overwritten(prudent: Callable[..., Any], tmp_path: Path) -> None:
    prudent("infra", "aws", "--out", tmp_path)
    (tmp_path / "roles.tf").write_text("# mine\n")
    refused = prudent("infra", "aws", "--out", tmp_path)
    assert refused.code == 2
    assert "roles.tf already" in refused.err
    assert (tmp_path / "roles.tf").read_text() == "# mine\n"
    assert prudent("infra", "aws", "--out", tmp_path, "--force").code == 0
    assert (tmp_path / "roles.tf").read_text() != "# mine\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--region", "useast1"], "us-east-1"),
        (["--name", "My Lab"], "small letters"),
        (["--ssh-from", "somewhere"], "203.0.113.7/32"),
        (["--ssh-from", "::/0"], "version 4"),
        (["--zones", "0"], "--help"),
        (["--key-file", 'x"}'], "plain path"),
    ],
)
def test_wrong_wishes(prudent: Callable[..., Any], tmp_path: Path, options: list[str], says: str) -> None:
    done = prudent("infra", "aws", "--out", tmp_path / "tf", *options)
    assert done.code == 2
    assert says in done.err
    assert not (tmp_path / "tf").exists()


def test_a_folder_that_cannot_be_made(prudent: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert prudent("infra", "aws", "--out", tmp_path / "file" / "tf").code == 2


def test_a_network_and_not_a_machine_in_it() -> None:
    with pytest.raises(BadInput):
        network("10.0.0.1/8")
