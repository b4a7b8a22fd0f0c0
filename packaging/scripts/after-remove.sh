#!/bin/sh
# Runs after the files were removed: by dpkg with `remove` or later `purge`, by rpm with 0.
set -e

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi

# The operator asks for this explicitly. rpm has nothing like it.
if [ "$1" = purge ]; then
    rm -rf /etc/sanderling /var/lib/sanderling /var/log/sanderling /run/sanderling
    if getent passwd sanderling > /dev/null; then
        userdel sanderling
    fi
    if getent group sanderling > /dev/null; then
        groupdel sanderling
    fi
fi
