#!/bin/sh
# The dead-man's switch of a machine: when its lease was not renewed, it ends what the lease was for.
#
#   switch.sh watch FOLDER WORD ENDING [PATH...]   wait until the lease is over, then end
#   switch.sh end   FOLDER WORD ENDING [PATH...]   end now
#
# FOLDER/lease_end holds the end in seconds since 1970; it is read again and again, so renewing is writing it.
# WORD is an entry NAME=VALUE of the environment that everything of the cluster carries; NAME may hold several
# values with colons between, for a cluster inside a cluster.
# ENDING is "clean" (end those processes, remove FOLDER and each PATH, in that order) or "poweroff".
# FOLDER/groups may list control groups (one folder a line) whose processes end as well.
# When FOLDER is gone, the machine was given back, and there is nothing to watch. Where there is a folder .ended
# beside it, a file with its name is written there: its time tells until when the machine is to be paid.

LC_ALL=C
export LC_ALL
verb=$1 folder=$2 word=$3 ending=$4
shift 4
name=${word%%=*} value=${word#*=}
poll_s=2
grace_s=${PRUDENT_SWITCH_GRACE_S:-2}

lease_end() {
    # A file that cannot be read as a number must not make a machine immortal: the last end that was read counts.
    read -r said 2>/dev/null < "$folder/lease_end" || said=
    case $said in
        '' | *[!0-9]*) ;;
        *) end_s=$said ;;
    esac
}

session_of() {
    # The name in brackets may hold anything; behind it come state, parent, group and session.
    read -r stat 2>/dev/null < "/proc/$1/stat" || return 1
    stat=${stat##*) }
    stat=${stat#* * * }
    echo "${stat%% *}"
}

carriers() {
    # Quick first, over all processes at once; then exactly, for the few that may be meant. What is in this
    # session is the switch itself: commands are started in sessions of their own.
    grep -ls "$name=[^=]*$value" /proc/[0-9]*/environ 2>/dev/null | while read -r environ; do
        pid=${environ#/proc/}
        pid=${pid%/environ}
        [ "$(session_of "$pid")" = "$own" ] && continue
        carried=$(tr '\0' '\n' 2>/dev/null < "$environ" | sed -n "s/^$name=//p")
        case :$carried: in *:"$value":*) echo "$pid" ;; esac
    done
    if [ -r "$folder/groups" ]; then
        while read -r group; do cat "$group/cgroup.procs" 2>/dev/null; done < "$folder/groups"
    fi
}

finish() {
    [ -d "$folder" ] && : > "$folder/ending" # whoever waits for a command here must not take its death for its own
    pids=$(carriers)
    if [ -n "$pids" ] && [ "$grace_s" != 0 ]; then
        kill -TERM $pids 2>/dev/null
        kill -CONT $pids 2>/dev/null
        tenths=$((grace_s * 10))
        while [ "$tenths" -gt 0 ] && [ -n "$(carriers)" ]; do
            sleep 0.1
            tenths=$((tenths - 1))
        done
    fi
    # Looked for again each time: what is being killed may have started another one.
    tries=50
    pids=$(carriers)
    while [ -n "$pids" ] && [ "$tries" -gt 0 ]; do
        kill -KILL $pids 2>/dev/null
        sleep 0.05
        tries=$((tries - 1))
        pids=$(carriers)
    done
}

clean() {
    [ -r "$folder/groups" ] && while read -r group; do
        # One that ran a cluster of its own has groups inside.
        find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null
    done < "$folder/groups"
    # Renamed first, so that it is there as a whole or not at all, whatever happens meanwhile.
    if [ -d "$folder" ]; then
        [ -d "${folder%/*}/.ended" ] && : > "${folder%/*}/.ended/${folder##*/}"
        gone=$folder.$$.gone
        mv "$folder" "$gone" 2>/dev/null && remove "$gone"
    fi
    for path in "$@"; do
        remove "$path"
    done
}

remove() {
    rm -rf "$1" 2>/dev/null && return
    # A job may have made folders that not even it may write to.
    chmod -R u+rwX "$1" 2>/dev/null
    rm -rf "$1" 2>/dev/null
}

power_off() {
    # Whatever the image has; the last one needs no service that could hang.
    shutdown -h now || poweroff || halt -p || { echo 1 > /proc/sys/kernel/sysrq; echo o > /proc/sysrq-trigger; }
}

own=$(session_of $$)
if [ "$verb" = watch ]; then
    end_s=0
    tries=10
    lease_end
    while [ "$end_s" = 0 ] && [ "$tries" -gt 0 ]; do
        sleep 1
        tries=$((tries - 1))
        lease_end
    done
    while [ -d "$folder" ]; do
        # The clock first, then the lease: one that was renewed meanwhile is not held against a later time.
        now_s=$(date +%s)
        lease_end
        left_s=$((end_s - now_s))
        [ "$left_s" -le 0 ] && break
        [ "$left_s" -gt "$poll_s" ] && left_s=$poll_s
        sleep "$left_s"
    done
    [ -d "$folder" ] || [ "$ending" = poweroff ] || exit 0
fi

case $ending in
    poweroff) power_off ;;
    *)
        finish
        clean "$@"
        ;;
esac
exit 0
