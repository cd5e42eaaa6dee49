"""The folder of a cluster on a host: who has the host, until when, and what was paid for it.

`FOLDER/machines/<id>` is the machine. It is there as a whole or not at all, holds the tags, the lease and the
work, and while it is there the host is taken: who wants the host looks for it under a lock (flock, which no
crash can leave behind). The dead-man's switch removes it when the lease is over; should the switch have died
too, the next one who wants the host ends what is left and takes over. `FOLDER/machines/.ended` tells, for a
day, when machines were gone.
"""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass
from typing import Any

from prudent.cloud.leases import dead_mans_switch
from prudent.cloud.providers.provider import RUNNING, Instance, LaunchOrder
from prudent.core.money import Price

TAKEN, SAME, BUSY = "taken", "same", "busy"

_TAKE = """
set -u
mkdir -p -- "$base/machines/.ended" || exit 73
cd -- "$base/machines" || exit 73
find .ended -type f -mtime +0 -exec rm -f -- {} + 2>/dev/null
exec 9>../guard || exit 73
flock -w 30 9 || { echo "another one is taking it" >&2; exit 75; }
rm -rf -- *.new *.gone
for d in */; do
  d=${d%/}
  [ -f "$d/cluster" ] || continue
  if [ "$(cat "$d/cluster")" = "$cluster" ]; then
    echo same; cat "$d/lease" "$d/tags"; exit 0
  fi
  end=$(cat "$d/lease_end" 2>/dev/null || echo 0)
  if [ "$end" -gt "$(date +%s)" ]; then
    echo busy; cat "$d/lease" "$d/tags"; exit 0
  fi
  rm -f -- "$d/ours"
  PRUDENT_SWITCH_GRACE_S=1 sh "$d/switch.sh" end "$PWD/$d" "PRUDENT_MACHINE=$d" clean 9>&-
  chmod -R u+rwX -- "$d" 2>/dev/null
  rm -rf -- "$d"
done
mkdir -p -- "$id.new/work" && cd -- "$id.new" || exit 73
echo "$cluster" > cluster && printf '%s\n' "$tags" > tags && echo "$lease" > lease &&
cat > switch.sh <<'PRUDENT_SWITCH' &&
@SWITCH@
PRUDENT_SWITCH
echo $(($(date +%s) + $left)) > lease_end && : > ours && cd .. && mv -- "$id.new" "$id" || exit 73
cd "$id" && folder=$PWD
exec 9>&-
@WATCH@
echo taken; cat lease tags
"""

_LIST = """
cd -- "$base/machines" 2>/dev/null || exit 0
for d in */; do
  d=${d%/}
  case $d in *.new | *.gone) continue ;; esac
  [ -f "$d/tags" ] && cat "$d/lease" "$d/tags" 2>/dev/null
done
exit 0
"""

_ENDED = """
cd -- "$base/machines/.ended" 2>/dev/null || exit 0
for f in "$cluster"-*; do
  [ -f "$f" ] && echo "$(stat -c %.Y -- "$f" 2>/dev/null || stat -c %Y -- "$f") $(date +%s.%N) $f"
done
exit 0
"""

_END = """
cd -- "$base/machines/$id" 2>/dev/null || exit 0
folder=$PWD
cd ..
rm -f -- "$folder/ours"
cp "$folder/switch.sh" "$folder.$$.gone" && sh "$folder.$$.gone" end "$folder" "PRUDENT_MACHINE=$id" clean
rm -f -- "$folder.$$.gone"
if [ -e "$folder" ]; then chmod -R u+rwX -- "$folder"; rm -rf -- "$folder"; fi
[ ! -e "$folder" ]
"""

_CHECK = """
for word in flock tar grep setsid date; do
  command -v $word >/dev/null || { echo "lacks $word"; exit 0; }
done
[ -r /proc/self/environ ] || { echo "lacks /proc"; exit 0; }
mkdir -p -- "$base/machines" 2>/dev/null || { echo folder; exit 0; }
probe="$base/machines/probe.$$.new"
if dd if=/dev/zero of="$probe" bs=65536 count=16 2>/dev/null; then echo fine; else echo full; fi
rm -f -- "$probe"
"""


@dataclass(frozen=True)
class HostTags:
    """What a host knows about its use; written once, but for the end of the lease."""

    id: str
    order: LaunchOrder
    index: int
    launched_s: float
    price: Price

    def text(self) -> str:
        order = self.order
        said = {
            "id": self.id,
            "cluster": order.cluster,
            "run": order.run,
            "owner": order.owner,
            "type": order.type,
            "count": order.count,
            "index": self.index,
            "launched_s": self.launched_s,
            "price": self.price.to_dict(),
        }
        return json.dumps(said)

    @classmethod
    def read(cls, lease: str, text: str) -> HostTags:
        said: dict[str, Any] = json.loads(text)
        order = LaunchOrder(
            said["cluster"], said["run"], said["owner"], said["type"], said["count"], float(lease or 0.0)
        )
        price = Price.from_dict(said["price"])
        return cls(said["id"], order, int(said["index"]), float(said["launched_s"]), price)

    def instance(self, address: str) -> Instance:
        order = self.order
        return Instance(
            self.id, "hosts", order.type, order.cluster, order.run, order.owner, self.index, RUNNING, address,
            self.launched_s, order.lease_end_s, self.price,
        )  # fmt: skip


def take_script(base: str, tags: HostTags, left_s: float) -> str:
    """Take the host for an order, if it is free; prints taken, same or busy, then the tags that are there."""
    watch = dead_mans_switch.watch_command("switch.sh", "@FOLDER@", f"{dead_mans_switch.MACHINE}={tags.id}")
    script = _TAKE.replace("@WATCH@", watch.replace("@FOLDER@", '"$folder"'))
    return _with(
        base,
        script.replace("@SWITCH@", dead_mans_switch.script().rstrip("\n")),
        id=tags.id,
        cluster=tags.order.cluster,
        tags=tags.text(),
        lease=repr(tags.order.lease_end_s),
        left=str(max(math.ceil(left_s), 0)),
    )


def list_script(base: str) -> str:
    """Prints two lines for each machine there: the end of its lease, its tags."""
    return _with(base, _LIST)


def ended_script(base: str, cluster: str) -> str:
    """Prints a line for each machine of a cluster that is gone: when, what time it is there, and its id."""
    return _with(base, _ENDED, cluster=cluster)


def ages_s(printed: str) -> dict[str, float]:
    """How long machines have been gone, by their ids: `printed` is what `ended_script` has printed.

    Not every host tells parts of a second.

    >>> ages_s("99.75 100.25 c1-0\\n99 100.%N c1-1")
    {'c1-0': 0.5, 'c1-1': 1.0}
    """
    lines = [line.split(" ", 2) for line in printed.splitlines()]
    return {machine: max(_seconds(now) - _seconds(then), 0.0) for then, now, machine in lines}


def _seconds(said: str) -> float:
    whole, _, part = said.partition(".")
    return float(f"{whole}.{part}") if part.isdigit() else float(whole)


def end_script(base: str, machine: str) -> str:
    """End a machine: its processes, its folder."""
    return _with(base, _END, id=machine)


def renew_script(base: str, machine: str, lease_end_s: float, left_s: float) -> str:
    """A later end; fails where the machine was given back."""
    renew = dead_mans_switch.renew_command(".", left_s)
    known = 'echo "$lease" > lease.new && mv lease.new lease'
    said = f'cd -- "$base/machines/$id" && [ -e ours ] && {renew} && {known}'
    return _with(base, said, id=machine, lease=repr(lease_end_s))


def check_script(base: str) -> str:
    return _with(base, _CHECK)


def ours_test(base: str, machine: str) -> str:
    """A shell test that holds while the machine is ours and its lease is not over."""
    test = 'd="$base/machines/$id"; [ -e "$d/ours" ] && [ "$(cat "$d/lease_end")" -gt "$(date +%s)" ]'
    return _with(base, test, id=machine)


def workspace(base: str, machine: str) -> str:
    return f"{base}/machines/{machine}/work"


def _with(base: str, script: str, **values: str) -> str:
    said = {"base": base, **values}
    return "\n".join([*(f"{name}={shlex.quote(value)}" for name, value in said.items()), script])
