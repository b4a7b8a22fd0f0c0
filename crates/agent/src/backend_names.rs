//! The addresses of hosts with applications: looks their names up, and follows them when they change.
//!
//! The server process connects to the addresses; it keeps those of a name that is not found any more.

use crate::host_addresses::{HostAddresses, look_up_with};
use crate::link::Link;
use sanderling_config::Config;
use sanderling_config::log::{log, log_warning};
use sanderling_ipc::agent::BackendAddresses;
use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// Names that are looked up concurrently.
const ASKING_MAX: usize = 32;
/// Seconds after which a name is looked up again, whatever its TTL says. Those of containers are often too long for a
/// container that was replaced.
const TTL_S_MIN: u32 = 2;
const TTL_S_MAX: u32 = 30;
/// Seconds until a name that was not found is looked up again.
const RETRY_S: u64 = 2;
/// Addresses of one name that are used: the first ones in their order.
const ADDRESSES_MAX: usize = 64;
/// Time for further names to be found before the addresses are passed on.
const PASS_ON_DELAY: Duration = Duration::from_millis(20);

/// The names and their addresses.
struct BackendNames {
    config: Rc<Config>,
    addresses: RefCell<BackendAddresses>,
    changed: Notify,
    asking: Semaphore,
}

/// Begins to look up the names of `config`. Call this in a [`tokio::task::LocalSet`].
pub(crate) fn start(config: &Rc<Config>, link: &Rc<Link>) {
    if config.backend_names.is_empty() {
        return;
    }
    let names = Rc::new(BackendNames {
        config: Rc::clone(config),
        addresses: RefCell::default(),
        changed: Notify::new(),
        asking: Semaphore::new(ASKING_MAX),
    });
    for name in config.backend_names.clone() {
        let names = Rc::clone(&names);
        tokio::task::spawn_local(async move { names.follow(&name).await });
    }
    let link = Rc::clone(link);
    tokio::task::spawn_local(async move {
        loop {
            names.changed.notified().await;
            tokio::time::sleep(PASS_ON_DELAY).await;
            link.backend_addresses_changed(&names.addresses.borrow());
        }
    });
}

impl BackendNames {
    /// Looks up a name at intervals.
    async fn follow(&self, name: &str) {
        let mut last_problem = None;
        loop {
            let permit = self.asking.acquire().await;
            let answer = look_up_with(name, &self.config).await;
            drop(permit);
            let wait_s = self.take(name, answer, &mut last_problem);
            tokio::time::sleep(Duration::from_secs(wait_s)).await;
        }
    }

    /// Takes over an answer; the seconds until the name is looked up again.
    fn take(&self, name: &str, answer: Result<HostAddresses, String>, last_problem: &mut Option<String>) -> u64 {
        let mut all = self.addresses.borrow_mut();
        match answer {
            Ok(HostAddresses { addresses, ttl_s }) => {
                let addresses = sorted(addresses);
                if all.get(name) != Some(&addresses) {
                    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                    log(&format!("backend {name}: its addresses are {}", texts.join(", ")));
                    all.insert(name.to_owned(), addresses);
                    self.changed.notify_one();
                }
                *last_problem = None;
                ttl_s.unwrap_or(TTL_S_MAX).clamp(TTL_S_MIN, TTL_S_MAX).into()
            }
            Err(problem) => {
                if last_problem.as_ref() != Some(&problem) {
                    let kept = if all.get(name).is_some_and(|known| !known.is_empty()) {
                        "; keeping its addresses"
                    } else {
                        ""
                    };
                    log_warning(&format!("backend {name}: {problem}{kept}"));
                    *last_problem = Some(problem);
                }
                if !all.contains_key(name) {
                    all.insert(name.to_owned(), Vec::new());
                    self.changed.notify_one();
                }
                RETRY_S
            }
        }
    }
}

/// Each address once, in an order that does not depend on the answer.
fn sorted(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> BackendNames {
        BackendNames {
            config: Rc::new(Config::default()),
            addresses: RefCell::default(),
            changed: Notify::new(),
            asking: Semaphore::new(ASKING_MAX),
        }
    }

    fn found(texts: &[&str], ttl_s: Option<u32>) -> Result<HostAddresses, String> {
        Ok(HostAddresses { addresses: texts.iter().map(|text| text.parse().expect("an address")).collect(), ttl_s })
    }

    #[test]
    fn addresses_are_kept_when_the_name_is_not_found_any_more() {
        let names = names();
        let check = |answer, expected: &[&str], wait_s: u64| {
            assert_eq!(names.take("app", answer, &mut None), wait_s);
            let known = names.addresses.borrow()["app"].iter().map(ToString::to_string).collect::<Vec<_>>();
            assert_eq!(known, expected);
        };
        let none = || Err("the name has no address".to_owned());
        check(none(), &[], RETRY_S);
        check(found(&["192.0.2.2", "192.0.2.1", "192.0.2.2"], Some(0)), &["192.0.2.1", "192.0.2.2"], TTL_S_MIN.into());
        check(none(), &["192.0.2.1", "192.0.2.2"], RETRY_S);
        check(found(&["192.0.2.3"], Some(7)), &["192.0.2.3"], 7);
        check(found(&["192.0.2.3"], Some(600)), &["192.0.2.3"], TTL_S_MAX.into());
        check(found(&["192.0.2.3"], None), &["192.0.2.3"], TTL_S_MAX.into());
    }

    #[test]
    fn addresses_beyond_the_limit_are_left_out() {
        let many = (0..100).map(|last| IpAddr::from([192, 0, 2, last])).collect::<Vec<_>>();
        assert_eq!(sorted(many.clone()), many[..ADDRESSES_MAX]);
    }
}
