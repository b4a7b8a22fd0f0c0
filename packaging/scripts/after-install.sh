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
[ -n "$is_upgrade" ] || exit 0

# The running server switches to the new program, and keeps its sockets and connections.
if [ -S /run/sanderling/control.sock ]; then
    timeout 120 sanderling upgrade 2>&1 | head -c 4096 || true
fi

# The answer is that of the account, which the server runs as. The kernel knows which program a process runs.
for process in /proc/[0-9]*; do
    [ "$(readlink "$process/exe")" = "/usr/bin/sanderling (deleted)" ] || continue
    # A server process of the previous program ends after the requests in progress; its supervisor counts.
    parent=$(sed -n 's/^PPid:[[:space:]]*//p' "$process/status" 2> /dev/null) || continue
    case "$(readlink "/proc/$parent/exe")" in
        /usr/bin/sanderling*) continue ;;
    esac
    echo "sanderling: process ${process#/proc/} still runs the previous program. Do not restart it: correct what" \
        "\`sanderling upgrade\` names (with --config FILE, if it has another control socket), or install the previous" \
        "version again" >&2
done
