//! Installs the programs that the tests and comparisons use, and creates the user that root serves as.

use std::fs;
use std::path::PathBuf;

use crate::program::{Log, Outcome, Program, is_installed, target_folder};

/// A program, and the Debian package that contains it.
pub(crate) type Needed = (&'static str, &'static str);

const NEEDED: &[Needed] = &[
    ("curl", "curl"),
    ("wget", "wget"),
    ("dig", "bind9-dnsutils"),
    ("kdig", "knot-dnsutils"),
    ("named-checkzone", "bind9-utils"),
    ("nsd", "nsd"),
    ("knotd", "knot"),
    ("named", "bind9"),
    ("ldns-signzone", "ldnsutils"),
    ("certbot", "certbot python3-certbot-dns-rfc2136"),
    ("lego", "lego"),
    ("kzonesign", "knot-dnssecutils"),
    ("unbound", "unbound"),
    ("nginx", "nginx"),
    ("faketime", "faketime"),
    ("fstrm_capture", "fstrm-bin"),
    ("dnstap", "golang-github-dnstap-golang-dnstap-cli"),
    ("openssl", "openssl"),
    ("nghttp", "nghttp2-client"),
    ("chromium", "chromium"),
    ("strace", "strace"),
    ("groff", "groff-base"),
    ("valgrind", "valgrind"),
    ("node", "nodejs"),
    ("python3", "python3"),
    ("php-fpm8.2", "php8.2-fpm"),
    ("mariadbd", "mariadb-server-core"),
    ("wp-setup", "wordpress wordpress-theme-twentytwentythree php8.2-mysql"),
    ("docker-registry", "docker-registry"),
];

/// The servers that `compare` runs.
pub(crate) const PEERS: &[Needed] = &[
    ("nginx", "nginx"),
    ("h2o", "h2o"),
    ("lighttpd", "lighttpd lighttpd-mod-openssl"),
    ("caddy", "caddy"),
    ("nsd", "nsd"),
    ("knotd", "knot"),
    ("named", "bind9"),
    ("ldns-signzone", "ldnsutils"),
    ("kzonesign", "knot-dnssecutils"),
    ("dnssec-signzone", "bind9-utils"),
    ("wrk", "wrk"),
    ("h2load", "nghttp2-client"),
    ("dnsperf", "dnsperf"),
    ("strace", "strace"),
    ("gnuplot", "gnuplot-nox"),
    ("setpriv", "util-linux"),
];

/// The programs that write the packages and try them.
pub(crate) const PACKAGERS: &[Needed] = &[
    ("objcopy", "binutils"),
    ("xz", "xz-utils"),
    ("dpkg-deb", "dpkg"),
    ("rpmbuild", "rpm"),
    ("buildah", "buildah"),
    ("bwrap", "bubblewrap"),
    ("mmdebstrap", "mmdebstrap"),
];

/// The dependencies of Sanderling's packages, and programs for their trials.
const IN_DEBIAN_ROOT: &str = "passwd,systemd-standalone-sysusers,systemd-standalone-tmpfiles,rpm,xz-utils";

/// Installs the programs that the tests use, the components of the toolchain, and the user.
pub(crate) fn run(log: &mut Log) -> Outcome {
    // rustup installs a file for each command, even without the component.
    let is_missing = |command: &&str| Program::cargo().args(command).args("--version").output().is_none();
    let mut outcome = Outcome::Passed;
    if ["fmt", "clippy"].iter().any(is_missing) {
        outcome = Program::new("rustup").args("component add rustfmt clippy").run(log);
    }
    let outcome = outcome.and_then(|| install(NEEDED, log)).and_then(|| install(PACKAGERS, log));
    outcome
        .and_then(|| install_go_programs(log))
        .and_then(|| install_python_packages(log))
        .and_then(|| create_user(log))
        .and_then(|| make_debian_root(log))
}

/// The archive of a small Debian system in which the packages are tried.
pub(crate) fn debian_root() -> PathBuf {
    target_folder().join("package/debian.tar")
}

/// Only root can try the packages.
fn make_debian_root(log: &mut Log) -> Outcome {
    let archive = debian_root();
    if archive.is_file() || !is_root() {
        return Outcome::Passed;
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let Some(name) = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")) else {
        return Outcome::Failed("/etc/os-release is not that of a Debian system".to_owned());
    };
    let part = archive.with_extension("part.tar");
    let made = fs::create_dir_all(archive.parent().unwrap_or(&archive));
    let failed = |error: &dyn std::fmt::Display| Outcome::Failed(format!("{}: {error}", archive.display()));
    if let Err(error) = made {
        return failed(&error);
    }
    let program = Program::new("mmdebstrap").args("--quiet --variant=essential --include").args(IN_DEBIAN_ROOT);
    let outcome = program.args_of(&[name.to_owned(), part.to_string_lossy().into_owned()]).run(log);
    outcome.and_then(|| fs::rename(&part, &archive).map_or_else(|error| failed(&error), |()| Outcome::Passed))
}

/// Creates the user that root serves as. Tests that are not run by root need none.
fn create_user(log: &mut Log) -> Outcome {
    let is_there = Program::new("id").args("-u sanderling").output().is_some();
    if is_there || !is_root() {
        return Outcome::Passed;
    }
    Program::new("useradd").args("--system --user-group --no-create-home --shell /usr/sbin/nologin sanderling").run(log)
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0)
}

/// Programs of the tests that no Debian package has, or in an old version; Go installs them from its module proxy: the
/// certificate authority of the tests of certificates, and the server whose configuration is imported.
const GO_PROGRAMS: [(&str, &str); 3] = [
    ("pebble", "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1"),
    ("caddy", "github.com/caddyserver/caddy/v2/cmd/caddy@v2.10.2"),
    ("oauth2-proxy", "github.com/oauth2-proxy/oauth2-proxy/v7@v7.6.0"),
];

fn install_go_programs(log: &mut Log) -> Outcome {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let in_home = |name: &str| home.as_ref().is_some_and(|home| home.join("go/bin").join(name).is_file());
    let mut outcome = Outcome::Passed;
    for (_, module) in GO_PROGRAMS.iter().filter(|(name, _)| !is_installed(name) && !in_home(name)) {
        let compiler = || install(&[("go", "golang-go")], log);
        outcome = outcome.and_then(compiler).and_then(|| Program::new("go").args("install").args(module).run(log));
    }
    outcome
}

/// Packages of Python that the tests import, from PyPI: a Debian package is only for the Python of Debian.
const PYTHON_PACKAGES: [(&str, &str); 1] = [("grpc", "grpcio")];

fn install_python_packages(log: &mut Log) -> Outcome {
    let mut outcome = Outcome::Passed;
    for (module, package) in PYTHON_PACKAGES {
        let import = format!("import {module}");
        if Program::new("python3").args("-c").args_of(&[import]).output().is_none() {
            let pip = "-m pip install --quiet --break-system-packages";
            let installer = || install(&[("pip3", "python3-pip")], log);
            outcome = outcome.and_then(installer).and_then(|| Program::new("python3").args(pip).args(package).run(log));
        }
    }
    outcome
}

/// Installs the missing ones of these programs.
pub(crate) fn install(needed: &[Needed], log: &mut Log) -> Outcome {
    let missing: Vec<&Needed> = needed.iter().filter(|(program, _)| !is_installed(program)).collect();
    if missing.is_empty() {
        return Outcome::Passed;
    }
    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    let packages = packages.join(" ");
    let is_root = is_root();
    if !is_installed("apt-get") || !is_root && !is_installed("sudo") {
        return Outcome::Failed(format!("install these Debian packages, or what has their programs: {packages}"));
    }
    // Debian starts services at installation unless this file exits with 101 (invoke-rc.d(8)). The package lists may
    // be missing or outdated, so a failure is retried after an update.
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
$install || {{ apt-get -q update && $install; }}"
    );
    let shell = if is_root { Program::new("sh") } else { Program::new("sudo").args("sh") };
    shell.args("-c").args_of(&[script]).run(log).and_then(|| {
        let still_missing: Vec<&str> =
            missing.iter().map(|(program, _)| *program).filter(|program| !is_installed(program)).collect();
        match still_missing[..] {
            [] => Outcome::Passed,
            _ => Outcome::Failed(format!("installed, but not found by PATH: {}", still_missing.join(", "))),
        }
    })
}
