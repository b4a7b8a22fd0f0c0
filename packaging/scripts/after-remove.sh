#!/bin/sh
# Runs after the files were removed: by dpkg with `remove` or later `purge`, by rpm with 0. Nothing that a process of the
# account does can make the removal fail.

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi

# The operator asks for this explicitly. rpm has nothing like it. The account stays, locked as it was created: it may own
# files elsewhere, and the next account would get its number.
if [ "$1" = purge ]; then
    rm -rf /etc/sanderling /var/lib/sanderling /var/log/sanderling /run/sanderling || true
fi
