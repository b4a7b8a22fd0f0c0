//! A domain served by the program, with the site and the zone of a test.

use std::path::Path;
use std::process::Command;

use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer};

/// The zone of most tests, with one case of each kind of answer.
pub(crate) const ZONE: &str = r#"
$ORIGIN example.com.
$TTL 300
@           IN SOA  ns1 hostmaster 2024010101 7200 1800 1209600 60
            NS      ns1
            NS      ns2
            A       192.0.2.1
            MX      10 mail
ns1         A       192.0.2.2
ns2         A       192.0.2.3
mail        A       192.0.2.4
mail        AAAA    2001:db8::4
www         CNAME   @
chain       CNAME   www
loop1       CNAME   loop2
loop2       CNAME   loop1
away        CNAME   www.example.org.
dangling    CNAME   missing
deep.empty.terminal TXT "below two empty non-terminals"
*.wild      A       192.0.2.5
*.wild      TXT     "wild"
tame.wild   A       192.0.2.6
child       NS      ns.child
child       NS      ns.elsewhere.example.org.
ns.child    A       192.0.2.7
tree        DNAME   www.example.org.
big         TXT     "0 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
big         TXT     "1 bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
big         TXT     "2 cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
big         TXT     "3 dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd"
big         TXT     "4 eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"
"#;

/// A served domain, and its directory: `public` is the site, `zone` the zone file.
pub(crate) struct Domain {
    // Before the directory: the program ends first.
    pub(crate) server: TestServer,
    pub(crate) directory: TestDirectory,
}

/// The content and the settings to serve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'w> {
    /// Paths below the document root, and the contents; no site if there are none.
    pub(crate) site: &'w [(&'w str, &'w [u8])],
    /// The zone file of `example.com`; no zone if it is empty.
    pub(crate) zone: &'w str,
    /// Lines of `[limits]`.
    pub(crate) limits: &'w str,
    /// Two, unless a test needs to know which clients share a worker.
    pub(crate) worker_count: usize,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Setup { site: &[], zone: "", limits: "", worker_count: 2 }
    }
}

impl Domain {
    /// Serves these files as a site.
    #[track_caller]
    pub(crate) fn with_site(site: &[(&str, &[u8])]) -> Domain {
        Domain::serve(Setup { site, ..Setup::default() })
    }

    /// Serves this zone.
    #[track_caller]
    pub(crate) fn with_zone(zone: &str) -> Domain {
        Domain::serve(Setup { zone, ..Setup::default() })
    }

    #[track_caller]
    pub(crate) fn serve(setup: Setup<'_>) -> Domain {
        let directory = TestDirectory::new();
        let (command, listeners) = command(&directory, &setup);
        Domain { server: TestServer::start_command(command, listeners), directory }
    }

    /// Serves `setup` with this limit of open descriptors.
    #[track_caller]
    pub(crate) fn serve_with_descriptors(setup: Setup<'_>, descriptor_count_max: usize) -> Domain {
        let directory = TestDirectory::new();
        let (command, listeners) = command(&directory, &setup);
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={descriptor_count_max}:{descriptor_count_max}"));
        limited.arg(command.get_program()).args(command.get_args());
        limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Domain { server: TestServer::start_command(limited, listeners), directory }
    }
}

/// The program with a configuration file in `directory`.
fn command(directory: &TestDirectory, setup: &Setup<'_>) -> (Command, ListenerCounts) {
    let mut services = String::new();
    let mut domain = String::from("[domain.\"example.com\"]\n");
    let mut listeners = ListenerCounts::default();
    if !setup.site.is_empty() {
        for (path, content) in setup.site {
            directory.write(&Path::new("public").join(path).to_string_lossy(), content);
        }
        services += "[http]\nlisten = [\"127.0.0.1:0\"]\n";
        domain += "site = \"public\"\n";
        listeners.http = 1;
    }
    if !setup.zone.is_empty() {
        directory.write("zone", setup.zone.as_bytes());
        services += "[dns]\nlisten = [\"127.0.0.1:0\"]\n";
        domain += "zone = \"zone\"\n";
        listeners.dns = 1;
    }
    let Setup { worker_count, limits, .. } = setup;
    let config = format!("workers = {worker_count}\n{services}{domain}[limits]\n{limits}\n");
    directory.write("sanderling.toml", config.as_bytes());
    (directory.serve_command(), listeners)
}
