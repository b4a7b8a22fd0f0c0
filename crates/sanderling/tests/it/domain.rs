//! Turns the files and the zone of a test into a program that serves them.

use std::path::Path;
use std::process::Command;

use sanderling_testkit::process::{Folder, Listeners, Serving, sanderling};

/// The zone that most tests ask: one of each case that an answer can be.
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
deep.empty.terminal TXT "below two names that hold nothing"
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

/// A domain that is being served, and the folder that it is served from: `public` is the site, `zone` the zone file.
pub(crate) struct Domain {
    // Before the folder: the program ends first.
    pub(crate) serving: Serving,
    pub(crate) folder: Folder,
}

/// What a test wants served, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'w> {
    /// Paths below the site's root, and what the files hold; no site if there are none.
    pub(crate) site: &'w [(&'w str, &'w [u8])],
    /// The zone file of `example.com`; no zone if it is empty.
    pub(crate) zone: &'w str,
    /// Lines of `[limits]`.
    pub(crate) limits: &'w str,
    /// Threads that serve: two unless a test needs to know who meets whom.
    pub(crate) worker_count: usize,
}

impl Default for Wanted<'_> {
    fn default() -> Self {
        Wanted { site: &[], zone: "", limits: "", worker_count: 2 }
    }
}

impl Domain {
    /// A site of these files.
    #[track_caller]
    pub(crate) fn with_site(site: &[(&str, &[u8])]) -> Domain {
        Domain::serve(Wanted { site, ..Wanted::default() })
    }

    /// A zone with this text.
    #[track_caller]
    pub(crate) fn with_zone(zone: &str) -> Domain {
        Domain::serve(Wanted { zone, ..Wanted::default() })
    }

    #[track_caller]
    pub(crate) fn serve(wanted: Wanted<'_>) -> Domain {
        let folder = Folder::new();
        let (command, listeners) = command(&folder, &wanted);
        Domain { serving: Serving::start_command(command, listeners), folder }
    }

    /// The same, by a program that may have this many descriptors open.
    #[track_caller]
    pub(crate) fn serve_with_descriptors(wanted: Wanted<'_>, descriptor_count_max: usize) -> Domain {
        let folder = Folder::new();
        let (command, listeners) = command(&folder, &wanted);
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={descriptor_count_max}:{descriptor_count_max}"));
        limited.arg(command.get_program()).args(command.get_args());
        limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Domain { serving: Serving::start_command(limited, listeners), folder }
    }
}

/// The program with a configuration file, written into `folder`, that says what is wanted.
fn command(folder: &Folder, wanted: &Wanted<'_>) -> (Command, Listeners) {
    let mut services = String::new();
    let mut domain = String::from("[domain.\"example.com\"]\n");
    let mut listeners = Listeners::default();
    if !wanted.site.is_empty() {
        for (path, content) in wanted.site {
            folder.write(&Path::new("public").join(path).to_string_lossy(), content);
        }
        services += "[http]\nlisten = [\"127.0.0.1:0\"]\n";
        domain += "site = \"public\"\n";
        listeners.http = 1;
    }
    if !wanted.zone.is_empty() {
        folder.write("zone", wanted.zone.as_bytes());
        services += "[dns]\nlisten = [\"127.0.0.1:0\"]\n";
        domain += "zone = \"zone\"\n";
        listeners.dns = 1;
    }
    let Wanted { worker_count, limits, .. } = wanted;
    let config = format!("workers = {worker_count}\n{services}{domain}[limits]\n{limits}\n");
    folder.write("sanderling.toml", config.as_bytes());
    let mut command = sanderling();
    command.args(["serve", "--config", &folder.argument("sanderling.toml")]);
    (command, listeners)
}
