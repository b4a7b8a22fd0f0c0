#!/bin/sh
# Runs before the files are removed: by dpkg with `remove`, by rpm with 0. An upgrade has other arguments. The account
# owns the control socket: nothing that answers there can make the removal fail, or wait for ever.

case "$1" in
    remove | 0) ;;
    *) exit 0 ;;
esac

if [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now sanderling.service || true
    # Server processes outlive a supervisor that has crashed (`KillMode=process`).
    systemctl kill --signal=KILL sanderling.service 2> /dev/null || true
elif [ -S /run/sanderling/control.sock ]; then
    timeout 60 sanderling stop || true
fi
