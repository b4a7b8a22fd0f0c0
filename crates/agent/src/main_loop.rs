//! The agent's loop: waits for the earliest entry of the schedule, for orders in progress, and for the supervisor.

use crate::alias_targets::AliasTargets;
use crate::certificates::{AfterFailure, ManagedCertificate, Revocation};
use crate::clock::{ClockWatch, unix_s};
use crate::command_answer::CommandAnswer;
use crate::derived::DerivedZones;
use crate::failure::{Asked, Failure, Kind};
use crate::link::Incoming;
use crate::order::{OrderRequest, Orders};
use crate::pinned_keys::{PinnedKeys, Question};
use crate::resolver_files::ResolverFiles;
use crate::schedule::Schedule;
use crate::zones::Zones;
use instant_acme::{CertificateIdentifier, Error, RevocationReason, RevocationRequest};
use rustls::pki_types::CertificateDer;
use sanderling_config::log::{log, log_error, log_warning};
use sanderling_config::repeated_messages::LimitedLog;
use sanderling_ipc::agent::{AgentReport, ScheduledTask};
use sanderling_ipc::handover::Descriptors;
use sanderling_ipc::{Command, Connection, Event, IncomingFds, Message, Text};
use std::iter;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Maximum concurrent orders.
const ORDERS_MAX: usize = 8;
/// The machine's clock may be set in the meantime.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Time between two reports: each has all zones.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two checks of the resolver's files.
const RESOLVER_FILES_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum commands in one iteration, whose cost grows with the number of zones and certificates: a flood of NOTIFY for
/// thousands of zones must not delay their transfers.
const COMMANDS_PER_ITERATION_MAX: usize = 1_024;
/// Time between two requests for the renewal time suggested by an authority (RFC 9773 §4.3.2), unless it asks for
/// another interval.
const SUGGESTION_INTERVAL_S: u64 = 6 * 3600;
const SUGGESTION_INTERVAL_S_MIN: u64 = 60;
const SUGGESTION_INTERVAL_S_MAX: u64 = 24 * 3600;
/// Time after which an authority that did not answer is asked again to revoke.
const REVOCATION_RETRY_S: u64 = 300;
/// The error of an authority that has revoked before (RFC 8555 §7.6).
const ALREADY_REVOKED: &str = "urn:ietf:params:acme:error:alreadyRevoked";

/// The scheduled work: a certificate's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Order(usize),
    /// Asks the authority when to renew.
    Suggestion(usize),
    /// Revokes a certificate that has a successor.
    Revocation(usize),
}

/// The ended task.
enum Finished {
    Order { index: usize, authority_index: usize, names: Vec<String>, result: Result<(), Failure> },
    Suggestion { index: usize, suggestion: Option<Suggestion> },
    Revocation { index: usize, authority_index: usize, revocation: Revocation, result: Result<(), Failure> },
}

/// An authority's suggested renewal time, and the time to ask it again.
struct Suggestion {
    window: Option<(u64, u64)>,
    ask_again_s: u64,
}

pub(crate) struct MainLoop {
    orders: Rc<Orders>,
    certificates: Vec<ManagedCertificate>,
    schedule: Schedule<Task>,
    running: JoinSet<Finished>,
    zones: Zones,
    derived: DerivedZones,
    aliases: AliasTargets,
    pinned: PinnedKeys,
    /// Maximum concurrent checks whether name servers answer with pinned keys.
    asking: JoinSet<(Question, bool)>,
    last_report: Option<AgentReport>,
    next_report_at: Instant,
    clock: ClockWatch,
    resolver_files: ResolverFiles,
    resolver_files_at: Instant,
    /// Commands that the agent does not carry out.
    ignored: LimitedLog,
}

impl MainLoop {
    pub(crate) fn new(
        orders: Orders,
        certificates: Vec<ManagedCertificate>,
        zones: Zones,
        derived: DerivedZones,
        aliases: AliasTargets,
        pinned: PinnedKeys,
        resolver_files: ResolverFiles,
    ) -> MainLoop {
        let mut main_loop = MainLoop {
            orders: Rc::new(orders),
            certificates,
            schedule: Schedule::new(),
            running: JoinSet::new(),
            zones,
            derived,
            aliases,
            pinned,
            asking: JoinSet::new(),
            last_report: None,
            next_report_at: Instant::now(),
            clock: ClockWatch::new(unix_s()),
            resolver_files,
            resolver_files_at: Instant::now(),
            ignored: LimitedLog::default(),
        };
        main_loop.finish_stored();
        main_loop.schedule_all();
        main_loop
    }

    /// Runs until the supervisor exits, or must start another agent. Call this in a [`tokio::task::LocalSet`].
    pub(crate) async fn run(mut self) {
        loop {
            if self.clock.was_set_back(unix_s()) {
                log_warning("the clock was set back: rescheduling everything");
                self.certificates.iter_mut().for_each(|one| one.on_clock_set_back(&self.orders.state));
                self.schedule_all();
                self.aliases.on_clock_set_back();
            }
            if let Some(path) = self.replaced_resolver_file() {
                let path = path.display();
                return log_warning(&format!(
                    "{path} was replaced; the agent restarts, because its sandbox allows only the old file"
                ));
            }
            self.start_due();
            // This precedes the derivation of records: a name that is not a target yet has no addresses.
            if self.zones.alias_names().take_changed() {
                self.aliases.update_names();
                self.derived.on_change();
            }
            self.aliases.start_due();
            self.rotate_keys();
            if self.derived.update(&self.orders.accounts, &self.pinned, &self.aliases) {
                self.zones.on_derived(self.derived.set());
            }
            let answers = self.zones.take_complete_answers();
            if !answers.is_empty() {
                // Clients that look after their answer should see the result.
                self.next_report_at = Instant::now();
            }
            let report_wait = self.report();
            drop(answers);
            let is_possible = self.is_possible();
            let wait = self
                .schedule
                .next_at(is_possible)
                .into_iter()
                .chain(self.pinned.next_at())
                .chain(self.aliases.next_at())
                .min()
                .map_or(WAIT_MAX, |at| Duration::from_secs(at.saturating_sub(unix_s())).min(WAIT_MAX))
                .min(report_wait.unwrap_or(WAIT_MAX));
            let orders = Rc::clone(&self.orders);
            let alias_names = Rc::clone(self.zones.alias_names());
            tokio::select! {
                incoming = orders.link.receive() => {
                    let arrived = iter::from_fn(|| orders.link.receive_arrived());
                    for incoming in iter::once(incoming).chain(arrived).take(COMMANDS_PER_ITERATION_MAX) {
                        match incoming {
                            Incoming::Command(command, descriptors) => self.handle(command, descriptors),
                            Incoming::Closed => return,
                        }
                    }
                }
                Some(finished) = self.running.join_next() => {
                    self.finish(finished.expect("a task that panics ends the agent, which is restarted"));
                }
                Some(asked) = self.asking.join_next() => {
                    let (question, is_answered) = asked.expect("a task that panics ends the agent, which is restarted");
                    let changed = self.pinned.on_asked(&question, is_answered);
                    self.on_rotated(&changed);
                }
                Some((target, answer)) = self.aliases.answered() => {
                    self.aliases.on_answer(&target, answer);
                    self.derived.on_change();
                }
                () = alias_names.changed() => {}
                () = tokio::time::sleep(wait) => {}
                () = self.zones.changed(), if report_wait.is_none() => {}
                () = orders.link.challenges_changed() => self.derived.on_change(),
                () = orders.progress.changed(), if report_wait.is_none() => {}
                () = orders.link.flush() => {}
            }
        }
    }

    /// The first replaced file of the resolver, checked from time to time.
    fn replaced_resolver_file(&mut self) -> Option<&Path> {
        if self.resolver_files_at > Instant::now() {
            return None;
        }
        self.resolver_files_at = Instant::now() + RESOLVER_FILES_INTERVAL;
        self.resolver_files.replaced()
    }

    /// Finishes the orders of an agent that was killed after it had stored their certificates.
    fn finish_stored(&mut self) {
        for certificate in &mut self.certificates {
            if let Some(directory) = self.orders.stored_by(&certificate.name) {
                self.orders.link.certificate_stored(&certificate.name);
                certificate.on_issued(&directory, &self.orders.state);
                self.orders.finish(&certificate.name);
            }
        }
    }

    /// Schedules the orders that the certificates need, in place of the previous schedule.
    fn schedule_all(&mut self) {
        for index in 0..self.certificates.len() {
            if !self.certificates[index].is_in_progress {
                self.schedule_order(index);
            }
            let at_unix_s = self.certificates[index].next_question(SUGGESTION_INTERVAL_S_MAX);
            self.schedule_suggestion(index, at_unix_s.max(unix_s()));
            self.schedule_revocation(index, unix_s());
        }
    }

    /// Whether a task can begin now.
    fn is_possible(&self) -> impl Fn(&Task) -> bool + use<> {
        let has_room = self.running.len() < ORDERS_MAX;
        move |_| has_room
    }

    fn start_due(&mut self) {
        while let Some(task) = self.schedule.take_due(unix_s(), self.is_possible()) {
            match task {
                Task::Order(index) => self.start_order(index, false),
                Task::Suggestion(index) => self.start_suggestion(index),
                Task::Revocation(index) => self.start_revocation(index),
            }
        }
    }

    /// `is_wanted`: the operator asks for it, so that failed names are retried immediately.
    fn start_order(&mut self, index: usize, is_wanted: bool) {
        let certificate = &mut self.certificates[index];
        let names = certificate.names_to_order(is_wanted);
        let authority_index = certificate.authority_index_for(&names, self.orders.accounts.count());
        let directory = &self.orders.accounts.authority(authority_index).directory;
        let request = OrderRequest {
            name: certificate.name.clone(),
            authority_index,
            key: self.pinned.next_key(&certificate.name),
            replaces: certificate.replaced(directory),
            over_http: names.iter().filter(|name| certificate.prefers_http(name)).cloned().collect(),
            names,
        };
        certificate.is_in_progress = true;
        let authority = &self.orders.accounts.authority(authority_index).name;
        log(&format!("certificate {}: requesting it from {authority}", certificate.name));
        let orders = Rc::clone(&self.orders);
        self.running.spawn_local(async move {
            let result = orders.issue(&request).await;
            Finished::Order { index, authority_index, names: request.names, result }
        });
    }

    fn start_suggestion(&mut self, index: usize) {
        let certificate = &self.certificates[index];
        let identifier = certificate.issued.as_ref().and_then(|issued| issued.identifier.clone());
        let Some(identifier) = identifier else { return };
        let authority_index = self.index_of(certificate.issued_by());
        let orders = Rc::clone(&self.orders);
        self.running.spawn_local(async move {
            let suggestion = ask_for_suggestion(&orders, authority_index, &identifier).await;
            Finished::Suggestion { index, suggestion }
        });
    }

    fn start_revocation(&mut self, index: usize) {
        let Some(revocation) = self.certificates[index].record.revocations.first().cloned() else { return };
        let authority_index = self.index_of(revocation.issued_by.as_deref());
        let orders = Rc::clone(&self.orders);
        self.running.spawn_local(async move {
            let result = revoke(&orders, authority_index, &revocation).await;
            Finished::Revocation { index, authority_index, revocation, result }
        });
    }

    /// The index of the authority with this directory; of the first one if it is not known.
    fn index_of(&self, directory: Option<&str>) -> usize {
        directory.and_then(|directory| self.orders.accounts.index_of(directory)).unwrap_or(0)
    }

    fn finish(&mut self, finished: Finished) {
        match finished {
            Finished::Revocation { index, authority_index, revocation, result } => {
                self.finish_revocation(index, authority_index, &revocation, &result);
            }
            Finished::Order { index, authority_index, names, result } => {
                self.finish_order(index, authority_index, &names, &result);
                self.derived.on_change();
            }
            Finished::Suggestion { index, suggestion } => {
                let Some(Suggestion { window, ask_again_s }) = suggestion else { return };
                let certificate = &mut self.certificates[index];
                certificate.on_asked(ask_again_s, &self.orders.state);
                if let Some((start, end)) = window {
                    certificate.on_suggestion(start, end, &self.orders.state);
                    if !certificate.is_in_progress {
                        self.schedule_order(index);
                    }
                }
                self.schedule_suggestion(index, unix_s() + ask_again_s);
            }
        }
    }

    fn finish_order(&mut self, index: usize, authority_index: usize, names: &[String], result: &Result<(), Failure>) {
        let certificate = &mut self.certificates[index];
        certificate.is_in_progress = false;
        let (text, is_success) = match result {
            Ok(()) => {
                certificate.on_issued(&self.orders.accounts.authority(authority_index).directory, &self.orders.state);
                self.orders.finish(&certificate.name);
                let lacking = certificate.lacking_text();
                let text = format!("certificate {}: issued{lacking}", certificate.name);
                log(&text);
                (text, lacking.is_empty())
            }
            Err(failure) => {
                let text = format!("certificate {}: {failure}", certificate.name);
                match certificate.on_failure(failure, names, self.orders.accounts.count(), &self.orders.state) {
                    AfterFailure::Later => log_error(&format!("{text}; {}", certificate.next_attempt())),
                    AfterFailure::WithoutFailed => {
                        log_error(&format!("{text}; requesting a certificate for the other names"));
                        let is_awaited =
                            !certificate.waiting.is_empty() || !certificate.waiting_for_revocation.is_empty();
                        return if is_awaited { self.start_order(index, false) } else { self.schedule_order(index) };
                    }
                }
                (text, false)
            }
        };
        let waiting = std::mem::take(&mut certificate.waiting);
        let waiting_for_revocation = match result {
            Ok(()) => Vec::new(),
            Err(_) => std::mem::take(&mut certificate.waiting_for_revocation),
        };
        self.schedule_order(index);
        if result.is_ok() {
            self.schedule_suggestion(index, unix_s());
            self.schedule_revocation(index, unix_s());
        }
        // Clients that look after their answer should see the result of the order.
        self.next_report_at = Instant::now();
        self.report();
        for client in waiting {
            answer(client, &text, is_success);
        }
        for client in waiting_for_revocation {
            answer(
                client,
                &format!("{text}; the current certificate will be revoked once a replacement is issued"),
                false,
            );
        }
    }

    fn finish_revocation(
        &mut self,
        index: usize,
        authority_index: usize,
        revocation: &Revocation,
        result: &Result<(), Failure>,
    ) {
        let certificate = &mut self.certificates[index];
        let (name, authority) = (&certificate.name, &self.orders.accounts.authority(authority_index).name);
        let text = match result {
            Ok(()) => format!("certificate {name}: renewed; {authority} revoked the previous certificate"),
            Err(failure) => {
                format!("certificate {name}: renewed, but the previous certificate was not revoked: {failure}")
            }
        };
        let is_over = result.as_ref().err().is_none_or(|failure| failure.kind == Kind::Refused);
        if is_over {
            certificate.on_revoked(revocation, &self.orders.state);
        }
        match result {
            Ok(()) => log(&text),
            Err(_) => log_error(&text),
        }
        for client in std::mem::take(&mut certificate.waiting_for_revocation) {
            answer(client, &text, result.is_ok());
        }
        self.schedule_revocation(index, if is_over { unix_s() } else { unix_s() + REVOCATION_RETRY_S });
    }

    /// Makes the keys that are due, and begins to ask name servers.
    fn rotate_keys(&mut self) {
        let mut changed = self.pinned.make_keys();
        changed.extend(self.pinned.on_served(self.derived.served()));
        self.on_rotated(&changed);
        for question in self.pinned.questions() {
            let orders = Rc::clone(&self.orders);
            self.asking.spawn_local(async move {
                let is_answered = question.ask(&orders.name_servers).await;
                (question, is_answered)
            });
        }
    }

    /// The rotations of these certificates have changed.
    fn on_rotated(&mut self, names: &[String]) {
        for name in names {
            self.derived.on_change();
            let is_idle = |certificate: &ManagedCertificate| certificate.name == *name && !certificate.is_in_progress;
            if let Some(index) = self.certificates.iter().position(is_idle) {
                self.schedule_order(index);
            }
        }
    }

    fn schedule_order(&mut self, index: usize) {
        let certificate = &self.certificates[index];
        let (mut at, mut why) = certificate.next_order();
        if let Some(ready_at) = self.pinned.order_at(&certificate.name) {
            let overdue_at = certificate.overdue_at(at);
            let ready_at = ready_at.map_or(overdue_at, |ready_at| ready_at.min(overdue_at));
            if ready_at > at {
                (at, why) = (ready_at, "its next key must first reach the TLSA records in all caches".to_owned());
            }
        }
        let what = ScheduledTask::order(&certificate.name, certificate.issued.is_some());
        self.schedule.set(Task::Order(index), at, what, why);
    }

    /// Schedules the next revocation of a certificate that has a successor.
    fn schedule_revocation(&mut self, index: usize, at_unix_s: u64) {
        let certificate = &self.certificates[index];
        if !certificate.record.revocations.is_empty() && !certificate.is_to_be_revoked() {
            let what = format!("revoke the previous certificate of {}", certificate.name);
            self.schedule.set(Task::Revocation(index), at_unix_s, what, "requested by the operator".to_owned());
        }
    }

    fn schedule_suggestion(&mut self, index: usize, at_unix_s: u64) {
        let certificate = &self.certificates[index];
        if certificate.issued.as_ref().is_some_and(|issued| issued.identifier.is_some()) {
            let what = format!("ask when to renew the certificate of {}", certificate.name);
            self.schedule.set(Task::Suggestion(index), at_unix_s, what, "authorities may change the time".to_owned());
        }
    }

    fn handle(&mut self, command: Command, descriptors: IncomingFds) {
        let mut received: Descriptors = descriptors.into_iter().collect();
        let client = received.requester.take().and_then(|client| Connection::from_fd(client).ok());
        match (command, client) {
            (Command::RenewCertificate { name }, Some(client)) => self.renew(&name, client),
            (Command::RevokeCertificate { name, is_key_compromised }, Some(client)) => {
                self.begin_revocation(&name, is_key_compromised, client);
            }
            (Command::ReadZones { zones, forced_zones, is_success }, client) => {
                self.zones.read_again(&zones, &forced_zones, CommandAnswer::new(client, is_success));
            }
            (Command::Dnssec(command), Some(client)) => {
                self.zones.answer(&command, CommandAnswer::new(Some(client), true));
            }
            (Command::UseKeeper, None) => self.zones.use_keeper(received.zone_keys),
            (Command::UpdateSecrets, None) => self.zones.update_secrets(received),
            (Command::ZonesServed, None) => self.zones.on_all_served(received.served_zones),
            (Command::StoreJournals, None) => self.zones.store_journals(received.journals),
            (Command::StoreUpdates(updates), None) => self.zones.store_updates(updates, received.updates),
            (Command::CertificatesServed, None) => {
                self.derived.on_certificates_served(received.served_certificates);
                let changed = self.pinned.on_served(self.derived.served());
                self.on_rotated(&changed);
            }
            (Command::ZoneServed(zone), None) => self.zones.on_served(&zone),
            (Command::ZoneNotified(notify), None) => self.zones.on_notified(&notify),
            // Certificates written by another process are not logged.
            _ => self.ignored.warning("commands", "ignoring a command that is not for the agent"),
        }
    }

    /// The certificate of a domain or of another name; without one, the client gets an error.
    fn find(&self, name: &str, client: Connection) -> Option<(usize, Connection)> {
        let is_asked = |one: &ManagedCertificate| one.name == name || one.names.iter().any(|other| other == name);
        let Some(index) = self.certificates.iter().position(is_asked) else {
            let text = format!("no certificate is requested for {name}; see `sanderling certificates`");
            answer(client, &text, false);
            return None;
        };
        Some((index, client))
    }

    fn renew(&mut self, name: &str, client: Connection) {
        let Some((index, client)) = self.find(name, client) else { return };
        let certificate = &mut self.certificates[index];
        if let (false, Some(ready_at)) = (certificate.is_in_progress, self.pinned.order_at(&certificate.name)) {
            let when = match ready_at {
                Some(at) => format!("in {} s", at.saturating_sub(unix_s()).max(1)),
                None => "once all name servers of the zone answer with it".to_owned(),
            };
            let name = &certificate.name;
            let text = format!(
                "certificate {name}: its next key has not reached the TLSA records in all caches yet; try again {when}"
            );
            return answer(client, &text, false);
        }
        certificate.waiting.push(client);
        self.order_now(index);
    }

    fn begin_revocation(&mut self, name: &str, is_key_compromised: bool, client: Connection) {
        let Some((index, client)) = self.find(name, client) else { return };
        let certificate = &mut self.certificates[index];
        if let Err(problem) = certificate.begin_revocation(is_key_compromised, &self.orders.state) {
            return answer(client, &format!("certificate {}: {problem}", certificate.name), false);
        }
        certificate.waiting_for_revocation.push(client);
        self.order_now(index);
    }

    /// Requests a certificate now, unless an order is in progress.
    fn order_now(&mut self, index: usize) {
        if !self.certificates[index].is_in_progress {
            self.schedule.remove(&Task::Order(index));
            self.start_order(index, true);
        }
    }

    /// Reports changes to the supervisor; returns the remaining wait if it is too early.
    fn report(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if let Some(wait) = self.next_report_at.checked_duration_since(now).filter(|wait| !wait.is_zero()) {
            return Some(wait);
        }
        let certificates = self.certificates.iter().map(|certificate| {
            let index = certificate.authority_index(self.orders.accounts.count());
            let progress = self.orders.progress.of(&certificate.name);
            certificate.report(&self.orders.accounts.authority(index).name, progress)
        });
        let (certificates, zones) = (certificates.collect(), self.zones.report(self.aliases.reports()));
        let schedule = self.schedule.report(self.zones.tasks().into_iter());
        let report = AgentReport { certificates, zones, schedule };
        // A report takes time even if nothing has changed.
        self.next_report_at = now + REPORT_INTERVAL;
        if self.last_report.as_ref() != Some(&report) {
            if !self.orders.link.report(&report) {
                return Some(REPORT_INTERVAL);
            }
            self.last_report = Some(report);
        }
        None
    }
}

/// Revokes a certificate that has a successor.
async fn revoke(orders: &Orders, authority_index: usize, revocation: &Revocation) -> Result<(), Failure> {
    let certificate = CertificateDer::from(revocation.certificate.as_slice());
    let reason = revocation.is_key_compromised.then_some(RevocationReason::KeyCompromise);
    let account = orders.accounts.get(authority_index, &orders.state).await?;
    match account.revoke(&RevocationRequest { certificate: &certificate, reason }).await {
        Err(Error::Api(problem)) if problem.r#type.as_deref() == Some(ALREADY_REVOKED) => Ok(()),
        result => result.map_err(|error| Failure::of(error, Asked::Revocation)),
    }
}

/// `None` if the authority makes no suggestions.
async fn ask_for_suggestion(
    orders: &Orders,
    authority_index: usize,
    identifier: &CertificateIdentifier<'_>,
) -> Option<Suggestion> {
    let none = Some(Suggestion { window: None, ask_again_s: SUGGESTION_INTERVAL_S });
    let Ok(account) = orders.accounts.get(authority_index, &orders.state).await else { return none };
    match account.renewal_info(identifier).await {
        Ok((info, ask_again)) => {
            let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
            let window = info.suggested_window;
            let window = (seconds(window.start.unix_timestamp()), seconds(window.end.unix_timestamp()));
            let ask_again_s = ask_again.as_secs().clamp(SUGGESTION_INTERVAL_S_MIN, SUGGESTION_INTERVAL_S_MAX);
            Some(Suggestion { window: (window.0 <= window.1).then_some(window), ask_again_s })
        }
        Err(Error::Unsupported(_)) => None,
        Err(_) => none,
    }
}

/// Answers a client, which may have disconnected.
fn answer(mut client: Connection, text: &str, is_success: bool) {
    let text = match is_success {
        true => Event::Stdout(Text::new(&format!("{text}\n"))),
        false => Event::Stderr(Text::new(&format!("sanderling: {text}\n"))),
    };
    let _ = client.send(&Message::Event(text));
    let _ = client.send(&Message::Event(Event::Done { is_success }));
}
