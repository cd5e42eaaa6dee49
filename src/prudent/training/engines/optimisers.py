"""Torch's optimisers, for local processes and for those of Spark, to which this module is sent whole."""

from __future__ import annotations

from typing import Any


def plain(kind: Any) -> Any:
    """One of torch's optimisers without its ties to torch's compiler; call its `step` within `no_grad`.

    Loading that takes longer than many a training, and leaves a folder in the temporary directory.
    """
    found = {name: getattr(kind, name) for name in ("add_param_group", "zero_grad", "step")}
    return type(kind.__name__, (kind,), {name: getattr(m, "__wrapped__", m) for name, m in found.items()})
