#!/bin/bash
# Installs a package, begins with a domain, upgrades the package under load, removes and purges it, in the Debian system
# in which this script runs.
#
# Usage: trial.sh deb|rpm|tar PACKAGE NEXT
#
# `cargo xtask ci package` runs it in a root folder of its own, without systemd as process 1. NEXT is the same program as
# a later version. rpm knows no installed packages there, so dependencies are not checked.
set -euo pipefail

kind=$1 package=$2 next=$3
http=127.0.0.1/8080

fail() {
    echo "trial of $kind: $*" >&2
    exit 1
}

install() {
    case $kind in
        deb) dpkg --install "$1" ;;
        rpm) rpm --force-debian --upgrade --nodeps "$1" ;;
        tar) tar -C / --strip-components=1 -xf "$1" && systemd-sysusers && systemd-tmpfiles --create ;;
    esac
    if [ $kind = tar ] && [ -S /run/sanderling/control.sock ]; then
        sanderling upgrade
    fi
}

# All files outside the databases of packages and accounts, with owner and mode.
files() {
    find / -xdev \( -path /proc -o -path /dev -o -path /tmp -o -path /packages -o -path /var/lib/dpkg \
        -o -path /var/lib/rpm -o -path /var/log/dpkg.log -o -path '/etc/passwd*' -o -path '/etc/group*' \
        -o -path '/etc/shadow*' -o -path '/etc/gshadow*' -o -path /etc/.pwd.lock \) -prune -o -printf '%M %u:%g %p\n' |
        sort
}

expect() {
    local found
    found=$(stat -c '%U:%G %a' "$1")
    [ "$found" = "$2 $3" ] || fail "$1 is $found, not $2 $3"
}

# One request over a new connection to $1; the status line.
request() {
    exec 3<> "/dev/tcp/$1" || return 1
    printf 'GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n' >&3
    local line
    read -r line <&3 || line="nothing"
    exec 3>&-
    echo "${line%$'\r'}"
}

# Whether the zone example.com is answered from, over TCP at port 53: the flags QR and AA, no error, and one SOA record.
answers_from_zone() {
    exec 4<> /dev/tcp/127.0.0.1/53 || return 1
    printf '\0\35\x12\x34\0\0\0\1\0\0\0\0\0\0\7example\3com\0\0\6\0\1' >&4
    local reply
    reply=$(head -c 10 <&4 | od -A n -t x1)
    exec 4>&-
    [[ $reply == *" 12 34 84 00 00 01 00 01" ]]
}

is_answered() {
    [ "$(request 127.0.0.1/80)" = "HTTP/1.1 200 OK" ] && answers_from_zone
}

until_true() {
    for _ in $(seq 300); do
        if "$@" > /dev/null 2>&1; then return; fi
        sleep 0.1
    done
    fail "not within 30 s: $*"
}

files > /tmp/before
[ -z "$(type -P cargo rustc cc)" ] || fail "this system has compilers"
started_ms=$(date +%s%3N)
echo "== install"
install "$package"
sanderling --version
if [ $kind = deb ]; then
    echo "== the first domain"
    sanderling init example.com --yes --dir /etc/sanderling
    cd /etc/sanderling
    sanderling check
    sanderling serve > /tmp/log 2>&1 &
    server=$!
    until_true is_answered
    duration_ms=$(($(date +%s%3N) - started_ms))
    echo "from the installation to the first answers of the site and the zone: $duration_ms ms"
    [ $duration_ms -lt 60000 ] || fail "the first answers take $duration_ms ms"
    sanderling stop
    wait $server || fail "it ends with $?: $(tail -5 /tmp/log)"
    rm -r /srv/example.com zones/example.com.zone
    cd /
fi
expect /usr/bin/sanderling root:root 755
expect /etc/sanderling root:root 755
expect /etc/sanderling/zones root:root 755
expect /etc/sanderling/keys root:sanderling 750
expect /var/lib/sanderling sanderling:sanderling 700
expect /var/log/sanderling sanderling:sanderling 750
for file in systemd/system/sanderling.service sysusers.d/sanderling.conf tmpfiles.d/sanderling.conf; do
    expect /usr/lib/$file root:root 644
done
for file in man/man1/sanderling.1.gz man/man1/sanderling-serve.1.gz bash-completion/completions/sanderling; do
    expect /usr/share/$file root:root 644
done
if [ $kind = deb ]; then
    dpkg-query --show --showformat='${Conffiles}' sanderling | grep -q /etc/sanderling/sanderling.toml || fail "no conffile"
fi

echo "== serve"
mkdir -p /srv/site
echo '<!doctype html><title>trial</title>' > /srv/site/index.html
printf '$TTL 60\n@ SOA ns hostmaster 1 60 60 60 60\n@ NS ns\nns A 192.0.2.1\n' > /etc/sanderling/zones/example.com.zone
cat > /etc/sanderling/sanderling.toml << 'END'
http.listen = ["127.0.0.1:8080"]
dns.listen = ["127.0.0.1:5353"]
dns.resolvers = []
[domain."example.com"]
site = "/srv/site"
zone = "zones/example.com.zone"
dnssec = true
END
cd /
sanderling check
sanderling serve > /tmp/log 2>&1 &
server=$!
until_true sanderling status
[ "$(request $http)" = "HTTP/1.1 200 OK" ] || fail "it answers: $(request $http)"

echo "== upgrade under load"
(
    refused=0 count=0
    while [ ! -e /tmp/upgraded ]; do
        [ "$(request $http 2> /dev/null)" = "HTTP/1.1 200 OK" ] || refused=$((refused + 1))
        count=$((count + 1))
    done
    echo "$count requests, $refused of them failed"
    [ $refused = 0 ]
) > /tmp/load 2>&1 &
load=$!
cp /etc/sanderling/sanderling.toml /tmp/configuration
# A server that `sanderling upgrade` does not reach keeps the previous program.
sanderling serve /srv/site --http 127.0.0.1:8081 --control /tmp/other.sock > /tmp/other.log 2>&1 &
other=$!
until_true sanderling status --control /tmp/other.sock
install "$next" > /tmp/installed 2>&1 || fail "$(cat /tmp/installed)"
cat /tmp/installed
if [ $kind != tar ]; then
    found=$(grep -c 'still runs the previous program' /tmp/installed) || true
    [ "$found" = 1 ] && grep -q "process $other still runs" /tmp/installed || fail "$other is not reported"
fi
sanderling stop --control /tmp/other.sock
wait $other || fail "the other server ends with $?: $(cat /tmp/other.log)"
until_true sanderling status
touch /tmp/upgraded
wait $load || fail "$(cat /tmp/load)"
cat /tmp/load
kill -0 $server || fail "the supervisor has ended: $(cat /tmp/log)"
[ "$(readlink /proc/$server/exe)" = /usr/bin/sanderling ] || fail "it still runs $(readlink /proc/$server/exe)"
cmp /tmp/configuration /etc/sanderling/sanderling.toml || fail "the configuration was replaced"
[ "$(request $http)" = "HTTP/1.1 200 OK" ] || fail "it answers: $(request $http)"

if [ $kind = tar ]; then
    sanderling stop
    wait $server || fail "it ends with $?"
    exit 0
fi

remove() {
    case $kind in
        deb) dpkg --remove sanderling ;;
        rpm) rpm --force-debian --erase sanderling ;;
    esac
    [ ! -e /usr/bin/sanderling ] || fail "the program is left"
}

echo "== remove"
remove
wait $server || fail "the server ends with $?: $(tail -5 /tmp/log)"
ls /etc/sanderling/sanderling.toml* /var/lib/sanderling > /dev/null || fail "the configuration or the state is gone"

echo "== remove it next to a process of the account, and a control socket without a server"
install "$package"
mkdir -p /run/sanderling
perl -MSocket -e 'socket(S, AF_UNIX, SOCK_SEQPACKET, 0) && bind(S, pack_sockaddr_un(shift)) or die $!' \
    /run/sanderling/control.sock
setpriv --reuid sanderling --regid sanderling --clear-groups sleep 1000 &
remove
[ $kind = deb ] || exit 0

echo "== purge"
getent passwd sanderling > /tmp/account
dpkg --purge sanderling
rm -r /srv/site
files > /tmp/after
diff /tmp/before /tmp/after || fail "files are left"
# Another account with its number would own what the processes and files of this one are.
getent passwd sanderling | cmp - /tmp/account || fail "the account is gone"
grep -q '^sanderling:!' /etc/shadow || fail "the account is not locked"
