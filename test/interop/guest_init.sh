#!/bin/busybox sh
# First process of the guest: loads the modules and keeps the agent running. All else is told through the agent.
# Kernel command line: uroce_life=SECONDS, after which the guest switches itself off.
/bin/busybox --install -s /bin
export PATH=/usr/bin:/usr/sbin:/bin HOME=/root
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/shm
mount -t tmpfs none /dev/shm
mount -t tmpfs none /run
ulimit -l unlimited

life=$(sed -n 's/.*uroce_life=\([0-9]*\).*/\1/p' /proc/cmdline)
(sleep "${life:-3600}"; poweroff -f) &

while read -r module; do
  insmod "$module" || echo "init: cannot load $module"
done </lib/modules/order

find_port() {
  for name in /sys/class/virtio-ports/*/name; do
    [ "$(cat "$name" 2>/dev/null)" = uroce.agent ] && basename "$(dirname "$name")" && return
  done
}
tries=0
until port=$(find_port) || [ "$tries" -ge 200 ]; do
  tries=$((tries + 1))
  usleep 50000
done
echo "init: agent on /dev/$port"
while :; do
  agent "/dev/$port"
  echo "init: the agent ended"
  sleep 1
done
