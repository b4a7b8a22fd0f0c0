//! The handle of the rest of the agent to a signed zone's task.

use super::{SigningContext, SigningTask};
use crate::command_answer::CommandAnswer;
use sanderling_config::{DomainName, SignedZone as SignedZoneConfig, Zone};
use sanderling_dns::Rtype;
use sanderling_dns::rdata::PresentationFormat;
use sanderling_dnssec::ZoneKeys;
use sanderling_dnssec::zone_keys::Rollover;
use sanderling_ipc::agent::{SigningReport, UpdatesToStore};
use sanderling_zone_files::wire_name;
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// A zone with its task, which ends when this is dropped.
pub(crate) struct SigningHandle {
    shared: Rc<Shared>,
    task: AbortHandle,
}

/// The messages between the task and the rest of the agent.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) wake: Rc<Notify>,
    /// The serial that the server process answers with.
    pub(super) served: Cell<Option<u32>>,
    /// Whether the records must be read again.
    pub(super) reread: RefCell<Option<Reread>>,
    /// Dynamic updates to sign and store.
    pub(super) updates: RefCell<Vec<WaitingUpdates>>,
    /// Rollovers that should start.
    pub(super) rollovers: RefCell<Vec<(Rollover, CommandAnswer)>>,
    /// Clients that request signing with new keys, regardless of the parent zone.
    pub(super) new_keys: RefCell<Vec<CommandAnswer>>,
    /// The keys' displayed state; `None` as long as their state cannot be read.
    pub(super) keys: RefCell<Option<ZoneKeys>>,
    /// The keys of other signers, for the operator.
    pub(super) others: RefCell<Vec<String>>,
    /// The reasons why the records of the name servers and the parent zone are unknown.
    pub(super) unknown: RefCell<Vec<String>>,
    /// Whether the stored state was read since startup and is in `report`.
    pub(super) is_restored: Cell<bool>,
    pub(super) report: RefCell<SigningReport>,
}

/// Updates that wait to be signed. A server process has at most one set of updates per zone stored at a time.
const UPDATES_MAX: usize = 64;

/// Dynamic updates to sign and store, with their change.
pub(super) struct WaitingUpdates {
    pub(super) updates: UpdatesToStore,
    pub(super) change: Option<OwnedFd>,
    /// The time since which they wait.
    pub(super) since: tokio::time::Instant,
}

/// A command to read the records again.
#[derive(Clone, Default)]
pub(super) struct Reread {
    pub(super) answers: Vec<Rc<CommandAnswer>>,
    /// Whether the command names the zone: its client then gets a line even for an unchanged zone.
    pub(super) is_named: bool,
    /// Whether the server process must load the zone even if it has lost records or its serial went back.
    pub(super) is_forced: bool,
}

/// Tells a task that the file with its records has changed.
pub(crate) struct SourceChanged(Rc<Shared>);

impl SourceChanged {
    pub(crate) fn tell(&self) {
        self.0.reread.borrow_mut().get_or_insert_default();
        self.0.wake.notify_one();
    }
}

impl Reread {
    pub(super) fn print(&self, text: &str) {
        self.answers.iter().for_each(|answer| answer.print(text));
    }

    pub(super) fn fail(&self, text: &str) {
        self.answers.iter().for_each(|answer| answer.fail(text));
    }
}

impl Drop for SigningHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SigningHandle {
    /// Starts the task of `zone`, whose records are in the file of `source`. Call this in a [`tokio::task::LocalSet`].
    pub(crate) fn start(zone: &SignedZoneConfig, source: Zone, context: Rc<SigningContext>) -> SigningHandle {
        let shared = Rc::new(Shared { reread: RefCell::new(Some(Reread::default())), ..Shared::default() });
        let task = SigningTask::new(zone, source, context, Rc::clone(&shared));
        let task = tokio::task::spawn_local(task.run()).abort_handle();
        SigningHandle { shared, task }
    }

    /// The server process answers from this version.
    pub(crate) fn on_served(&self, serial: Option<u32>) {
        self.shared.served.set(serial);
        self.shared.wake.notify_one();
    }

    /// Other records are derived, or may be.
    pub(crate) fn wake(&self) {
        self.shared.wake.notify_one();
    }

    /// The file with the records has changed, or may have.
    pub(crate) fn read_again(&self, answer: Rc<CommandAnswer>, is_named: bool, is_forced: bool) {
        let mut reread = self.shared.reread.borrow_mut();
        let reread = reread.get_or_insert_default();
        reread.answers.push(answer);
        reread.is_named |= is_named;
        reread.is_forced |= is_forced;
        self.shared.wake.notify_one();
    }

    /// Whether updates must be signed: there is a signed version, or it was not searched for yet.
    pub(crate) fn signs_updates(&self) -> bool {
        !self.shared.is_restored.get() || self.shared.report.borrow().serial.is_some()
    }

    /// Whether the maximum number of updates wait to be signed.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.updates.borrow().len() >= UPDATES_MAX
    }

    /// Signs and stores dynamic updates, which come as a change of the unsigned records.
    pub(crate) fn update(&self, updates: UpdatesToStore, change: Option<OwnedFd>) {
        let since = tokio::time::Instant::now();
        self.shared.updates.borrow_mut().push(WaitingUpdates { updates, change, since });
        self.shared.wake.notify_one();
    }

    /// Replaces keys.
    pub(crate) fn start_rollover(&self, rollover: Rollover, answer: CommandAnswer) {
        self.shared.rollovers.borrow_mut().push((rollover, answer));
        self.shared.wake.notify_one();
    }

    /// Makes the first key, whatever the parent zone has.
    pub(crate) fn make_new_keys(&self, answer: CommandAnswer) {
        self.shared.new_keys.borrow_mut().push(answer);
        self.shared.wake.notify_one();
    }

    pub(crate) fn report(&self) -> SigningReport {
        self.shared.report.borrow().clone()
    }

    /// The signal that the file with its records has changed.
    pub(crate) fn source_changed(&self) -> SourceChanged {
        SourceChanged(Rc::clone(&self.shared))
    }

    /// A text for the operator with the keys, the records for the registrar, and the pending step.
    pub(crate) fn status(&self, name: &DomainName, now_unix_s: u64) -> String {
        let apex = wire_name(name);
        let keys = self.shared.keys.borrow();
        let mut text = format!("zone {name}\n");
        let SigningReport { serial, sign_again_at_unix_s, problem, updates: _ } = self.report();
        match (serial, &*keys) {
            // As long as the keys' state cannot be read, the version is not read either.
            (_, None) => {}
            (None, Some(_)) => text += "  not signed yet\n",
            (Some(serial), Some(keys)) if keys.is_empty() => {
                text += &format!("  unsigned again, with serial {serial}\n");
            }
            (Some(serial), Some(_)) => text += &format!("  signed with serial {serial}\n"),
        }
        if let Some(at) = sign_again_at_unix_s {
            let time = match at.saturating_sub(now_unix_s) {
                seconds @ 0..7_200 => format!("{} min", seconds / 60),
                seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
                seconds => format!("{} days", seconds / 86_400),
            };
            text += &format!("  next renewal of signatures in {time}\n");
        }
        problem.into_iter().for_each(|problem| text += &format!("  problem: {problem}\n"));
        let Some(keys) = &*keys else { return text + "  the zone's keys are not known\n" };
        keys.status(apex.as_name()).into_iter().for_each(|line| text += &format!("  {line}\n"));
        let (others, unknown) = (self.shared.others.borrow(), self.shared.unknown.borrow());
        others.iter().chain(unknown.iter()).for_each(|line| text += &format!("  {line}\n"));
        if keys.keys_for_registrar().next().is_none() {
            return text;
        }
        text += "  submit a record of each key to the parent zone; give the registrar the DS record with SHA-256 (2) \
            or SHA-384 (4), or the DNSKEY record, whichever it asks for:\n";
        for key in keys.keys_for_registrar() {
            for ds in [key.ds(apex.as_name()), key.ds_sha384(apex.as_name())] {
                text += &format!("    {name}. IN DS {}\n", PresentationFormat::new(Rtype::DS, &ds.rdata()));
            }
            text += &format!("    {name}. IN DNSKEY {}\n", PresentationFormat::new(Rtype::DNSKEY, &key.rdata()));
        }
        text
    }
}
