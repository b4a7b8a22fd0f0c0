#!/bin/bash
# Runs the unpacked image as a container engine does: as process 1, with a read-only root and without capabilities.
#
# Usage: trial.sh ROOT USER COMMAND...
#
# ROOT is the root folder of the image, USER and COMMAND are those of its configuration. The ports are high ones.
set -euo pipefail

root=$1 user=$2
shift 2
work=$(mktemp -d)
engine=
trap '[ -z "$engine" ] || kill -KILL "$engine" 2> /dev/null || true; rm -rf "$work"' EXIT

fail() {
    echo "trial of the image: $*" >&2
    cat "$work/log" >&2
    exit 1
}

expect() {
    local found
    found=$(stat -c '%u:%g %a' "$root/$1")
    [ "$found" = "$2 $3" ] || fail "/$1 is $found, not $2 $3"
}

# The address in a line `http 127.0.0.1:PORT` of the server.
address() {
    for _ in $(seq 300); do
        sed -n "s/^$1 //p" "$work/log" | grep . && return
        sleep 0.1
    done
    fail "no address of $1 within 30 s"
}

mkdir -p "$work/etc/zones" "$work/state" "$work/run" "$work/site"
echo '<!doctype html><title>trial</title>' > "$work/site/index.html"
printf '$TTL 60\n@ SOA ns hostmaster 1 60 60 60 60\n@ NS ns\nns A 192.0.2.1\n' > "$work/etc/zones/example.com.zone"
cat > "$work/etc/sanderling.toml" << 'END'
http.listen = ["127.0.0.1:0"]
dns.listen = ["127.0.0.1:0"]
dns.resolvers = []
[domain."example.com"]
site = "/srv"
zone = "zones/example.com.zone"
dnssec = true
END
touch "$work/log"
for folder in etc etc/sanderling run usr/bin var var/lib; do
    expect $folder 0:0 755
done
expect var/lib/sanderling "$user" 700
expect run/sanderling "$user" 700
chmod 755 "$work"
chown -R "$user" "$work/state" "$work/run"

# bwrap without privileges makes a user namespace in which the user has its own number.
setpriv --reuid "${user%:*}" --regid "${user#*:}" --clear-groups --no-new-privs \
    bwrap --unshare-user --unshare-pid --unshare-ipc --unshare-uts --as-pid-1 --die-with-parent --cap-drop ALL \
    --uid "${user%:*}" --gid "${user#*:}" --clearenv --setenv RUNTIME_DIRECTORY /run/sanderling --setenv STATE_DIRECTORY /var/lib/sanderling \
    --ro-bind "$root" / --proc /proc --dev /dev --bind "$work/state" /var/lib/sanderling \
    --bind "$work/run" /run/sanderling --ro-bind "$work/etc" /etc/sanderling --ro-bind "$work/site" /srv \
    --chdir /etc/sanderling --remount-ro / "$@" > "$work/log" 2>&1 &
engine=$!
http=$(address http)
dns=$(address dns)

title=$(curl --silent --show-error --fail --header 'Host: example.com' "http://$http/")
[[ $title == *trial* ]] || fail "over HTTP it answers $title"
for _ in $(seq 300); do
    signed=$(dig +short +dnssec "@${dns%:*}" -p "${dns##*:}" example.com SOA)
    [[ $signed == *SOA* ]] && break
    sleep 0.1
done
[[ $signed == *SOA* ]] || fail "the zone is not signed: $signed"

# The server is process 1 there, a child of bwrap.
server=$(pgrep --parent "$engine")
grep --quiet --perl-regexp '^NSpid:\t.*\t1$' "/proc/$server/status" || fail "it is not process 1"
grep --quiet --perl-regexp '^CapBnd:\t0+$' "/proc/$server/status" || fail "it could have capabilities"
kill -TERM "$server"
stopped=0
wait "$engine" || stopped=$?
engine=
[ "$stopped" = 0 ] || fail "it ends with $stopped after SIGTERM"
echo "the image serves as process 1, with a read-only root and without capabilities, and stops with status 0"
