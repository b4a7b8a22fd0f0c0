//! The configurations of the page about known applications, each in front of the application itself, or of one that
//! answers alike.

mod logins;
mod registry;
mod sites;
mod wordpress;

use super::Answer;
use crate::https::issue_for;
use sanderling_testkit::{Ended, ListenerCounts, TestDirectory, TestServer, curl};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

const PAGE: &str = include_str!("../../../../../docs/known-applications.md");
const USERS: &[u8] = include_bytes!("../site_rules/users.htpasswd");
const BEGIN: &str = "workers = 2\n[limits]\ndrain_timeout = \"1s\"\n[http]\nlisten = [\"127.0.0.1:0\"]\n\
    [https]\nlisten = [\"127.0.0.1:0\"]\n";

/// A program that runs; it is killed when this is dropped.
struct Running(Child);

impl Running {
    /// Starts the program of this Debian package, or of `cargo xtask setup`.
    fn start(mut command: Command, package: &str) -> Running {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Running(child.unwrap_or_else(|error| {
            panic!("{command:?}: {error}; `cargo xtask setup` installs it (package {package})")
        }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server with the configuration of a section of the page.
struct Known {
    server: TestServer,
    directory: TestDirectory,
    https: SocketAddr,
}

impl Known {
    /// `replaced`: what is elsewhere than on the page, and where. Relative to `directory`, which has the files.
    fn start(heading: &str, replaced: &[(&str, &str)], directory: TestDirectory) -> Known {
        let section = PAGE.split("\n## ").find_map(|section| section.strip_prefix(&format!("{heading}\n")));
        let section = section.unwrap_or_else(|| panic!("the page has no section {heading:?}"));
        let block = section.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
        let mut text = block.expect("a configuration").to_owned();
        for (there, here) in replaced {
            assert!(text.contains(there), "{heading} has no {there}");
            text = text.replace(there, here);
        }
        // Each section begins with the keys of its domains.
        let lines = text.lines().map(|line| match line.starts_with("[domain.") && !line.contains(".com\".") {
            true => format!("{line}\ncertificate = {{ chain = \"chain.pem\", key = \"key.pem\" }}\n"),
            false => format!("{line}\n"),
        });
        let mut text: String = [BEGIN.to_owned()].into_iter().chain(lines).collect();
        for host in hosts_without_section(&text) {
            text += &format!("[domain.\"{host}\"]\ncertificate = {{ chain = \"chain.pem\", key = \"key.pem\" }}\n");
        }
        directory.write("users.htpasswd", USERS);
        directory.write("sanderling.toml", text.as_bytes());
        issue_for("*.example.com", &directory, "chain.pem", "key.pem", "example.com");
        let mut server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 1, dns: 0 });
        let https = server.encrypted("https");
        Known { server, directory, https }
    }

    /// Runs curl for a URL of one of the hosts.
    #[track_caller]
    fn curl(&self, url: &str, more: &[&str]) -> Ended {
        let address = if url.starts_with("https:") { self.https } else { self.server.http() };
        let (certificate, to) = (self.directory.argument("chain.pem"), format!("::{address}"));
        curl(&[&["-sS", "--cacert", &certificate, "--connect-to", &to, url], more].concat())
    }

    /// The response to a request.
    #[track_caller]
    fn ask(&self, url: &str, more: &[&str]) -> Answer {
        let ended = self.curl(url, &[&["-i"], more].concat());
        assert!(ended.code() == Some(0), "{url}: {ended}");
        Answer::of(&ended.output)
    }

    /// The status and the content of the response to a request.
    #[track_caller]
    fn status(&self, url: &str, more: &[&str]) -> (u16, String) {
        let Answer { status, content, .. } = self.ask(url, more);
        (status, content)
    }
}

/// The hosts of a configuration that have routes or rules, and no keys of their own.
fn hosts_without_section(text: &str) -> Vec<String> {
    let headers = text.lines().filter_map(|line| line.trim_start_matches('[').strip_prefix("domain.\""));
    let mut hosts: Vec<String> = headers.filter_map(|header| header.split('"').next().map(str::to_owned)).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts.retain(|host| !text.contains(&format!("[domain.\"{host}\"]")));
    hosts
}
