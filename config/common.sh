# Sourced by the scripts of this folder. Leaves the working directory at the top of the source tree; $caller is the one
# before, which paths are relative to that the caller names.
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

say() { printf '[%s] %s\n' "${0##*/}" "$*"; }

# fail STATUS TEXT: one line that says what is wrong and how to mend it.
fail() {
  printf '[%s] error: %s\n' "${0##*/}" "$2" >&2
  exit "$1"
}

# limited SECONDS COMMAND...: ends the command, and what it started, when the time is over (status 124 or 137), and
# when this script is told to end.
limited() {
  timeout --kill-after=10 "$1" "${@:2}" &
  limited_pid=$!
  wait $limited_pid
}

limited_pid=
trap '[ -z "$limited_pid" ] || kill "$limited_pid" 2>/dev/null; exit 130' INT TERM HUP

# explain FILE: the heading comment of a script is its help.
explain() { sed -n '2,/^[^#]/ s/^# \{0,1\}//p' "$1"; }
