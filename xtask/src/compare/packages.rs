//! The peers and the loads, installed from Debian's packages without any of them being started.

use crate::program::{Outcome, Program, is_installed};

/// Every program that is run, and the package that has it.
const NEEDED: &[(&str, &str)] = &[
    ("nginx", "nginx"),
    ("h2o", "h2o"),
    ("lighttpd", "lighttpd"),
    ("caddy", "caddy"),
    ("nsd", "nsd"),
    ("knotd", "knot"),
    ("named", "bind9"),
    ("wrk", "wrk"),
    ("h2load", "nghttp2-client"),
    ("dnsperf", "dnsperf"),
    ("strace", "strace"),
    ("setpriv", "util-linux"),
    ("taskset", "util-linux"),
    ("kill", "procps"),
];

/// The packages, for their versions.
pub(super) fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = NEEDED.iter().map(|(_, package)| *package).collect();
    names.dedup();
    names
}

/// Installs what is missing. Debian starts a service when it is installed, unless this file says that it must not
/// (invoke-rc.d(8), exit status 101); one that was there before is left as it is.
pub(super) fn install() -> Result<(), String> {
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(program, _)| !is_installed(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    let script = format!(
        "set -e
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\\nexit 101\\n' > $policy
    chmod 755 $policy
fi
export DEBIAN_FRONTEND=noninteractive
install='apt-get -q install --yes --no-install-recommends {packages}'
$install || {{ apt-get -q update && $install; }}
"
    );
    let is_root = Program::new("id").args("-u").output().is_some_and(|id| id.trim() == "0");
    let shell = if is_root { Program::new("sh") } else { Program::new("sudo").args("sh").interactive() };
    match shell.args("-c").args_of(&[script]).run() {
        Outcome::Passed => Ok(()),
        Outcome::Skipped(reason) | Outcome::Failed(reason) => {
            Err(format!("{reason}\ninstall these Debian packages by hand: {packages}"))
        }
    }
}
