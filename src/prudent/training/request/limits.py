"""Limits of a request (budget, deadline), and how its models are validated."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from prudent.core.errors import BadInput, did_you_mean
from prudent.core.units import SECONDS, USD, parse_in, parse_quantity
from prudent.training.data.splitting import HOLD_OUT_SHARE


def _seconds(said: Any) -> Any:
    return _above_zero(said, SECONDS, 'a time such as "60 s"')


def _dollars(said: Any) -> Any:
    return _above_zero(said, USD, 'an amount such as "$2"')


def _above_zero(said: Any, unit: str, wanted: str) -> Any:
    if said is None:
        return None
    try:
        value = parse_in(said, unit)
    except BadInput as error:
        raise ValueError(str(error)) from None
    if value <= 0:
        raise ValueError(f"{said} is not above 0; give {wanted}.")
    return value


class _Limits(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Budget(_Limits):
    """What the search may use up: money, wall time, trials; whatever ends first. Nothing said: no limit."""

    usd: Annotated[float | None, BeforeValidator(_dollars, json_schema_input_type=float | str | None)] = None
    time_s: Annotated[
        float | None,
        BeforeValidator(_seconds, json_schema_input_type=float | str | None),
        Field(alias="time"),
    ] = None
    trials: Annotated[int | None, Field(ge=1)] = None

    @property
    def given(self) -> bool:
        return self != Budget()


class Deadline(_Limits):
    """By when the answer must be there: seconds after the request begins, or a moment."""

    after_s: float | None = None
    at: datetime | None = None

    def left_s(self, now: datetime, elapsed_s: float) -> float:
        """Seconds that are left, when `elapsed_s` have passed since the request began."""
        if self.at is not None:
            return (self.at - now).total_seconds()
        assert self.after_s is not None
        return self.after_s - elapsed_s


class ValidationMethod(_Limits):
    """Where scores come from: a share of the rows held out, k folds, or a file; by default what suits them.

    `groups` names a column whose rows of one value stay together (it is no feature then), `time` one by which
    later rows judge what was learned from earlier ones.
    """

    holdout: Annotated[float | None, Field(gt=0, lt=1)] = None
    folds: Annotated[int | None, Field(ge=2, le=100)] = None

    groups: Annotated[str | None, Field(min_length=1)] = None
    time: Annotated[str | None, Field(min_length=1)] = None
    path: Annotated[str | None, Field(min_length=1)] = None

    @model_validator(mode="after")
    def _one(self) -> ValidationMethod:
        for names in (("holdout", "folds", "path"), ("groups", "time", "path")):
            said = [name for name in names if getattr(self, name) is not None]
            if len(said) > 1:
                raise ValueError(f'It has both "{said[0]}" and "{said[1]}"; keep one of them.')
        return self

    @property
    def given(self) -> bool:
        """Whether the request says anything of it."""
        return self != ValidationMethod()

    @property
    def share(self) -> float:
        """The share of the rows that is held out."""
        return HOLD_OUT_SHARE if self.holdout is None else self.holdout


def read_budget(said: Any) -> Any:
    """A budget as an object, or in words: "$2", "60 s", "20 trials"."""
    if said is None:
        return Budget()
    if isinstance(said, Mapping):
        for name in said:
            if name not in ("usd", "time", "trials", "time_s"):
                hint = did_you_mean(str(name), ("usd", "time", "trials"))
                raise ValueError(f'Unknown limit "{name}".{hint} Choose one of: usd, time, trials.')
        return said
    if not isinstance(said, str):
        return said
    number, _, word = said.strip().partition(" ")
    if word.strip() in ("trial", "trials"):
        return {"trials": number}
    try:
        quantity = parse_quantity(said)
    except BadInput as error:
        raise ValueError(f'{str(error).rstrip(".")}, or "20 trials".') from None
    if quantity.unit not in (USD, SECONDS):
        raise ValueError(f'"{said}" is not a budget; write "$2", "60 s" or "20 trials".')
    return {"usd" if quantity.unit == USD else "time": quantity.value}


def read_deadline(said: Any) -> Any:
    """A deadline as a time from now ("10 min") or as a moment ("2030-01-31T18:00:00Z")."""
    if said is None or isinstance(said, (Deadline, Mapping)):
        return said
    if isinstance(said, str) and said[:4].isdigit() and said[4:5] == "-":
        try:
            moment = datetime.fromisoformat(said)
        except ValueError:
            raise ValueError(f'"{said}" is not a moment; write it like "2030-01-31T18:00:00Z".') from None
        return Deadline(at=moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return Deadline(after_s=_seconds(said))


class RowsFile(_Limits):
    """A file with rows of the same columns."""

    path: Annotated[str, Field(min_length=1)]


def read_test(said: Any) -> Any:
    """The test part: a share of the rows, a file, or false for none."""
    is_share = isinstance(said, int | float) and not isinstance(said, bool) and 0 < said < 1
    if not (is_share or said is False or said is None or isinstance(said, dict | RowsFile)):
        raise ValueError(
            'Give the share of the rows that is kept for the test, such as 0.2, or {"path": …}, or false.'
        )
    return said


def read_weights(said: Any) -> Any:
    """Class weights: "balanced", or a number for each label."""
    if isinstance(said, str) and said != "balanced":
        raise ValueError(f'"{said}" is unknown; write "balanced", or a weight for each label.')
    return {str(label): weight for label, weight in said.items()} if isinstance(said, Mapping) else said
