"""What is said to the shell of a machine: plain POSIX sh, for nothing of ours is installed there."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

COOKIE = "PRUDENT_RUN"
"""The environment variable by which everything that one command started is known."""

_END, CUT_OFF = "#whole", 76
_RUN = f'case $s in *{_END}) eval "$s"; exit ;; esac; exit {CUT_OFF}'
READ_SCRIPT = f"exec /bin/sh -c 's=$(cat); exec </dev/null; {_RUN}'"
"""Runs the script (see `whole`) that comes in by the standard input. Whoever looks at the list of processes
cannot read it: it holds the environment, and that may hold passwords."""

MEMBERS = """
members() {
  heads=' '
  for p in $(grep -lsF -- "$1" /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\\n'); do
    tr '\\0' '\\n' 2>/dev/null < /proc/$p/environ | grep -qxF -- "$1" || continue
    state_of $p || continue
    echo $p
    [ "$session" = "$p" ] && heads="$heads$p "
  done 2>/dev/null
  [ "$heads" = ' ' ] && return 0
  for d in /proc/[0-9]*; do
    state_of ${d#/proc/} || continue
    case $heads in *" $session "*) echo ${d#/proc/} ;; esac
  done 2>/dev/null
}
state_of() {
  { read -r line < /proc/$1/stat; } 2>/dev/null || return 1
  set -- ${line##*) }
  session=$4
  case $1 in Z | X) return 1 ;; esac
}
end_all() {
  found=$(members "$1")
  if [ -n "$found" ] && [ "$2" -gt 0 ]; then
    kill -TERM $found 2>/dev/null
    kill -CONT $found 2>/dev/null
    left=$2
    while [ "$left" -gt 0 ] && [ -n "$(members "$1")" ]; do
      sleep 0.05
      left=$((left - 1))
    done
  fi
  left=100
  while [ "$left" -gt 0 ]; do
    found=$(members "$1")
    [ -z "$found" ] && return 0
    kill -KILL $found 2>/dev/null
    sleep 0.02
    left=$((left - 1))
  done
  return 1
}
"""
"""`members NAME=VALUE` lists who carries a variable, and everyone in a session that such a process began (a
child may have cleaned its environment); `end_all NAME=VALUE TICKS` asks them to end, and kills them after so
many twentieths of a second."""


def whole(script: str) -> bytes:
    """A script as `READ_SCRIPT` takes it: one that breaks off, as we or the network did, is not begun."""
    return f"{script}\n{_END}\n".encode()


def end_all(variable: str, value: str, grace_s: float) -> str:
    """A script that ends all that carry a variable."""
    ticks = max(0, round(grace_s * 20))
    return f"{MEMBERS}\nend_all {shlex.quote(f'{variable}={value}')} {ticks}"


def started(command: str, environment: Mapping[str, str], directory: str) -> str:
    """A script that runs a command in a folder with an environment.

    >>> print(started("echo hi", {"A": "it's"}, "/tmp"))
    export A='it'"'"'s'
    cd -- /tmp || exit 126
    exec /bin/sh -c 'echo hi'
    """
    exports = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    lines = [
        *exports,
        f"cd -- {shlex.quote(directory)} || exit 126",
        f"exec /bin/sh -c {shlex.quote(command)}",
    ]
    return "\n".join(lines)
