"""The bundled prices hold together, and a list of one's own overrides and extends them."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from prudent.cloud.catalog import Catalog, Machine
from prudent.core.errors import BadInput

# Public on-demand prices of us-east-1 (Linux), written down from public lists, not from our file.
PUBLIC = {
    "t2.nano": 0.0058, "t2.small": 0.023, "t2.medium": 0.0464, "t2.xlarge": 0.1856, "t2.2xlarge": 0.3712,
    "t3.nano": 0.0052, "t3.micro": 0.0104, "t3.medium": 0.0416, "t3.2xlarge": 0.3328,
    "t3a.medium": 0.0376, "t3a.xlarge": 0.1504, "t4g.medium": 0.0336, "t4g.2xlarge": 0.2688,
    "m3.medium": 0.067, "m3.large": 0.133, "m3.xlarge": 0.266, "m3.2xlarge": 0.532,
    "m4.large": 0.1, "m4.xlarge": 0.2, "m4.10xlarge": 2.0, "m4.16xlarge": 3.2,
    "m5.large": 0.096, "m5.12xlarge": 2.304, "m5.24xlarge": 4.608, "m5a.large": 0.086, "m5a.24xlarge": 4.128,
    "m5d.large": 0.113, "m5d.24xlarge": 5.424, "m5n.large": 0.119, "m5n.24xlarge": 5.712,
    "m6i.large": 0.096, "m6i.32xlarge": 6.144, "m6a.large": 0.0864, "m6a.48xlarge": 8.2944,
    "m6g.large": 0.077, "m6g.4xlarge": 0.616, "m7i.large": 0.1008, "m7i.48xlarge": 9.6768,
    "c3.large": 0.105, "c3.8xlarge": 1.68, "c4.large": 0.1, "c4.xlarge": 0.199, "c4.8xlarge": 1.591,
    "c5.large": 0.085, "c5.9xlarge": 1.53, "c5.18xlarge": 3.06, "c5.24xlarge": 4.08,
    "c5a.large": 0.077, "c5a.24xlarge": 3.696, "c5d.large": 0.096, "c5d.18xlarge": 3.456,
    "c5n.large": 0.108, "c5n.18xlarge": 3.888, "c6i.large": 0.085, "c6i.32xlarge": 5.44,
    "c6a.large": 0.0765, "c6a.48xlarge": 7.344, "c6g.medium": 0.034, "c6g.4xlarge": 0.544,
    "c7i.large": 0.08925, "c7i.48xlarge": 8.568,
    "r3.large": 0.166, "r3.xlarge": 0.333, "r3.8xlarge": 2.66, "r4.large": 0.133, "r4.16xlarge": 4.256,
    "r5.large": 0.126, "r5.24xlarge": 6.048, "r5a.large": 0.113, "r5a.24xlarge": 5.424,
    "r5d.large": 0.144, "r5d.24xlarge": 6.912, "r5n.large": 0.149, "r5n.24xlarge": 7.152,
    "r6i.large": 0.126, "r6i.32xlarge": 8.064, "r6a.large": 0.1134, "r6a.48xlarge": 10.8864,
    "r6g.medium": 0.0504, "r6g.16xlarge": 3.2256, "r7i.large": 0.1323, "r7i.48xlarge": 12.7008,
    "i2.xlarge": 0.853, "i2.2xlarge": 1.705, "i2.8xlarge": 6.82, "i3.large": 0.156, "i3.16xlarge": 4.992,
    "i3en.large": 0.226, "i3en.24xlarge": 10.848, "d2.xlarge": 0.69, "d2.8xlarge": 5.52,
    "h1.2xlarge": 0.468, "h1.16xlarge": 3.744, "x1.16xlarge": 6.669, "x1.32xlarge": 13.338,
    "x1e.xlarge": 0.834, "x1e.32xlarge": 26.688, "z1d.large": 0.186, "z1d.12xlarge": 4.464,
    "g3.4xlarge": 1.14, "g3.16xlarge": 4.56, "g4dn.xlarge": 0.526, "g4dn.12xlarge": 3.912,
    "g5.xlarge": 1.006, "g5.12xlarge": 5.672, "g5.16xlarge": 4.096, "g5.48xlarge": 16.288,
    "p2.xlarge": 0.9, "p2.16xlarge": 14.4, "p3.2xlarge": 3.06, "p3.16xlarge": 24.48,
    "p3dn.24xlarge": 31.212, "p4d.24xlarge": 32.7726,
}  # fmt: skip

# Vcpus and GiB per type, likewise.
SIZES = {
    "t2.small": (1, 2), "t2.2xlarge": (8, 32), "t3.nano": (2, 0.5), "m3.medium": (1, 3.75),
    "m3.2xlarge": (8, 30),
    "m4.10xlarge": (40, 160), "m5.24xlarge": (96, 384), "m6g.medium": (1, 4), "m6a.48xlarge": (192, 768),
    "c4.8xlarge": (36, 60), "c5.9xlarge": (36, 72), "c5n.18xlarge": (72, 192), "c5a.8xlarge": (32, 64),
    "r4.16xlarge": (64, 488), "r5.12xlarge": (48, 384), "i3en.3xlarge": (12, 96), "d2.8xlarge": (36, 244),
    "x1e.32xlarge": (128, 3904), "z1d.6xlarge": (24, 192), "g4dn.12xlarge": (48, 192),
    "p3.8xlarge": (32, 244), "p4d.24xlarge": (96, 1152),
}  # fmt: skip


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load()


def own(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", PUBLIC)
def test_prices_agree_with_public_lists(catalog: Catalog, name: str) -> None:
    assert catalog[name].price.usd_per_h == pytest.approx(PUBLIC[name], abs=1e-9)


@pytest.mark.parametrize("name", SIZES)
def test_sizes_agree_with_public_lists(catalog: Catalog, name: str) -> None:
    assert (catalog[name].vcpus, catalog[name].memory_gb) == SIZES[name]


def test_every_family_was_compared(catalog: Catalog) -> None:
    assert {name.split(".")[0] for name in PUBLIC} == set(catalog.families())


def test_the_promised_families_are_there(catalog: Catalog) -> None:
    promised = ["t2", "t3", "m3", "m4", "m5", "m6i", "c4", "c5", "c6i", "r4", "r5", "g4dn", "p3"]
    assert set(promised) <= set(catalog.families())
    assert len(catalog) >= 150


def units(machine: Machine) -> float:
    """The size in units of `xlarge`, as AWS counts them."""
    size = machine.name.split(".")[1]
    small = {"nano": 1 / 32, "micro": 1 / 16, "small": 1 / 8, "medium": 1 / 4, "large": 1 / 2, "xlarge": 1.0}
    return small.get(size) or float(size.removesuffix("xlarge"))


def test_inside_a_family_prices_are_proportional_to_size(catalog: Catalog) -> None:
    uneven = {"g4dn", "g5", "p2"}  # their sizes differ in GPUs, or in vCPUs around the same GPU
    rates = defaultdict(list)
    for machine in catalog:
        if machine.family not in uneven:
            rates[machine.family].append(machine.price.usd_per_h / units(machine))
    for family, found in rates.items():
        assert max(found) / min(found) < 1.012, family


def test_every_row_is_dated_placed_and_billed_by_the_minute(catalog: Catalog) -> None:
    for machine in catalog:
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", machine.price.date)
        assert machine.region == "us-east-1"
        assert machine.price.source == "catalog aws us-east-1"
        assert machine.price.minimum_s == 60
        assert machine.memory_gb > 0
        assert machine.name.startswith(machine.family + ".")
        assert (machine.gpus > 0) == bool(machine.gpu) == (machine.family[0] in "gp")


def test_the_study_s_machines_have_the_study_s_speed(catalog: Catalog) -> None:
    assert catalog["m3.medium"].mips == 1000
    assert catalog["m3.2xlarge"].mips == 4156


def test_newer_and_larger_machines_are_faster(catalog: Catalog) -> None:
    assert catalog["m3.large"].speed < catalog["m4.large"].speed < catalog["m5.large"].speed
    assert catalog["m5.large"].mips < catalog["m6i.large"].mips < catalog["m6i.xlarge"].mips


def test_an_unknown_machine_is_answered_with_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(BadInput, match=r'Did you mean "c5\.xlarge"'):
        catalog["c5.xlrage"]
    assert "m5.large" in catalog
    assert "m5.lagre" not in catalog


def test_families_come_from_small_to_large(catalog: Catalog) -> None:
    names = [machine.name for machine in catalog.machines("c4")]
    assert names == ["c4.large", "c4.xlarge", "c4.2xlarge", "c4.4xlarge", "c4.8xlarge"]
    assert len(catalog.machines()) == len(catalog) == len(list(catalog))


def test_an_unknown_family_is_answered_with_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(BadInput, match=r'Unknown machine family "g4n"\. Did you mean "g4dn"'):
        catalog.machines("g4n")


def test_wildcards(catalog: Catalog) -> None:
    assert catalog.matching("c4.*") == catalog.machines("c4")
    assert [machine.name for machine in catalog.matching("m5.large")] == ["m5.large"]
    assert {machine.family for machine in catalog.matching("r[34].*")} == {"r3", "r4"}
    with pytest.raises(BadInput, match="Unknown machine types"):
        catalog.matching("q9.*")


def test_the_cheapest_that_is_large_enough(catalog: Catalog) -> None:
    assert catalog.cheapest().name == "t4g.nano"
    best = catalog.cheapest(vcpus=8, memory_gb=60)
    enough = [m for m in catalog if m.vcpus >= 8 and m.memory_gb >= 60]
    assert best.price.usd_per_h == min(m.price.usd_per_h for m in enough)
    assert catalog.cheapest(gpus=1).name == "g4dn.xlarge"
    with pytest.raises(BadInput, match="ask for less"):
        catalog.cheapest(vcpus=1000)


def test_the_bundled_catalog_is_read_once() -> None:
    assert Catalog.load() is Catalog.load()


def test_an_own_price_overrides_and_keeps_the_rest(tmp_path: Path, catalog: Catalog) -> None:
    path = own(tmp_path, "name,price_usd_per_h,date,region\nm5.large,0.107,2026-02-01,eu-west-1\n")
    changed = Catalog.load(path)
    machine = changed["m5.large"]
    assert (machine.price.usd_per_h, machine.price.date, machine.region) == (0.107, "2026-02-01", "eu-west-1")
    assert machine.price.source == "catalog mine.csv"
    assert machine.price.minimum_s == 60
    assert (machine.vcpus, machine.memory_gb, machine.mips) == (2, 8, catalog["m5.large"].mips)
    assert changed["m5.xlarge"] == catalog["m5.xlarge"]
    assert catalog["m5.large"].price.usd_per_h == 0.096


def test_an_own_price_without_a_date_does_not_borrow_one(tmp_path: Path) -> None:
    assert Catalog.load(own(tmp_path, "name,price_usd_per_h\nm5.large,0.05\n"))["m5.large"].price.date == ""


def test_an_own_machine_extends(tmp_path: Path, catalog: Catalog) -> None:
    header = "name,price_usd_per_h,vcpus,memory_gb,gpus,gpu,speed,minimum_s\n"
    text = header + "lab.big,0.5,16,64,2,A100,2.0,0\ndesk,0,,,,,,\n"
    extended = Catalog.load(own(tmp_path, text))
    big, desk = extended["lab.big"], extended["desk"]
    assert (big.vcpus, big.memory_gb, big.gpus, big.gpu, big.family) == (16, 64, 2, "A100", "lab")
    assert (big.speed, big.mips) == (2.0, pytest.approx(2000 * 4.156 ** (4 / 3), abs=1))
    assert big.price.cost_usd(3.6) == pytest.approx(0.0005)
    assert (desk.vcpus, desk.family, desk.price.usd_per_h, desk.speed, desk.mips) == (1, "desk", 0, 1.0, 1000)
    assert len(extended) == len(catalog) + 2


def test_own_speed_or_size_changes_the_estimate_of_mips(tmp_path: Path) -> None:
    text = "name,price_usd_per_h,speed,mips\nm3.medium,0.1,2,\nm3.2xlarge,0.5,,5000\n"
    changed = Catalog.load(own(tmp_path, text))
    assert changed["m3.medium"].mips == 2000
    assert changed["m3.2xlarge"].mips == 5000
