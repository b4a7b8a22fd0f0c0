#!/bin/sh
# Runs before the files are removed: by dpkg with `remove`, by rpm with 0. An upgrade has other arguments.
set -e

case "$1" in
    remove | 0) ;;
    *) exit 0 ;;
esac

if [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now sanderling.service
elif [ -S /run/sanderling/control.sock ]; then
    sanderling stop
fi
