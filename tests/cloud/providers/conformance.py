"""What every provider must do, whoever has the machines: subclass `ProviderConformance`, give it a place.

from .conformance import ChannelConformance, Place, ProviderConformance, SwitchConformance

class TestLocal(ProviderConformance, SwitchConformance):
    @pytest.fixture
    def place(self, tmp_path):
        yield Place(LocalProvider(tmp_path), tmp_path, "m3.medium", other_type="m3.large")

`ChannelConformance`, in a class of its own, is for a provider with a channel of its own; `SwitchConformance`
for one whose machines can end themselves where the tests run.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from prudent.cloud.providers.channel import LOST, Channel
from prudent.cloud.providers.provider import (
    GONE,
    PENDING,
    PRICE,
    RUNNING,
    Instance,
    LaunchFailed,
    LaunchOrder,
    Provider,
    ReportsEnds,
)
from prudent.cloud.providers.registry import provider_of
from prudent.core.errors import BadInput, PrudentError, RunFailed

OWNER = "owner-of-tests"


@dataclass(frozen=True)
class Place:
    """A provider under test, and what is known about it."""

    provider: Provider
    home: Path
    type: str
    """A type that can be had at least twice."""
    other_type: str
    """Another one; may be the same where there is only one."""
    ready_s: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict)
    """What another process needs in its environment to reach the same place."""


def order(place: Place, count: int = 1, lease_s: float = 600.0, **other: object) -> LaunchOrder:
    made = LaunchOrder(
        cluster=f"prudent-{uuid.uuid4().hex[:12]}",
        run="run-1",
        owner=OWNER,
        type=place.type,
        count=count,
        lease_end_s=time.time() + lease_s,
    )
    return replace(made, **other)  # type: ignore[arg-type]


def of_cluster(provider: Provider, cluster: str) -> list[Instance]:
    return [one for one in provider.list() if one.cluster == cluster]


def eventually(what: Callable[[], object], within_s: float = 60.0) -> bool:
    """Whether something becomes true: waited for, not timed, so the limit is for what never comes."""
    end_s = time.monotonic() + within_s
    while not what():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.02)
    return True


def unique_sleep() -> str:
    """A command that no other test runs at the same time."""
    return f"sleep 300.{uuid.uuid4().int % 10**9:09d}"


def running(channel: Channel, command: str) -> int:
    """How many processes there are of a command, on the machine."""
    return int(channel.run(f"pgrep -fc '^{command}$'")[1])


class Placed:
    """A place, its provider, a machine there and the way into it."""

    @pytest.fixture
    def place(self) -> Iterator[Place]:
        raise NotImplementedError("give the provider under test")

    @pytest.fixture
    def provider(self, place: Place) -> Iterator[Provider]:
        yield place.provider
        place.provider.terminate(place.provider.list())
        assert place.provider.list() == ()

    @pytest.fixture
    def machine(self, place: Place, provider: Provider) -> Instance:
        [one] = provider.ready(provider.launch(order(place)), place.ready_s)
        return one

    @pytest.fixture
    def channel(self, provider: Provider, machine: Instance) -> Iterator[Channel]:
        with provider.channel(machine) as way:
            yield way


class ProviderConformance(Placed):
    """The contract of `Provider`, and what a way into its machines owes to them."""

    # What it says of itself

    def test_nothing_is_wrong_with_a_good_place(self, place: Place, provider: Provider) -> None:
        assert provider.check([place.type]) == []
        assert provider.list() == ()

    def test_an_unknown_type_is_bad_input_and_costs_nothing(self, place: Place, provider: Provider) -> None:
        with pytest.raises(BadInput):
            provider.offer("m5.lagre")
        with pytest.raises((BadInput, LaunchFailed)):
            provider.launch(order(place, type="m5.lagre"))
        assert [said for said in provider.check(["m5.lagre"]) if "m5.lagre" in said]
        assert provider.list() == ()

    def test_an_offer_has_a_price_with_date_and_source(self, place: Place, provider: Provider) -> None:
        offer = provider.offer(place.type)
        assert offer.type == place.type
        assert offer.vcpus >= 1
        assert offer.price.source

    # Launching

    def test_machines_carry_everything_of_their_order_and_become_ready(
        self, place: Place, provider: Provider
    ) -> None:
        """Also for others: `settings` is a `where:` of one entry, with absolute paths."""
        assert list(provider.settings) == [provider.name]
        again = provider_of(provider.settings, place.home, Path("/"))
        assert again.settings == provider.settings
        wanted = order(place, count=2)
        before_s = time.time()
        launched = provider.launch(wanted)
        assert [one.index for one in launched] == [0, 1]
        for one in (*launched, *of_cluster(provider, wanted.cluster)):
            assert (one.cluster, one.run, one.owner) == (wanted.cluster, wanted.run, wanted.owner)
            assert (one.provider, one.type) == (provider.name, wanted.type)
            assert one.lease_end_s == pytest.approx(wanted.lease_end_s, abs=1.5)  # whole seconds will do
            assert before_s - 1.5 <= one.launched_s <= time.time() + 1.5
            assert one.price.usd_per_h == provider.offer(place.type).price.usd_per_h
            assert one.state in (PENDING, RUNNING)
        assert {one.id for one in again.list()} == {one.id for one in launched}

        ready = provider.ready(launched, place.ready_s)
        assert [one.index for one in ready] == [0, 1]
        assert all(one.state == RUNNING and one.address for one in ready)
        assert provider.preempted(ready[0]) is None
        later_s = time.time() + 6000
        provider.renew(ready, later_s)
        assert [one.lease_end_s for one in again.list()] == pytest.approx([later_s] * 2, abs=2.0)

    def test_the_same_order_twice_is_one_cluster(self, place: Place, provider: Provider) -> None:
        wanted = order(place, count=2)
        first = provider.launch(wanted)
        second = provider.launch(wanted)
        assert [one.id for one in first] == [one.id for one in second]
        assert len(provider.list()) == 2

    def test_the_same_order_at_the_same_time_is_one_cluster(self, place: Place, provider: Provider) -> None:
        wanted = order(place)
        with ThreadPoolExecutor(3) as several:
            answers = list(several.map(lambda _: provider.launch(wanted), range(3)))
        assert len({one.id for answer in answers for one in answer}) == 1
        assert len(provider.list()) == 1

    def test_none_is_launched_above_the_price_that_may_be_paid(
        self, place: Place, provider: Provider
    ) -> None:
        price = provider.offer(place.type).price.usd_per_h
        with pytest.raises(LaunchFailed, match="more than the") as failed:
            provider.launch(order(place, most_usd_per_h=price * 0.99))
        assert failed.value.kind == PRICE
        assert provider.list() == ()
        [one] = provider.launch(order(place, most_usd_per_h=price))
        assert one.price.usd_per_h == price

    def test_two_clusters_are_told_apart(self, place: Place, provider: Provider) -> None:
        one, other = order(place), order(place, type=place.other_type, run="run-2")
        provider.launch(one)
        kept = provider.launch(other)
        provider.terminate(of_cluster(provider, one.cluster))
        assert eventually(lambda: [left.id for left in provider.list()] == [kept[0].id])

    # Ending

    def test_what_was_terminated_is_not_listed_and_may_be_terminated_again(
        self, place: Place, provider: Provider
    ) -> None:
        launched = provider.ready(provider.launch(order(place, count=2)), place.ready_s)
        provider.terminate(())
        provider.terminate(launched[:1])
        assert eventually(lambda: [one.id for one in provider.list()] == [launched[1].id])
        provider.terminate(launched)
        provider.terminate(launched)
        provider.terminate([replace(launched[0], state=GONE)])
        assert provider.list() == ()

    def test_who_can_tell_when_machines_were_gone_tells_it_to_the_second(
        self, place: Place, provider: Provider
    ) -> None:
        launched = provider.ready(provider.launch(order(place, count=2)), place.ready_s)
        if not isinstance(provider, ReportsEnds):
            return
        cluster = launched[0].cluster
        assert provider.ended_s(cluster) == {}
        begun_s = time.time()
        provider.terminate(launched)
        assert eventually(lambda: set(provider.ended_s(cluster)) == {one.id for one in launched})
        told = provider.ended_s(cluster).values()
        now_s = time.time()
        assert all(begun_s - 2.0 <= end_s <= now_s + 2.0 for end_s in told)
        assert provider.ended_s(cluster[:-1]) == {}

    def test_machines_that_are_gone_do_not_become_ready(self, place: Place, provider: Provider) -> None:
        launched = provider.launch(order(place))
        provider.terminate(launched)
        with pytest.raises(LaunchFailed):
            provider.ready(launched, timeout_s=1.0)

    # Entering

    def test_a_command_whose_machine_goes_is_lost_and_no_other_runs_there(
        self, provider: Provider, machine: Instance, channel: Channel
    ) -> None:
        started = channel.start("echo ready; sleep 300")
        assert started.stdout.readline() == b"ready\n"
        ending = threading.Thread(target=provider.terminate, args=([machine],))
        ending.start()
        assert started.wait(60) == LOST
        ending.join()
        try:
            code = channel.run("echo still here", timeout_s=60)[0]
        except PrudentError:
            code = LOST
        assert code == LOST

    def test_commands_know_their_cluster_and_folders_go_there_and_back(
        self, channel: Channel, machine: Instance, tmp_path: Path
    ) -> None:
        assert machine.cluster in channel.run("echo $PRUDENT_CLUSTER")[1].strip().split(":")
        source = tmp_path / "source"
        (source / "deep" / "er").mkdir(parents=True)
        (source / "a file").write_bytes(os.urandom(70_000))
        (source / "deep" / "er" / "run.sh").write_text("echo ran\n")
        (source / "deep" / "er" / "run.sh").chmod(0o755)
        (source / "empty").mkdir()
        assert channel.put(source, "job") == 70_000 + 9
        assert channel.run("./job/deep/er/run.sh")[1] == "ran\n"
        assert channel.run("test -d job/empty")[0] == 0
        channel.run("echo done > job/result")
        back = tmp_path / "back"
        assert channel.get("job", back) == 70_000 + 9 + 5
        assert (back / "a file").read_bytes() == (source / "a file").read_bytes()
        assert (back / "result").read_text() == "done\n"

    def test_nothing_stays_in_the_workspace(
        self, place: Place, provider: Provider, machine: Instance
    ) -> None:
        with provider.channel(machine) as way:
            way.run("echo secret > file; mkdir -p a/b; echo x > a/b/c; chmod 500 a/b")
            workspace = way.workspace
        provider.terminate([machine])
        [again] = provider.ready(provider.launch(order(place)), place.ready_s)
        with provider.channel(again) as way:
            assert way.run("ls -A")[1] == ""
            assert way.workspace == workspace or way.run(f"test -e '{workspace}'")[0] != 0


class SwitchConformance(Placed):
    """Machines end themselves, here and now."""

    def test_a_machine_ends_itself_when_its_lease_is_over(self, place: Place, provider: Provider) -> None:
        [one] = provider.ready(provider.launch(order(place)), place.ready_s)
        with provider.channel(one) as way:
            started = way.start("echo ready; sleep 300")
            assert started.stdout.readline() == b"ready\n"
            # A short lease only now: on a slow computer a machine takes its time to come up.
            provider.renew([one], time.time() + 1.0)
            assert eventually(lambda: provider.list() == ())
            assert started.wait(60) is not None


class ChannelConformance:
    """The contract of `Channel`: commands and files, all on one machine of the module's `channel_place`."""

    @pytest.fixture
    def channel(self, way: Channel) -> Channel:
        """With nothing in its workspace."""
        assert way.run("find . -mindepth 1 -delete")[0] == 0
        return way

    # Commands

    def test_a_short_command(self, channel: Channel) -> None:
        code, said, complained = channel.run('echo "a $WORD"; echo b >&2; exit 3', {"WORD": "x y'$z"})
        assert (code, said, complained) == (3, "a x y'$z\n", "b\n")

    def test_commands_begin_in_the_workspace_or_under_it(self, channel: Channel) -> None:
        assert channel.run("pwd -P")[1].strip().endswith(channel.workspace.rstrip("/").rpartition("/")[2])
        channel.run("mkdir -p deep/er")
        started = channel.start("pwd -P", directory="deep/er")
        assert started.stdout.read().decode().strip().endswith("/deep/er")
        assert started.wait(60) == 0

    def test_output_is_read_while_it_runs(self, channel: Channel) -> None:
        started = channel.start("echo one; echo two >&2; read never < /dev/zero; sleep 30")
        assert started.stdout.readline() == b"one\n"
        assert started.stderr.readline() == b"two\n"
        assert started.wait(0) is None
        started.end(grace_s=0.5)
        assert started.wait(60) is not None

    def test_bytes_come_as_they_are(self, channel: Channel) -> None:
        started = channel.start(r"printf '\377\000\r\n\n'; head -c 300000 /dev/zero")
        assert started.stdout.read() == b"\xff\x00\r\n\n" + bytes(300000)
        assert started.wait(60) == 0

    def test_a_deadly_signal_is_a_negative_code(self, channel: Channel) -> None:
        started = channel.start("kill -9 $$")
        assert started.wait(60) == -9

    def test_ending_reaches_everything_that_a_command_started(self, channel: Channel) -> None:
        sleep = unique_sleep()
        started = channel.start(
            f"trap '' TERM; (trap '' TERM; setsid {sleep} & {sleep}) & echo ready; wait; {sleep}"
        )
        assert started.stdout.readline() == b"ready\n"
        assert eventually(lambda: running(channel, sleep) == 2)
        started.end(grace_s=0.2)
        assert started.wait(60) not in (None, 0)
        assert running(channel, sleep) == 0

    def test_ending_gives_time_to_clean_up(self, channel: Channel) -> None:
        started = channel.start("trap 'echo cleaned; exit 7' TERM; echo ready; while :; do sleep 0.05; done")
        assert started.stdout.readline() == b"ready\n"
        started.end(grace_s=60)
        assert started.stdout.read() == b"cleaned\n"
        assert started.wait(60) == 7

    def test_a_command_that_takes_too_long_is_ended(self, channel: Channel) -> None:
        sleep = unique_sleep()
        with pytest.raises(RunFailed):
            channel.run(sleep, timeout_s=0.5)
        assert running(channel, sleep) == 0

    def test_several_commands_at_once(self, channel: Channel) -> None:
        with ThreadPoolExecutor(8) as several:
            said = list(several.map(lambda number: channel.run(f"echo {number}")[1], range(16)))
        assert said == [f"{number}\n" for number in range(16)]

    # Files

    def test_one_file(self, channel: Channel, tmp_path: Path) -> None:
        (tmp_path / "one").write_text("1")
        assert channel.put(tmp_path / "one", "in/to/uno") == 1
        assert channel.get("in/to/uno", tmp_path / "again") == 1
        assert (tmp_path / "again").read_text() == "1"

    def test_what_is_there_already_is_not_moved_again(self, channel: Channel, tmp_path: Path) -> None:
        source = tmp_path / "source"
        source.mkdir()
        (source / "large").write_bytes(bytes(100_000))
        (source / "small").write_text("x")
        assert channel.put(source, "data") == 100_001
        assert channel.put(source, "data") == 0
        (source / "small").write_text("yy")
        assert channel.put(source, "data") == 2
        assert channel.run("cat data/small")[1] == "yy"

    def test_what_is_excluded_stays(self, channel: Channel, tmp_path: Path) -> None:
        source = tmp_path / "source"
        (source / ".git" / "objects").mkdir(parents=True)
        (source / ".git" / "objects" / "x").write_text("xx")
        (source / "a.pyc").write_text("xx")
        (source / "a.py").write_text("y")
        assert channel.put(source, ".", exclude=[".git", "*.pyc"]) == 1
        assert channel.run("ls -A")[1].split() == ["a.py"]

    def test_a_link_out_of_a_folder_brings_what_it_leads_to(self, channel: Channel, tmp_path: Path) -> None:
        source, elsewhere = tmp_path / "source", tmp_path / "elsewhere"
        (elsewhere / "data").mkdir(parents=True)
        (elsewhere / "data" / "rows").write_text("1 2 3\n")
        source.mkdir()
        (source / "file").write_text("x\n")
        (source / "data").symlink_to(elsewhere / "data")
        (source / "alias").symlink_to("file")
        channel.put(source, "job")
        assert channel.run("cat job/data/rows job/alias")[1] == "1 2 3\nx\n"
        assert channel.run("readlink job/alias")[1] == "file\n"

    @pytest.mark.parametrize("target", ["../out", "/tmp/prudent-out", "a/../../out"])
    def test_no_file_goes_beside_the_workspace(self, channel: Channel, tmp_path: Path, target: str) -> None:
        (tmp_path / "one").write_text("1")
        with pytest.raises(PrudentError):
            channel.put(tmp_path / "one", target)
        with pytest.raises(PrudentError):
            channel.get(target, tmp_path / "fetched")

    def test_no_fetched_file_goes_beside_its_target(self, channel: Channel, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        channel.run(f"mkdir out; ln -s {outside} out/link; echo good > out/good")
        target = tmp_path / "target"
        target.mkdir()
        (target / "good").symlink_to(outside / "victim")
        channel.get("out", target)
        assert (target / "good").read_text() == "good\n"
        assert list(outside.iterdir()) == []
        link = target / "link"
        assert not link.exists() or target.resolve() in link.resolve().parents

    def test_what_is_not_there_cannot_be_fetched(self, channel: Channel, tmp_path: Path) -> None:
        with pytest.raises(RunFailed):
            channel.get("nothing/here", tmp_path / "x")
        with pytest.raises(PrudentError):
            channel.put(tmp_path / "nothing", "x")
