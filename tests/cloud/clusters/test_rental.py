"""A rental ends its machines whatever happens, charges what they cost, and knows when it lost them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.clusters import rental
from prudent.cloud.clusters.rental import KILL_POINTS, RENEW_POINTS, Rental
from prudent.cloud.leases.lease import RELEASED, UP, WANTED
from prudent.cloud.leases.reaper import reap
from prudent.cloud.leases.register import LeaseLost, LeaseRegister
from prudent.cloud.providers.local.provider import LocalProvider
from prudent.cloud.providers.provider import CAPACITY, LaunchFailed
from prudent.core.errors import BadInput, RunFailed

from ..providers.conformance import eventually
from ..providers.troubled import Troubled, failing

# Leases are long and renewed often: however slow the computer is, none is over before its test is.
OFTEN_S = 0.05


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rental, "_TRY_AGAIN_S", 0.0)


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[LocalProvider]:
    made = LocalProvider(tmp_path)
    yield made
    assert made.list() == (), "a rental has left machines"


@pytest.fixture
def rent(tmp_path: Path, provider: LocalProvider) -> Callable[..., Rental]:
    def make(troubled: Any = None, count: int = 1, **other: Any) -> Rental:
        register = LeaseRegister(tmp_path)
        return Rental(troubled or provider, "m3.medium", count, run="run-1", register=register, **other)

    return make


def test_there_are_at_least_twelve_places_to_die_at() -> None:
    assert len(KILL_POINTS) == len(set(KILL_POINTS)) >= 12


class TestLife:
    def test_it_is_there_inside_and_gone_outside(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        with rent(count=2) as cluster:
            assert [one.index for one in cluster.instances] == [0, 1]
            assert len(cluster.addresses) == 2
            assert cluster.text == "2*m3.medium"
            assert cluster.register.read(cluster.cluster) == cluster.lease
            assert cluster.lease.state == UP
            assert cluster.channel(1) is cluster.channel(1)
            assert cluster.channel(1).run("echo $PRUDENT_MACHINE")[1] == f"{cluster.cluster}-1\n"
        assert cluster.lease.state == RELEASED
        assert provider.list() == ()
        with pytest.raises(RunFailed, match="no machines now"):
            cluster.channel(0)

    def test_in_steps_one_boots_while_another_works(self, rent: Callable[..., Rental]) -> None:
        with rent() as current, ThreadPoolExecutor(1) as beside:
            booting = beside.submit(rent().launch)
            assert current.channel(0).run("echo works")[1] == "works\n"
            following = booting.result().wait_ready()
        assert following.channel(0).run("echo too")[1] == "too\n"
        following.release()

    def test_released_twice_counts_once(self, rent: Callable[..., Rental]) -> None:
        cluster = rent().launch()
        cluster.release("first")
        once = cluster.lease
        cluster.release("second")
        assert cluster.lease == once
        assert once.why == "first"

    def test_launched_twice_is_bad_input(self, rent: Callable[..., Rental]) -> None:
        with rent() as cluster, pytest.raises(BadInput, match="launched already"):
            cluster.launch()

    def test_what_was_never_launched_needs_no_release(self, rent: Callable[..., Rental]) -> None:
        cluster = rent()
        cluster.release()
        assert cluster.cost_usd() == 0.0
        with pytest.raises(RunFailed, match="not launched"):
            _ = cluster.lease

    @pytest.mark.parametrize(
        "wrong",
        [{"count": 0}, {"lease_s": 0.0}, {"renew_s": 0.0}, {"lease_s": 9.0, "renew_s": 9.0}],
    )
    def test_what_cannot_be_is_bad_input(self, rent: Callable[..., Rental], wrong: dict[str, Any]) -> None:
        with pytest.raises(BadInput):
            rent(**wrong)

    def test_an_unknown_type_is_told_before_anything_is_written(
        self, tmp_path: Path, provider: LocalProvider
    ) -> None:
        register = LeaseRegister(tmp_path)
        with pytest.raises(BadInput, match="Did you mean"):
            Rental(provider, "m3.medum", run="r", register=register).launch()
        assert register.leases() == ()

    def test_every_point_is_passed_in_order(
        self, rent: Callable[..., Rental], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        passed: list[str] = []
        for module in ("prudent.cloud.clusters.rental", "prudent.cloud.providers.local.provider"):
            monkeypatch.setattr(f"{module}.kill_point", passed.append)
        with rent(renew_s=OFTEN_S):
            assert eventually(lambda: "renew.done" in passed)
        seen = list(dict.fromkeys(passed))
        # A renewal may be due at any time after the lease is recorded.
        assert [name for name in seen if name in RENEW_POINTS] == list(RENEW_POINTS)
        assert [name for name in seen if name not in RENEW_POINTS] == [
            name for name in KILL_POINTS if name not in RENEW_POINTS and not name.startswith("trial.")
        ]


class TestMoney:
    def test_machine_time_is_charged_from_launch_to_release(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        times = [time.time()]
        # Its machines do not know of this clock, and are not asked when they were gone.
        cluster = rent(Troubled(provider), count=2, clock=lambda: times[0], lease_s=1e6)
        cluster.launch()
        times[0] = (cluster.lease.launched_s or 0.0) + 1800
        rented_s = sum(times[0] - one.launched_s for one in cluster.instances)
        assert cluster.cost_usd() == pytest.approx(0.067 * rented_s / 3600)
        cluster.release()
        times[0] += 5000
        assert cluster.cost_usd() == pytest.approx(0.067 * rented_s / 3600)
        assert cluster.price.usd_per_h == pytest.approx(0.134)

    @pytest.mark.parametrize("noticed", [True, False])
    def test_one_that_was_taken_away_is_paid_until_it_was_gone(
        self, provider: LocalProvider, rent: Callable[..., Rental], noticed: bool
    ) -> None:
        """Whoever waits for another run with the rest of the cluster does not pay for it."""
        with rent(count=2) as cluster:
            provider.preempt(cluster.instances[1])
            until_s = time.time()
            if noticed:
                assert cluster.preempted()
                assert cluster.lease.machines[1].gone_s is not None
        kept, taken = cluster.lease.rental_periods
        assert taken.until_s is not None
        assert taken.since_s < taken.until_s <= until_s
        assert kept.until_s == cluster.lease.released_s
        assert cluster.register.read(cluster.cluster) == cluster.lease

    def test_looking_again_whether_they_are_gone_is_not_paid_for(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        times, told = [time.time()], []

        def slow_to_tell(call: str, number: int) -> None:
            if call == "list":
                times[0] += 100
                told.append(cluster.cost_usd())
                if len(told) == 1:
                    raise RunFailed("throttled")

        cluster = rent(Troubled(provider, slow_to_tell), clock=lambda: times[0], lease_s=1e6)
        with cluster:
            until_s = times[0] = times[0] + 10
        assert cluster.lease.released_s == until_s
        assert times[0] == until_s + 200
        assert told == [cluster.cost_usd()] * 2, "no charge is taken back"

    def test_the_price_at_the_launch_counts(self, tmp_path: Path, provider: LocalProvider) -> None:
        prices = tmp_path / "prices.csv"
        prices.write_text("name,price_usd_per_h\nm3.medium,6.0\n")
        with Rental(
            LocalProvider(tmp_path, prices), "m3.medium", run="r", register=LeaseRegister(tmp_path)
        ) as one:
            prices.write_text("name,price_usd_per_h\nm3.medium,60.0\n")
        assert one.cost_usd() == pytest.approx(0.1)
        found = LeaseRegister(tmp_path).read(one.cluster)
        assert found is not None
        assert found.cost_usd(0) == pytest.approx(0.1)

    def test_a_refused_launch_costs_nothing(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        none = LaunchFailed("nobody has one", CAPACITY)
        cluster = rent(Troubled(provider, failing(none, "launch")))
        with pytest.raises(LaunchFailed, match="nobody has one"), cluster:
            pass
        assert cluster.cost_usd() == 0.0
        assert (cluster.lease.state, cluster.lease.why) == (RELEASED, "nobody has one")


class TestTrouble:
    @pytest.mark.parametrize("call", ["launch", "ready"])
    @pytest.mark.parametrize("error", [RunFailed("timed out"), KeyboardInterrupt(), ValueError("a bug")])
    def test_an_error_after_the_work_was_done_leaves_nothing(
        self, provider: LocalProvider, rent: Callable[..., Rental], call: str, error: BaseException
    ) -> None:
        cluster = rent(Troubled(provider, after=failing(error, call)), count=2)
        with pytest.raises(type(error)), cluster:
            pass
        assert provider.list() == ()
        assert cluster.lease.state == RELEASED
        assert len(cluster.lease.machines) == 2, "what was launched is paid for"

    def test_an_error_inside_ends_it_and_is_told(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        cluster = rent()
        with pytest.raises(ZeroDivisionError), cluster:
            _ = len(cluster.instances) / 0
        assert cluster.lease.why == "ZeroDivisionError"

    def test_ending_is_tried_again(self, provider: LocalProvider, rent: Callable[..., Rental]) -> None:
        troubled = Troubled(provider, failing(RunFailed("throttled"), "terminate", times=2))
        with rent(troubled):
            pass
        assert troubled.calls.count("terminate") == 3

    def test_machines_that_will_not_end_are_told_and_left_to_the_reaper(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        troubled = Troubled(provider, failing(RunFailed("no network"), "terminate"))
        cluster = rent(troubled)
        with pytest.raises(RunFailed, match="no network"), cluster:
            pass
        assert cluster.register.leases()[0].state == UP
        late = reap(cluster.register, [provider], time.time() + 10_000)
        assert len(late.ended) == 1

    @pytest.mark.parametrize("ended", [True, False])
    def test_what_a_failed_launch_has_left_is_paid_while_it_cannot_be_ended(
        self, provider: LocalProvider, rent: Callable[..., Rental], ended: bool
    ) -> None:
        """Answers were lost: to the launch, and to four orders to end it, whether they were heard or not."""

        def lost(call: str, number: int) -> None:
            if call == "launch" or (call == "terminate" and 2 <= number <= 5):
                raise RunFailed("The answer was lost.")

        def before(call: str, number: int) -> None:
            if call == "terminate" and not ended and 2 <= number <= 5:
                raise RunFailed("The order was lost.")

        cluster = rent(Troubled(provider, before, lost), count=2)
        with pytest.raises(RunFailed, match="answer was lost"):
            cluster.launch()
        assert len(provider.list()) == (0 if ended else 2)
        assert not cluster.ended
        recorded = cluster.register.leases()[0]
        assert len(recorded.machines) == 2
        assert recorded.cost_usd(time.time() + 3600) > 3600 * 2 * recorded.price.usd_per_h / 3600
        cluster.release()
        assert provider.list() == ()
        assert cluster.ended
        assert cluster.register.leases()[0].state == RELEASED
        assert 0 < cluster.cost_usd() == cluster.register.leases()[0].cost_usd(0.0)

    def test_machines_of_which_only_the_end_is_known_are_paid(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        def gone(call: str, number: int) -> None:
            if call == "launch":
                provider.terminate(provider.list())
                raise RunFailed("The answer was lost.")

        troubled = Troubled(provider, after=gone)
        troubled.ended_s = provider.ended_s  # type: ignore[attr-defined]
        cluster = rent(troubled, count=2)
        with pytest.raises(RunFailed, match="answer was lost"):
            cluster.launch()
        assert cluster.ended
        assert len(cluster.lease.machines) == 2
        assert cluster.cost_usd() > 0

    def test_what_went_wrong_first_is_what_is_told(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        troubled = Troubled(provider, failing(RunFailed("no network"), "terminate"))
        with pytest.raises(ZeroDivisionError) as told, rent(troubled):
            _ = 1 / 0
        assert told.value.__notes__ == ["no network"]
        provider.terminate(provider.list())

    def test_released_while_it_is_being_launched(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        accepted, released = threading.Event(), threading.Event()

        def slow(call: str, number: int) -> None:
            if call == "launch":
                accepted.set()
                assert released.wait(60)

        cluster = rent(Troubled(provider, before=slow))
        with ThreadPoolExecutor(1) as beside:
            launching = beside.submit(cluster.launch)
            assert accepted.wait(60)
            cluster.release("not needed any more")
            released.set()
            with pytest.raises(LeaseLost, match="not needed any more"):
                launching.result()
        assert provider.list() == ()
        assert cluster.cost_usd() > 0

    def test_a_record_that_is_lost_or_cannot_be_written_does_not_keep_machines(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        with rent() as cluster:
            (cluster.register.folder / f"{cluster.cluster}.json").unlink()
        assert cluster.lease.state == RELEASED
        assert cluster.cost_usd() > 0


class TestLease:
    def test_by_default_two_attempts_may_fail(self, rent: Callable[..., Rental]) -> None:
        assert rent(lease_s=9.0).renew_s == 3.0

    def test_it_is_renewed_while_it_is_used(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        """In the record, in the register and on the machine, one after the other: so each is waited for."""
        with rent(renew_s=OFTEN_S) as cluster:
            first_s = cluster.lease.lease_end_s

            def ends_s() -> list[float]:
                recorded = cluster.register.read(cluster.cluster)
                assert recorded is not None
                return [cluster.lease.lease_end_s, recorded.lease_end_s, provider.list()[0].lease_end_s]

            # A machine counts whole seconds, and ends none too early.
            assert eventually(lambda: min(ends_s()) > first_s + 1)
            assert cluster.lost is None
            assert cluster.channel(0).run("echo here")[1] == "here\n"

    def test_a_renewal_is_recorded_before_the_machine_gets_it(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        """Else the reaper would end a machine that has just been promised more time."""
        recorded: list[tuple[float, float]] = []

        def look(call: str, number: int) -> None:
            if call == "renew":
                [lease] = cluster.register.leases()
                recorded.append((lease.lease_end_s, provider.list()[0].lease_end_s))

        times = [time.time()]
        cluster = rent(Troubled(provider, before=look), renew_s=OFTEN_S, clock=lambda: times[0])
        with cluster:
            times[0] += 50
            later_s = times[0] + cluster.lease_s
            assert eventually(lambda: any(said_s == later_s for said_s, _ in recorded))
        assert next(had_s for said_s, had_s in recorded if said_s == later_s) < later_s

    def test_it_is_renewed_while_it_boots(self, provider: LocalProvider, rent: Callable[..., Rental]) -> None:
        def slow(call: str, number: int) -> None:
            if call == "ready":
                assert eventually(lambda: troubled.calls.count("renew") >= 2)

        troubled = Troubled(provider, before=slow)
        with rent(troubled, renew_s=OFTEN_S) as cluster:
            assert cluster.channel(0).run("echo here")[1] == "here\n"

    def test_a_renewal_that_fails_is_tried_again(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        done: list[int] = []
        troubled = Troubled(
            provider,
            failing(RunFailed("throttled"), "renew", times=2),
            after=lambda call, number: done.append(number) if call == "renew" else None,
        )
        with rent(troubled, renew_s=OFTEN_S) as cluster:
            assert eventually(lambda: bool(done))
            assert done[0] == 3
            assert cluster.lost is None
            assert cluster.channel(0).run("echo here")[1] == "here\n"

    def test_one_that_cannot_be_renewed_knows_that_it_is_lost(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        """At its end and not before: until then its machines are safe."""
        troubled = Troubled(provider, failing(RunFailed("no network"), "renew"))
        times = [time.time()]
        with rent(troubled, renew_s=OFTEN_S, clock=lambda: times[0]) as cluster:
            end_s = cluster.lease.order.lease_end_s
            times[0] = end_s
            tried = troubled.calls.count("renew")
            assert eventually(lambda: troubled.calls.count("renew") >= tried + 3)
            assert cluster.lost is None
            times[0] = end_s + 0.001
            assert eventually(lambda: cluster.lost is not None)
            assert "no network" in (cluster.lost or "")

    def test_one_that_was_reaped_knows_that_it_is_lost(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        with rent(renew_s=OFTEN_S) as cluster:
            reap(cluster.register, [provider], time.time() + 10_000)
            assert eventually(lambda: cluster.lost is not None)
            assert "its lease is over" in (cluster.lost or "")
        assert cluster.lease.why == "its lease is over"

    def test_a_preemption_is_known(self, provider: LocalProvider, rent: Callable[..., Rental]) -> None:
        with rent(count=2) as cluster:
            assert cluster.preempted() is None
            provider.preempt(cluster.instances[1], "reclaimed")
            assert cluster.preempted() == "reclaimed"

    def test_the_order_is_wanted_before_it_is_launched(
        self, provider: LocalProvider, rent: Callable[..., Rental]
    ) -> None:
        states: list[str] = []
        cluster = rent()

        def look(call: str, number: int) -> None:
            if call == "launch":
                states.extend(lease.state for lease in cluster.register.leases())

        cluster.provider = Troubled(provider, before=look)
        with cluster:
            pass
        assert states == [WANTED]


def test_many_at_once(provider: LocalProvider, rent: Callable[..., Rental]) -> None:
    def work(number: int) -> str:
        with rent() as cluster:
            return cluster.channel(0).run(f"echo {number}")[1]

    with ThreadPoolExecutor(4) as several:
        assert list(several.map(work, range(8))) == [f"{number}\n" for number in range(8)]
