"""What of an earlier run still holds, and why the rest has to run again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from prudent.workflows.activation import Activation
from prudent.workflows.execute.prints import Print, same
from prudent.workflows.workflow import Workflow

Look = Callable[[Iterable[str]], Mapping[str, Print]]
"""Answers the prints of those of the named files that are there."""


STOPPED = "the run was stopped"
"""Why an attempt was ended that money or time did not suffice for."""


INTERRUPTED = "the run was interrupted"
"""Why an attempt was ended that was under way at Ctrl-C, a kill or a crash."""


def interrupted(facts: Sequence[Mapping[str, Any]], alive_s: float) -> list[dict[str, Any]]:
    """What ended with a killed session: each attempt under way lasted until the last sign of life.

    `alive_s` is where the run's clock stood at that sign; every fact is one, too.
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
    """The fact about an attempt that came to nothing, though not by its own fault."""
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
    """A short name for a command line, to see whether it has changed."""
    return hashlib.sha256("\0".join(command).encode()).hexdigest()[:16]


def why_again(
    workflow: Workflow, ended: Mapping[str, Mapping[str, Any]], look: Look, rehearsal: bool = False
) -> dict[str, str]:
    """For every activation that has to run: why. Those not named are done, and are skipped.

    `ended` holds the last fact of each activation that ended in an earlier session. What is made again makes
    everything after it run again: an output's content is not known before it is there.
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
    activation: Activation, fact: Mapping[str, Any], seen: Mapping[str, Print], gathered: Iterable[str]
) -> str:
    if fact.get("command") != command_digest(activation.command):
        return "its command has changed"
    return _outputs_changed(activation, fact, seen, gathered) or _inputs_changed(
        activation, fact, seen, gathered
    )


def _outputs_changed(
    activation: Activation, fact: Mapping[str, Any], seen: Mapping[str, Print], gathered: Iterable[str]
) -> str:
    for file in activation.outputs:
        if file.name not in seen:
            return f'output "{file.name}" is missing'
        known = fact.get("outputs", {}).get(file.name)
        if known is None:
            return f'output "{file.name}" was not declared then'
        if file.name not in gathered and not same(known, seen[file.name]):
            return f'output "{file.name}" was changed since'
    return ""


def _inputs_changed(
    activation: Activation, fact: Mapping[str, Any], seen: Mapping[str, Print], gathered: Iterable[str]
) -> str:
    written = {file.name for file in activation.outputs}
    for file in activation.inputs:
        if file.name in written or file.name in gathered:
            continue
        if file.name not in seen:
            return f'input "{file.name}" is missing'
        known = fact.get("inputs", {}).get(file.name)
        if known is None or not same(known, seen[file.name]):
            return f'input "{file.name}" has changed'
    return ""
