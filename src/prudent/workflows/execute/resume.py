"""Resuming a run: what of earlier sessions is still valid, and what remains to be run and why."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prudent.workflows.activation import Activation
from prudent.workflows.execute.journal import VERSION, Fact, FactSink
from prudent.workflows.execute.options import ExecutionOptions
from prudent.workflows.execute.work_folder import (
    Fingerprint,
    WorkFolder,
    same_content,
)
from prudent.workflows.plan import Plan
from prudent.workflows.workflow import Workflow

FindFingerprints = Callable[[Iterable[str]], Mapping[str, Fingerprint]]
"""Finds the fingerprints of those of the named files that exist."""


STOPPED = "the run was stopped"
"""Why an attempt was ended when a limit was reached."""


INTERRUPTED = "the run was interrupted"
"""Why an attempt was ended that was running at Ctrl-C, a kill or a crash."""


def interrupted_attempts(facts: Sequence[Mapping[str, Any]], alive_s: float) -> list[dict[str, Any]]:
    """Attempts that ended with a killed session: each is taken to have lasted until the last heartbeat.

    `alive_s` is the run's clock at that heartbeat; every fact counts as a heartbeat.
    """
    under_way: dict[str, Mapping[str, Any]] = {}
    for fact in facts:
        alive_s = max(alive_s, float(fact.get("finish_s", fact.get("at_s", 0.0))))
        if fact["fact"] == "started":
            under_way[fact["activation"]] = fact
        elif fact["fact"] == "ended":
            under_way.pop(fact["activation"], None)
    return [lost_attempt(fact, float(fact["at_s"]), alive_s, INTERRUPTED) for fact in under_way.values()]


def lost_attempt(who: Mapping[str, Any], start_s: float, finish_s: float, why: str) -> dict[str, Any]:
    """The fact about an attempt that was lost, though the command did not fail."""
    return {
        "fact": "ended",
        **{key: who[key] for key in ("activation", "vm", "slot", "attempt")},
        "outcome": "lost",
        "error": why,
        "took_s": finish_s - start_s,
        "start_s": start_s,
        "finish_s": finish_s,
        "final": False,
    }


def command_digest(command: Iterable[str]) -> str:
    """A digest of a command line, to see whether it has changed."""
    return hashlib.sha256("\0".join(command).encode()).hexdigest()[:16]


def rerun_reasons(
    workflow: Workflow,
    ended: Mapping[str, Mapping[str, Any]],
    look: FindFingerprints,
    rehearsal: bool = False,
) -> dict[str, str]:
    """Why activations have to run, by id. Those not named are done, and are skipped.

    `ended` holds the last fact of each activation that ended in an earlier session. An activation that runs
    again makes all activations after it run again: nobody knows yet what its outputs will hold.
    """
    names = {file.name for a in workflow.activations for file in (*a.inputs, *a.outputs)}
    seen = {} if rehearsal else look(sorted(names))
    reasons: dict[str, str] = {}
    for name in workflow.order:
        fact = ended.get(name)
        reason = _never_done(fact)
        if not reason and fact is not None and not rehearsal:
            reason = _changed(workflow[name], fact, seen, workflow.gathered)
        if not reason:
            again = [parent for parent in workflow.parents[name] if parent in reasons]
            reason = f'"{again[0]}", which it depends on, runs again' if again else ""
        if reason:
            reasons[name] = reason
    return reasons


def _never_done(fact: Mapping[str, Any] | None) -> str:
    if fact is None:
        return "not run yet"
    if fact["outcome"] == "lost" and fact["error"] == STOPPED:
        return "was under way when the run was stopped"
    if fact["outcome"] == "lost" and fact["error"] == INTERRUPTED:
        return "was under way when the run was interrupted"
    if fact["outcome"] == "lost":
        return f"lost with VM {fact['vm']}"
    return f"failed before: {fact['error']}" if fact["outcome"] == "failed" else ""


def _changed(
    activation: Activation, fact: Mapping[str, Any], seen: Mapping[str, Fingerprint], gathered: Iterable[str]
) -> str:
    if fact.get("command") != command_digest(activation.command):
        return "its command has changed"
    return _outputs_changed(activation, fact, seen, gathered) or _inputs_changed(
        activation, fact, seen, gathered
    )


def _outputs_changed(
    activation: Activation, fact: Mapping[str, Any], seen: Mapping[str, Fingerprint], gathered: Iterable[str]
) -> str:
    for file in activation.outputs:
        if file.name not in seen:
            return f'output "{file.name}" is missing'
        known = fact.get("outputs", {}).get(file.name)
        if known is None:
            return f'output "{file.name}" was not declared then'
        if file.name not in gathered and not same_content(known, seen[file.name]):
            return f'output "{file.name}" was changed since'
    return ""


def _inputs_changed(
    activation: Activation, fact: Mapping[str, Any], seen: Mapping[str, Fingerprint], gathered: Iterable[str]
) -> str:
    written = {file.name for file in activation.outputs}
    for file in activation.inputs:
        if file.name in written or file.name in gathered:
            continue
        if file.name not in seen:
            return f'input "{file.name}" is missing'
        known = fact.get("inputs", {}).get(file.name)
        if known is None or not same_content(known, seen[file.name]):
            return f'input "{file.name}" has changed'
    return ""


@dataclass(frozen=True)
class RemainingWork:
    """What remains to be run and why (`reasons`), after earlier sessions.

    `attempts` counts those made; `offset_s` is where the run's clock stood: a pause is not part of the run.
    """

    reasons: dict[str, str]
    earlier: list[Fact]
    attempts: dict[str, int]
    offset_s: float

    @classmethod
    def of(
        cls, workflow: Workflow, options: ExecutionOptions, earlier: list[Fact], folder: WorkFolder
    ) -> RemainingWork:
        """Compare the files that exist with the facts of earlier sessions."""
        if options.replay is None:
            folder.check(workflow)
        ended: dict[str, Fact] = {}
        under_way: set[str] = set()
        attempts: dict[str, int] = {}
        for fact in earlier:
            if fact["fact"] == "started":
                under_way.add(fact["activation"])
                attempts[fact["activation"]] = fact["attempt"]
            elif fact["fact"] == "ended":
                under_way.discard(fact["activation"])
                ended[fact["activation"]] = fact
        known = {name: fact for name, fact in ended.items() if name not in under_way}
        reasons = rerun_reasons(workflow, known, folder.fingerprints, rehearsal=options.replay is not None)
        reasons |= dict.fromkeys(under_way, "was under way when the run was interrupted")
        offset_s = max((_clock_s(fact) for fact in earlier), default=0.0)
        return cls(reasons, earlier, attempts, offset_s)

    def record_session_start(
        self, sink: FactSink, plan: Plan, workflow: Workflow, options: ExecutionOptions, run: str, more: Fact
    ) -> None:
        """Record the start of this session, and of the run if it is its first session."""
        if not self.earlier:
            sink.write(
                {
                    "fact": "run",
                    "version": VERSION,
                    "id": run,
                    "workflow": workflow.name,
                    "fingerprint": workflow.fingerprint,
                    "activations": len(workflow),
                    "directory": str(options.directory),
                    "replay": options.replay,
                }
            )
        sink.write(
            {
                "fact": "session",
                "at_s": self.offset_s,
                "wall_s": time.time(),
                "scheduler": plan.scheduler,
                "planned_makespan_s": plan.makespan_s,
                "vms": sorted({assignment.vm for assignment in plan.assignments.values()}),
                "skipped": len(workflow) - len(self.reasons),
                **more,
                **({"again": self.reasons} if self.earlier else {}),
            }
        )


def _clock_s(fact: Fact) -> float:
    """The run's clock at a fact; 0 if the fact does not tell."""
    return float(fact["at_s"] if fact["fact"] == "stopped" else fact.get("finish_s", 0.0))
