"""Commands on machines: what they find there, losses, money, what is left.

What depends on the way to the machines is tested over real SSH on loopback, the rest on machines of this
computer.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.leases.lease import RELEASED
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.machine_parameter import MachineParameter
from prudent.cloud.providers.local.provider import LocalProvider
from prudent.cloud.providers.ssh.provider import HostsProvider
from prudent.cloud.readings import NAMES
from prudent.core.errors import BadInput
from prudent.core.parameter_parsing import parse_parameter
from prudent.core.space import Space
from prudent.tuning.job_file import JobFile
from prudent.tuning.jobs.cluster_command import ClusterCommandJob
from prudent.tuning.jobs.job import Job, RentedRun, RentingJob
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome, Progress
from prudent.tuning.tune import tune

from ...cloud import ssh_server

Follow = Callable[..., tuple[list[Progress], Outcome]]
SMALL, LARGE = "m5.large", "c5.xlarge"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with ssh_server.SshHosts(tmp_path_factory.mktemp("ssh"), dict.fromkeys(("alpha", "beta", "gamma"))) as up:
        yield up


@pytest.fixture
def inventory(servers: Any, tmp_path: Path) -> Path:
    for host in servers.hosts.values():
        if host.process is None:
            host.start().wait()
    types = {"alpha": {"type": SMALL}, "beta": {"type": SMALL}, "gamma": {"type": LARGE}}
    return Path(servers.inventory(types, tmp_path / "inventory.yaml"))


class Study:
    """A job's folder, and jobs in it."""

    def __init__(self, folder: Path, provider: HostsProvider | LocalProvider) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.provider = provider
        self.register = LeaseRegister(folder / "home")
        self.jobs: list[ClusterCommandJob] = []

    def job(self, command: Any, measures: tuple[str, ...] = (), **more: Any) -> ClusterCommandJob:
        cluster = MachineParameter("cluster", [SMALL, LARGE], [1, 2], self.provider.catalog())
        space = Space(
            [cluster, parse_parameter("depth", [1, 2, 4])], "cluster.type == 'm5.large' or cluster.count == 1"
        )
        options: dict[str, Any] = {
            "register": self.register,
            "directory": self.folder,
            "logs": self.folder / "x.prudent" / "logs",
            "grace_s": 1.0,
            "lease_s": 30.0,
            **more,
        }
        job = ClusterCommandJob(command, space, self.provider, measures, **options)
        self.jobs.append(job)
        return job

    def start(self, command: Any, cluster: str = f"1*{SMALL}", **more: Any) -> Any:
        run = self.job(command, **more).start({"cluster": cluster, "depth": 2}, 3)
        run.lasts_s(float("inf"))  # it begins when it knows what it may cost
        return run

    def log(self, stream: str = "out") -> str:
        return (self.folder / "x.prudent" / "logs" / f"trial-0003.{stream}").read_text()


@pytest.fixture
def study(tmp_path: Path, inventory: Path, servers: Any) -> Iterator[Study]:
    made = Study(tmp_path, HostsProvider.of(inventory, tmp_path))
    yield made
    for host in servers.hosts.values():
        if host.process is None:
            host.start().wait()
    for job in made.jobs:
        job.release()
    left = made.provider.list()
    made.provider.terminate(left)
    assert left == ()
    end_s = time.monotonic() + 60
    while pids := [pid for host in servers.hosts.values() for pid in host.pids() if pid != host.process.pid]:
        assert time.monotonic() < end_s, f"left on the hosts: {[_words(pid) for pid in pids]}"
        time.sleep(0.1)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Study]:
    """Machines that are processes of this computer."""
    (tmp_path / "prices.csv").write_text(f"name,price_usd_per_h,minimum_s\n{SMALL},0.096,0\n{LARGE},0.17,0\n")
    made = Study(tmp_path, LocalProvider(tmp_path / "home", tmp_path / "prices.csv"))
    yield made
    for job in made.jobs:
        job.release()
    assert made.provider.list() == ()


def _words(pid: int) -> str:
    """What a process is: state, parent, command."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
        return f"{pid} {' '.join(stat)} {Path(f'/proc/{pid}/cmdline').read_bytes()!r}"
    except OSError as error:
        return f"{pid} {error}"


REPORT = """echo 'PRUDENT {{"error": '0.5', "progress": 1}}'"""


def test_it_is_a_job_that_rents(study: Study, follow: Follow) -> None:
    job = study.job(REPORT, ("error",))
    assert isinstance(job, Job)
    assert isinstance(job, RentingJob)
    assert not job.virtual
    run = job.start({"cluster": f"1*{SMALL}", "depth": 1}, 1)
    assert isinstance(run, RentedRun)
    shown, outcome = follow(run)
    assert outcome.status == FINISHED
    assert outcome.measures == {"error": 0.5}
    assert [one.measures for one in shown] == [{"error": 0.5}]
    assert 0 < outcome.overhead_s <= shown[0].elapsed_s <= outcome.time_s


def test_it_finds_files_parameters_and_machines(study: Study, follow: Follow) -> None:
    (study.folder / "data").mkdir()
    (study.folder / "data" / "in.txt").write_text("hello\n")
    command = (
        'cat data/in.txt; echo "$PRUDENT_MACHINES|$PRUDENT_ADDRESSES|$PRUDENT_COUNT|$PRUDENT_INDEX"; '
        'echo "$PRUDENT_TRIAL $PRUDENT_DEPTH {depth} {cluster.vcpus} $OWN"; ls -A; echo late >&2'
    )
    _, outcome = follow(study.start(command, f"2*{SMALL}", environment={"OWN": "a b"}))
    assert outcome.status == FINISHED
    assert study.log().splitlines() == [
        "hello", "2*m5.large|127.0.0.1,127.0.0.1|2|0", "3 2 2 4 a b", "data",
    ]  # fmt: skip
    assert study.log("err") == "late\n"


def test_workers_run_on_the_others_and_end_with_the_run(study: Study, servers: Any, follow: Follow) -> None:
    worker = "echo $PRUDENT_INDEX > ../../../../index; sleep 300"
    homes = [host.home for host in servers.hosts.values()]
    places = " ".join(str(home / ".prudent" / "index") for home in homes)
    command = f"until cat {places} 2> /dev/null | grep -q .; do sleep 0.05; done"
    run = study.start(command, f"2*{SMALL}", worker=worker)
    assert follow(run)[1].status == FINISHED
    said = [
        (home / ".prudent" / "index").read_text() for home in homes if (home / ".prudent" / "index").exists()
    ]
    for home in homes:
        (home / ".prudent" / "index").unlink(missing_ok=True)
    assert said == ["1\n"]


def test_results_are_fetched_and_old_ones_are_not_taken_for_new(here: Study, follow: Follow) -> None:
    job = here.job("if [ $PRUDENT_TRIAL = 1 ]; then mkdir out; echo 1 > out/model; fi", fetch=["out"])
    chosen = {"cluster": f"1*{SMALL}", "depth": 1}
    assert follow(job.start(chosen, 1))[1].status == FINISHED
    results = here.folder / "x.prudent" / "results"
    assert (results / "trial-0001" / "out" / "model").read_text() == "1\n"
    _, second = follow(job.start(chosen, 2))
    assert "out could not be fetched" in second.why
    assert not (results / "trial-0002").exists()


def test_a_failing_command_tells_why(here: Study, follow: Follow) -> None:
    _, outcome = follow(here.start("echo no such data set >&2; exit 3"))
    assert outcome.status == FAILED
    assert outcome.why == "exit code 3: no such data set"


def test_a_cluster_is_kept_for_a_run_like_the_last(here: Study, follow: Follow) -> None:
    job = here.job("echo $PRUDENT_CLUSTER", keep_s=30.0)
    for number in (1, 2):
        follow(job.start({"cluster": f"1*{SMALL}", "depth": 1}, number))
    logs = here.folder / "x.prudent" / "logs"
    assert (logs / "trial-0001.out").read_text() == (logs / "trial-0002.out").read_text()
    assert len(here.register.leases()) == 1
    follow(job.start({"cluster": f"1*{LARGE}", "depth": 1}, 3))
    assert len(here.register.leases()) == 2
    wait_for(lambda: here.register.leases()[0].state == RELEASED)


def test_an_idle_cluster_is_given_back(here: Study, follow: Follow) -> None:
    follow(here.start("true", keep_s=0.3))
    wait_for(lambda: here.register.leases()[0].state == RELEASED)
    assert here.register.leases()[0].why == "nobody wanted it"


def wait_for(what: Callable[[], bool], within_s: float = 60.0) -> None:
    end_s = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < end_s, "it did not come about"
        time.sleep(0.05)


def test_a_cut_ends_everything_over_there(study: Study, servers: Any) -> None:
    run = study.start("(setsid sleep 300 &) ; " + REPORT + "; sleep 300", measures=("error",))
    first = run.next(120.0)
    assert isinstance(first, Progress)
    outcome = run.cut(first.elapsed_s, "too dear")
    assert outcome == Outcome(CUT, first.elapsed_s, {"error": 0.5}, "too dear")
    assert outcome.bill_usd is not None
    left = [_words(pid) for host in servers.hosts.values() for pid in host.pids()]
    assert not [words for words in left if "sleep\\x00300" in words]


def test_a_cut_while_booting_leaves_a_cluster_for_the_next(here: Study, follow: Follow) -> None:
    job = here.job("true")
    chosen = {"cluster": f"1*{SMALL}", "depth": 1}
    outcome = job.start(chosen, 1).cut(0.0, "not wanted")
    assert outcome == Outcome(CUT, 0.0, {}, "not wanted")
    assert follow(job.start(chosen, 2))[1].status == FINISHED


def test_a_time_out_fails_the_run(here: Study, follow: Follow) -> None:
    _, outcome = follow(here.start("sleep 60", timeout_s=0.5))
    assert outcome.status == FAILED
    assert "time-out of 0.5 s" in outcome.why
    assert outcome.time_s - outcome.overhead_s == pytest.approx(0.5, abs=0.01)


def test_the_bill_counts_from_the_launch(here: Study, follow: Follow) -> None:
    _, outcome = follow(here.start("sleep 0.3", f"2*{SMALL}"))
    ran_s = outcome.time_s - outcome.overhead_s
    price = here.provider.offer(SMALL).price.times(2)
    assert outcome.bill_usd is not None
    assert outcome.overhead_s > 0
    # From the launch, after the run's clock has started; to its end, and what it takes to notice that.
    assert price.cost_usd(ran_s) < outcome.bill_usd < price.cost_usd(outcome.time_s + 30.0)


def test_a_lost_machine_is_not_a_failed_trial(
    study: Study, servers: Any, follow: Follow, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    run = study.start(f"echo up; while [ ! -e {go} ]; do sleep 0.05; done; " + REPORT, measures=("error",))
    wait_for(
        lambda: (study.folder / "x.prudent" / "logs" / "trial-0003.out").exists() and "up" in study.log()
    )
    [machine] = study.provider.list()
    lost_s = run._timeline.now_s()
    servers[machine.id.rpartition("@")[2]].lose()
    wait_for(lambda: study.log().count("up") == 2)
    go.touch()
    _, outcome = follow(run)
    assert (outcome.status, outcome.measures) == (FINISHED, {"error": 0.5})
    assert study.log().count("up") == 2
    assert "the machines were lost" in study.log("err")
    assert lost_s < outcome.overhead_s < outcome.time_s  # what was lost is not the command's own time
    price = study.provider.offer(SMALL).price
    assert outcome.bill_usd is not None
    assert outcome.bill_usd > price.cost_usd(outcome.time_s - outcome.overhead_s)


def test_a_host_in_use_is_waited_for(study: Study, follow: Follow) -> None:
    job = study.job("sleep 0.5")
    runs = [job.start({"cluster": f"2*{SMALL}", "depth": 1}, number) for number in (1, 2)]
    for run in runs:
        run.lasts_s(float("inf"))
    outcomes = [follow(run)[1] for run in runs]
    assert [outcome.status for outcome in outcomes] == [FINISHED, FINISHED]


def test_a_study_pays_for_machines_not_only_for_commands(here: Study) -> None:
    job = here.job("sleep 0.$PRUDENT_DEPTH", keep_s=5.0)
    result = tune(job, "minimise cost_usd", budget_usd=1.0, strategy="grid", max_trials=4, parallel=2)
    assert len(result.trials) == 4
    assert here.provider.list() == ()
    real_usd = job.bill_usd()
    assert result.spent_usd == pytest.approx(real_usd, abs=1e-6)
    assert sum(trial.cost_usd for trial in result.trials) < real_usd


def test_as_many_hosts_are_looked_for_as_may_be_proposed(study: Study) -> None:
    def said(rule: str | None) -> list[str]:
        space = Space([MachineParameter("cluster", [SMALL, LARGE], [1, 2], study.provider.catalog())], rule)
        return ClusterCommandJob("true", space, study.provider, directory=study.folder).check()

    assert said(f"cluster.type == '{SMALL}' or cluster.count == 1") == []
    assert said(None) == [f"The inventory has 1 hosts of type {LARGE}, not 2; ask for fewer, or add hosts."]


def test_wrong_job_files_say_where(tmp_path: Path, inventory: Path) -> None:
    said = {
        "command": "true",
        "where": {"hosts": str(inventory)},
        "parameters": {"cluster": {"machine": {"types": [SMALL], "count": [1, 2]}}},
        "goal": "minimise cost_usd",
    }
    assert isinstance(JobFile.parse(said, tmp_path).build(), ClusterCommandJob)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"where": "hots"}, 'where: Unknown place "hots". Did you mean "hosts"'),
        ({"where": {"hosts": "no.yaml"}}, "There is no inventory"),
        ({"where": 3}, "is not a place"),
        ({"setup": "3 s"}, "setup: Rented machines"),
        ({"lease": "1 s"}, "over before it is renewed"),
        *(({"fetch": [path]}, "not a path to fetch") for path in ("../x", "/x", "", ".")),
        ({"price": 3.6}, "price: The price comes from"),
        ({"parameters": {"n": [1, 2]}}, "names no machines"),
        ({"parameters": {"cluster": {"machine": {"types": ["m5.lagre"]}}}}, 'Did you mean "m5.large"'),
        ({"where": None, "fetch": ["x"]}, "fetch: This key is for machines"),
    ]
    for change, message in wrong:
        with pytest.raises(BadInput, match=message.replace("(", r"\(")):
            JobFile.parse({**said, **change}, tmp_path).build()


def test_machines_may_be_named_by_the_price(tmp_path: Path, inventory: Path) -> None:
    said = {
        "command": "true",
        "where": {"hosts": str(inventory)},
        "parameters": {"vm": [SMALL, LARGE], "workers": [1, 2]},
        "price": {"machine": "vm", "count": "workers"},
        "goal": "minimise cost_usd",
    }
    job = JobFile.parse(said, tmp_path).build()
    assert job.price({"vm": SMALL, "workers": 2}).usd_per_h == pytest.approx(0.192)


_CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from prudent.tuning.job_file import JobFile
from prudent.tuning.tune import tune
said = JobFile.read({job!r})
job = said.build(Path({logs!r}))
if {resume!r}:
    job.reap()
more = dict(journal={journal!r}, resume={resume!r}, max_trials=2)
result = tune(job, said.goal, 1.0, "grid", early_stop=False, seed=1, **more)
print(len(result.trials), result.spent_usd, job.bill_usd())
"""


@pytest.mark.parametrize(
    "place",
    [
        "trial.started",
        *(
            pytest.param(at, marks=pytest.mark.soak)
            for at in ("launch.partial", "trial.put", "trial.fetched")
        ),
    ],
)
def test_a_killed_study_resumes_and_pays_no_trial_twice(
    place: str, tmp_path: Path, inventory: Path, study: Study
) -> None:
    import subprocess

    said = {
        "command": "echo ran >> ../../../../../../../ran-$PRUDENT_TRIAL; sleep 0.2",
        "where": {"hosts": str(inventory)},
        "parameters": {"cluster": {"machine": {"types": [SMALL, LARGE], "count": [1]}}, "depth": [1, 2]},
        "goal": "minimise cost_usd",
        "lease": "20 s",
    }
    (study.folder / "job.yaml").write_text(json.dumps(said))

    def child(resume: bool, **variables: str) -> subprocess.CompletedProcess[str]:
        code = _CHILD.format(
            here=str(Path.cwd()),
            job=str(study.folder / "job.yaml"),
            logs=str(tmp_path / "logs"),
            journal=str(tmp_path / "journal.jsonl"),
            resume=resume,
        )
        environment = {**os.environ, "PRUDENT_HOME": str(tmp_path / "home"), **variables}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )

    killed = child(False, PRUDENT_KILL_AT=f"{place}:2" if place != "launch.partial" else place)
    assert killed.returncode == -9
    resumed = child(True)
    assert resumed.returncode == 0, resumed.stderr
    trials, spent_usd, bill_usd = resumed.stdout.split()
    assert int(trials) == 2
    assert float(spent_usd) == pytest.approx(float(bill_usd), abs=1e-6)
    assert study.provider.list() == ()
    told = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    numbers = [fact["trial"]["number"] for fact in told if fact["fact"] == "told"]
    assert sorted(numbers) == sorted(set(numbers)) == [1, 2]


# What it does to the machines


def test_hosts_tell_what_a_run_did_to_them(study: Study, follow: Follow) -> None:
    """Each counts for itself. What looks at its memory leaves nothing: the fixture would find it."""
    _, outcome = follow(study.start("sleep 1", f"2*{SMALL}"))
    assert outcome.status == FINISHED
    assert outcome.readings is not None
    found = outcome.readings.to_dict()
    assert set(found) == set(NAMES)
    assert 0 <= found["cpu_share"] <= 1
    assert 0 < found["memory_share"] < 1
    assert found["memory_peak_mb"] > 50


def test_machines_of_this_computer_tell_of_their_own_processes(here: Study, follow: Follow) -> None:
    full = [sys.executable, "-S", "-c", "import time; x = bytearray(b'x') * 200_000_000; time.sleep(5)"]
    _, outcome = follow(here.start(full))
    assert outcome.readings is not None
    assert outcome.readings.memory_peak_mb is not None
    assert 200 < outcome.readings.memory_peak_mb < 400
    assert outcome.readings.network_mb_s is None
    _, idle = follow(here.start("sleep 5"))
    assert idle.readings is not None
    assert idle.readings.memory_peak_mb is not None
    assert idle.readings.memory_peak_mb < 100


def test_a_run_that_is_cut_tells_what_it_did(study: Study) -> None:
    run = study.start(f"{REPORT}; sleep 600", measures=("error",))
    while not isinstance(run.next(60.0), Progress):
        pass
    assert run.cut(run.elapsed_s(), "too dear").readings is not None
