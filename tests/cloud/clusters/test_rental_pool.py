"""What a Spark cluster tells the provider about money, and the meter about machines; nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from prudent.cloud.clusters.autoscaling import ClusterRequest, MachineRange
from prudent.cloud.clusters.rental_pool import RentalPool
from prudent.cloud.clusters.spark_cluster import SparkCluster
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.meter import Meter
from prudent.cloud.providers.local.provider import LocalProvider
from prudent.cloud.providers.provider import CAPACITY, Instance, LaunchFailed, LaunchOrder
from prudent.core.errors import RunFailed


class Refusing(LocalProvider):
    """Has no machines; it notes who asks for them."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.orders: list[LaunchOrder] = []

    def launch(self, order: LaunchOrder) -> tuple[Instance, ...]:
        self.orders.append(order)
        raise LaunchFailed("There are none.", CAPACITY)


@pytest.mark.parametrize(("budget_usd", "ceiling"), [(2.0, 2.0 / 4 / 60 * 3600), (None, None)])
def test_the_provider_hears_how_much_there_is_money_for(
    tmp_path: Path, budget_usd: float | None, ceiling: float | None
) -> None:
    provider, request = (
        Refusing(tmp_path),
        ClusterRequest((MachineRange("m5.large", most=4), MachineRange("m5.xlarge")), 4, 4),
    )
    cluster = SparkCluster(
        provider, request, run="x", register=LeaseRegister(tmp_path), logs=tmp_path, meter=Meter(budget_usd)
    )
    with pytest.raises(RunFailed, match="There are none"):
        cluster.start()
    assert [order.type for order in provider.orders] == ["m5.large"] * 4 + ["m5.xlarge"] * 4
    assert [order.most_usd_per_h for order in provider.orders] == [
        None if ceiling is None else pytest.approx(ceiling)
    ] * 8


def test_every_machine_is_metered_from_its_order_to_its_end(tmp_path: Path) -> None:
    provider, meter = LocalProvider(tmp_path), Meter()
    rentals = RentalPool(provider, LeaseRegister(tmp_path), "x", False, 300.0, 60.0, meter)
    assert meter.spent_usd() == 0
    small = rentals.rent("m5.large")
    rentals.rent("m5.xlarge")
    assert meter.usd_per_s == pytest.approx((0.096 + 0.192) / 3600)
    rentals.give_back(small)
    assert meter.usd_per_s == pytest.approx(0.192 / 3600)
    rentals.close()
    assert meter.usd_per_s == 0
    assert provider.list() == ()
    minute_usd = (0.096 + 0.192) / 60
    assert meter.spent_usd() == pytest.approx(minute_usd)
    assert meter.spent_usd() == pytest.approx(rentals.cost_usd())
