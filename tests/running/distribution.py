"""Which tests share a process, and which processes begin first.

A file's tests stay in one process, so that what its fixtures start is started once. All files that use the
shared Spark session stay in one process too: Java is started and warmed once. The longest groups begin first,
so that no process works alone at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

SHARED = {
    "tests/training/engines/spark/": "spark",
}
"""Files whose path begins so form one group of that name."""
LONGEST_FIRST = (
    "spark",
    "tests/test_docs.py",
    "tests/service/web/test_browser.py",
    "tests/tuning/strategies/test_conformance.py",
    "tests/service/worker/test_worker.py",
    "tests/cli/test_workflow_cli.py",
    "tests/cli/test_confirm.py",
    "tests/workflows/execute/test_execute.py",
    "tests/training/search/test_search.py",
    "tests/service/worker/test_faults.py",
    "tests/workflows/execute/test_money.py",
    "tests/cloud/clusters/test_spark_cluster.py",
    "tests/cli/test_demo.py",
    "tests/service/worker/test_sandbox.py",
    "tests/service/test_paper_flow.py",
    "tests/service/worker/test_work_process.py",
    "tests/training/engines/local/test_session.py",
    "tests/tuning/jobs/test_cluster_command.py",
    "tests/service/worker/test_rented_machines.py",
    "tests/cloud/providers/ssh/test_provider.py",
    "tests/workflows/execute/test_existing_scheduler.py",
    "tests/cloud/providers/ec2/test_faults.py",
    "tests/service/worker/test_walled_machines.py",
    "tests/service/worker/test_artifacts.py",
    "tests/cloud/providers/ec2/test_check.py",
    "tests/cli/test_tune.py",
    "tests/cloud/providers/local/test_provider.py",
    "tests/service/web/test_malformed.py",
    "tests/service/web/test_admission.py",
    "tests/reports/test_fractions.py",
    "tests/workflows/schedulers/test_schedulers.py",
    "tests/reports/test_tuning.py",
    "tests/tuning/strategies/test_fabulinus.py",
    "tests/chaos/test_kill_resume.py",
    "tests/tuning/strategies/test_recorded.py",
    "tests/cli/test_train.py",
    "tests/training/engines/local/learners/test_other_learners.py",
    "tests/service/web/test_pages.py",
    "tests/tuning/test_tune_killed.py",
    "tests/service/store/test_claims.py",
    "tests/cloud/providers/ec2/test_launch.py",
    "tests/test_repository.py",
    "tests/service/security/test_checklist.py",
    "tests/tuning/test_tune_on_ec2.py",
    "tests/cloud/clusters/test_kill_local.py",
    "tests/service/security/test_redaction.py",
    "tests/service/worker/test_serve.py",
    "tests/cli/test_bad_input.py",
    "tests/service/intake/test_queues.py",
    "tests/cloud/clusters/test_spark_hosts.py",
    "tests/cloud/clusters/test_rental.py",
    "tests/reports/test_workflow_report.py",
    "tests/workflows/schedulers/test_prudent.py",
)
"""Groups that take longest, in order; the others follow, those with most tests first."""


def group(nodeid: str) -> str:
    """The group a test belongs to: its file, or a set of files that share what is dear.

    >>> group("tests/core/test_space.py::test_it")
    'tests/core/test_space.py'
    >>> group("tests/training/engines/spark/test_session.py::test_it[1]")
    'spark'
    """
    file = nodeid.split("::", 1)[0]
    return next((name for start, name in SHARED.items() if file.startswith(start)), file)


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each process that is free the longest group that waits."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        def rank(name: str) -> tuple[int, int]:
            place = LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)
            return place, -len(self.workqueue[name])

        self.workqueue.move_to_end(min(self.workqueue, key=rank), last=False)
        super()._assign_work_unit(node)
