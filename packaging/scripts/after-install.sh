#!/bin/sh
# Runs after the files were installed: by dpkg with `configure` and the previous version, by rpm with the number of
# installed versions.
set -e

case "$1" in
    configure) is_upgrade="$2" ;;
    1) is_upgrade= ;;
    [0-9]*) is_upgrade=yes ;;
    *) exit 0 ;;
esac

systemd-sysusers sanderling.conf
systemd-tmpfiles --create sanderling.conf
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi

# The running server switches to the new program, and keeps its sockets and connections.
if [ -n "$is_upgrade" ] && [ -S /run/sanderling/control.sock ]; then
    sanderling upgrade ||
        echo "sanderling: the previous version continues to serve; see \`sanderling status\`, then restart it" >&2
fi
