# Sourced by the scripts of this folder. Leaves the working directory at the top of the source tree; $caller is the one
# before, which paths are relative to that the caller names.
caller=$PWD
CDPATH= cd -- "$(dirname "${BASH_SOURCE[0]}")/.." >/dev/null || exit 1

say() { printf '[%s] %s\n' "${0##*/}" "$*"; }

# fail STATUS TEXT: one line that says what is wrong and how to mend it.
fail() {
  printf '[%s] error: %s\n' "${0##*/}" "$2" >&2
  exit "$1"
}

# limited SECONDS COMMAND...: ends the command, and what it started, when the time is over (status 124 or 137), and
# when this script is told to end.
limited() {
  local status=0
  timeout --kill-after=10 "$1" "${@:2}" 9<&- &
  limited_pid=$!
  wait $limited_pid || status=$?
  limited_pid=
  return $status
}

# ended STATUS: on a signal
ended() {
  [ -z "$limited_pid" ] || kill "$limited_pid" 2>/dev/null
  exit "$1"
}

limited_pid=
trap 'ended 130' INT
trap 'ended 143' TERM
trap 'ended 129' HUP

# alone: two scripts at once would spoil each other's builds. What this one starts is let in; what limited() starts does
# not hold the lock, which is on descriptor 9, for it may outlive this.
alone() {
  local here status=0
  here=$(pwd -P)
  [ "${CONFIG_LOCKED:-}" != "$here" ] || return 0
  exec 9<config
  flock --nonblock --conflict-exit-code 14 9 || status=$?
  [ $status -ne 14 ] || fail 14 "another one works in this clone, $here; wait until it has ended, or take another clone"
  export CONFIG_LOCKED=$here
}

# OpenMP's variables, which nproc goes by, say nothing about the machine.
cores() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

# jobs_that_fit [ROOT]: ninja's option, where it would start more compilers at a time than there is memory for. One takes
# up to 800 MB; of a container's limit, what is used is not counted, as most of that are files.
jobs_that_fit() {
  local kib most limit
  kib=$(awk '$1 == "MemAvailable:" { print $2 }' "${1:-}/proc/meminfo")
  for limit in "${1:-}"/sys/fs/cgroup/{memory.max,memory/memory.limit_in_bytes}; do
    [ -r "$limit" ] && read -r limit <"$limit" && [[ $limit =~ ^[0-9]{1,15}$ ]] || continue
    [ $((limit / 1024)) -ge "${kib:-0}" ] || kib=$((limit / 1024))
  done
  most=$(( ${kib:-0} / 800000 ))
  [ -n "$kib" ] && [ $most -lt $(($(cores) + 2)) ] || return 0
  printf -- '-j%s' $((most > 0 ? most : 1))
}

# explain FILE: the heading comment of a script is its help.
explain() { sed -n '2,/^[^#]/ s/^# \{0,1\}//p' "$1"; }
