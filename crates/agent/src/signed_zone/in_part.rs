//! Signs the changes, and stores them in the log of the signed version.

use super::handle::WaitingUpdates;
use super::{CANNOT_SIGN, NOT_STORED, Restored, Signed, SigningTask, parameters};
use crate::blocking::{DISK, ZONES};
use crate::clock::unix_s;
use crate::keeper_client::KeeperSigner;
use crate::signed_version::SignedFiles;
use sanderling_config::log::log;
use sanderling_config::update_file;
use sanderling_dns::NameBuf;
use sanderling_dns::change_log::{self, ChangeLog};
use sanderling_dns::journal::RecordRole;
use sanderling_dnssec::sign::{ChangeJob, KeysInUse, RecordChanges, due_signatures};
use sanderling_dnssec::{Record, Records, RecordsBuilder, SigningParameters};
use sanderling_ipc::agent::{StoreResult, UpdatesOutcome, UpdatesToStore, updates_from_memfd};
use sanderling_state::StateFolder;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Maximum names whose signatures are renewed in one change.
const RENEWED_NAMES_MAX: usize = 128;

/// Time that an update waits for a zone that is not ready: other updates may wait for this one.
const UPDATE_WAIT_MAX: Duration = Duration::from_secs(2);

/// The reason why an update is not stored.
enum NotStored {
    /// The stored version is unchanged.
    Refused(String),
    /// The version in memory may differ from the stored one.
    WriteFailed(String),
}

/// Changes that were signed and stored.
#[derive(Default)]
struct SignedInPart {
    /// The changes, in log form.
    changes: Vec<u8>,
    made_count: usize,
    kept_count: usize,
    sign_again_at_unix_s: Option<u64>,
}

impl SigningTask {
    /// Signs and stores the dynamic updates that wait, and tells the server process, which gets the version next. While
    /// the zone is not ready, they wait for the next attempt: the keeper may not be connected yet.
    pub(super) async fn sign_updates(&mut self) {
        for waiting in self.shared.updates.take() {
            let not_ready = self.why_not_ready();
            if not_ready.is_some() && waiting.since.elapsed() < UPDATE_WAIT_MAX {
                self.shared.updates.borrow_mut().push(waiting);
                continue;
            }
            let WaitingUpdates { updates: UpdatesToStore { zone, id, .. }, change, .. } = waiting;
            let stored = match (not_ready, change.map(updates_from_memfd)) {
                (Some(reason), _) => Err(NotStored::Refused(reason)),
                (None, Some(Ok(change))) => self.sign_update(&change).await,
                (None, Some(Err(error))) => Err(NotStored::Refused(error.to_string())),
                (None, None) => Err(NotStored::Refused("the command has no content".to_owned())),
            };
            let result = stored.unwrap_or_else(|problem| {
                let (NotStored::Refused(text) | NotStored::WriteFailed(text)) = &problem;
                self.update_errors
                    .error(zone.as_str(), &format!("zone {zone}: a dynamic update gets SERVFAIL: {text}"));
                if let NotStored::WriteFailed(text) = problem {
                    self.restored = Restored::Keys;
                    self.problem = Some(NOT_STORED.to_owned() + &text);
                    self.retry.on_failure();
                }
                StoreResult::Failed
            });
            let serial = self.signed.as_ref().map(|signed| signed.stored.serial);
            self.context.link.updates_stored(UpdatesOutcome { zone, id, result, serial });
        }
    }

    /// Time until an update has waited for long enough.
    pub(super) fn time_of_updates(&self) -> Option<Duration> {
        let updates = self.shared.updates.borrow();
        updates.iter().map(|waiting| UPDATE_WAIT_MAX.saturating_sub(waiting.since.elapsed())).min()
    }

    /// The reason why no update can be signed now.
    fn why_not_ready(&self) -> Option<String> {
        let is_signed = self.signed.as_ref().is_some_and(|it| it.stored.has_log() && it.signed_at_unix_s.is_some());
        let has_updates = self.unsigned.as_ref().is_some_and(|unsigned| unsigned.updates.is_some());
        let is_current = self.restored == Restored::All && !self.keys.has_changed() && !self.is_outdated;
        if is_signed && has_updates && is_current {
            return None;
        }
        Some(match (&self.problem, &self.file_problem) {
            (Some(problem), _) => format!("the zone cannot be signed: {problem}"),
            (None, Some(problem)) => format!("its zone file was refused: {problem}"),
            (None, None) => "the current version is not signed yet".to_owned(),
        })
    }

    /// Signs a change of the unsigned records, in the form of a log, and stores it: first the difference from the zone
    /// file, then the signed version.
    ///
    /// # Errors
    /// Returns the reason why the update is not stored.
    async fn sign_update(&mut self, change: &[u8]) -> Result<StoreResult, NotStored> {
        let not_ready = || NotStored::Refused("the current version is not signed yet".to_owned());
        let mut updates = self.unsigned.as_ref().and_then(|unsigned| unsigned.updates.clone()).ok_or_else(not_ready)?;
        let mut signed = self.signed.take().ok_or_else(not_ready)?;
        let content = [&change_log::HEAD[..], change].concat();
        let read = ChangeLog::read(&content, self.apex.as_name(), signed.stored.serial);
        if read.changes.is_empty() {
            // The server process has not received the last version yet.
            self.signed = Some(signed);
            return Ok(StoreResult::Outdated);
        }
        let (mut removed, mut added) = (RecordsBuilder::default(), RecordsBuilder::default());
        for change in &read.changes {
            change.each_record(|role, record| {
                let sanderling_dns::zonefile::Record { owner, rtype, ttl_s, rdata, .. } = *record;
                if owner == self.apex.as_name() && self.keys.keys().has_made(owner, rtype, rdata) {
                    return;
                }
                updates.difference.add(role, record);
                let out = if role == RecordRole::Removed { &mut removed } else { &mut added };
                out.push(Record { owner, rtype, ttl_s, rdata });
            });
        }
        if updates.difference.encoded_bytes() > self.context.config.limits.zone_updates_bytes_max {
            self.signed = Some(signed);
            let problem = "dynamic updates would exceed `zone_updates_max`";
            return Err(NotStored::Refused(problem.to_owned()));
        }
        let content = updates.encode(self.apex.as_name());
        updates.stored = content.last_chunk().copied();
        let changes = RecordChanges { removed: removed.finish(), added: added.finish() };
        let keys = self.keys.in_use();
        let (zone, files) = (self.zone.clone(), self.files());
        let (keeper, state) = (Arc::clone(&self.context.keeper), Arc::clone(&self.context.state));
        let sign = move || {
            let parameters = parameters(&zone.signing);
            let signer = KeeperSigner { keeper: &keeper, zone: &zone.apex };
            let mut signing = PartSigning { signer, files, state: &state, keys: &keys, parameters: &parameters };
            let file = update_file(&zone.apex).display().to_string();
            let mut done =
                SignedInPart { sign_again_at_unix_s: signed.sign_again_at_unix_s, ..SignedInPart::default() };
            let store = || state.write(&file, &content).map_err(|error| error.to_string());
            let result = signing.sign_change(&mut signed, &changes, &[], store, &mut done);
            signed.sign_again_at_unix_s = done.sign_again_at_unix_s;
            (signed, result.map(|is_in_part| (is_in_part, done, content)))
        };
        let (signed, result) = ZONES.run(sign).await;
        let (serial, ttls) = (signed.stored.serial, signed.ttls);
        self.signed = Some(signed);
        match result {
            Ok((true, mut done, _)) => {
                if let Some(unsigned) = &mut self.unsigned {
                    (unsigned.records, unsigned.updates) = (None, Some(updates));
                }
                self.changes.append(&mut done.changes);
                self.hand_over_again();
                if let Err(problem) = self.keys.on_signed(serial, ttls).await {
                    self.fail("the state of its keys is not stored", problem, None);
                }
                Ok(StoreResult::Stored)
            }
            Ok((false, _, content)) => {
                // All of the zone is signed, from the file with this update.
                let (state, file) =
                    (Arc::clone(&self.context.state), update_file(&self.zone.apex).display().to_string());
                let write = move || state.write(&file, &content).map_err(|error| error.to_string());
                DISK.run(write).await.map_err(NotStored::WriteFailed)?;
                self.unsigned = None;
                self.read_if_needed(None).await;
                self.is_outdated = true;
                if let Err(problem) = self.sign_if_needed().await {
                    self.fail(CANNOT_SIGN, problem.clone(), None);
                    return Err(NotStored::Refused(problem));
                }
                Ok(StoreResult::Stored)
            }
            Err(problem) => Err(problem),
        }
    }

    /// Signs changed records and renews signatures that expire soon, and stores the result; whether this was possible.
    /// All signatures are checked after a change of keys, after startup, and if the clock was ahead.
    pub(super) async fn sign_in_part(&mut self, unsigned: Arc<Records>) -> Result<bool, String> {
        let has_changed = self.keys.has_changed() || self.is_behind();
        let is_known = |signed: &mut Signed| {
            !has_changed && signed.stored.has_log() && signed.signed_at_unix_s.is_some_and(|at| at <= unix_s())
        };
        let Some(mut signed) = self.signed.take_if(is_known) else { return Ok(false) };
        let keys = self.keys.in_use();
        let (context, zone, files) = (Rc::clone(&self.context), self.zone.clone(), self.files());
        let (keeper, state) = (Arc::clone(&context.keeper), Arc::clone(&context.state));
        let before = signed.stored.serial;
        let sign = move || {
            let parameters = parameters(&zone.signing);
            let signer = KeeperSigner { keeper: &keeper, zone: &zone.apex };
            let mut signing = PartSigning { signer, files, state: &state, keys: &keys, parameters: &parameters };
            let result = signing.sign(&mut signed, &unsigned);
            (signed, result)
        };
        let (signed, result) = ZONES.run(sign).await;
        let (serial, ttls) = (signed.stored.serial, signed.ttls);
        self.signed = Some(signed);
        let SignedInPart { mut changes, made_count, kept_count, .. } = match result {
            Ok(Some(in_part)) => in_part,
            Ok(None) => return Ok(false),
            Err(NotStored::WriteFailed(problem)) => {
                self.restored = Restored::Keys;
                return Err(problem);
            }
            Err(NotStored::Refused(problem)) => {
                // Some changes may be stored already.
                if before != serial {
                    self.changes.clear();
                    self.hand_over_again();
                }
                return Err(problem);
            }
        };
        self.is_outdated = false;
        if before == serial {
            return Ok(true);
        }
        log(&format!(
            "zone {}: serial {before} -> {serial} signed incrementally, {made_count} new signatures, {kept_count} kept",
            self.zone.apex
        ));
        self.changes.append(&mut changes);
        self.hand_over_again();
        self.keys.on_signed(serial, ttls).await?;
        Ok(true)
    }
}

/// Signs changes of a zone, and stores each.
struct PartSigning<'p> {
    signer: KeeperSigner<'p>,
    files: SignedFiles,
    state: &'p StateFolder,
    keys: &'p KeysInUse,
    parameters: &'p SigningParameters,
}

impl PartSigning<'_> {
    /// Signs the changes up to `unsigned`, and renews signatures that expire soon; `None` if the whole zone must be
    /// signed.
    fn sign(&mut self, signed: &mut Signed, unsigned: &Records) -> Result<Option<SignedInPart>, NotStored> {
        let (apex, policy) = (self.files.apex(), self.parameters.serial_policy);
        let mut done = SignedInPart { sign_again_at_unix_s: signed.sign_again_at_unix_s, ..SignedInPart::default() };
        let changes = RecordChanges::between(&signed.stored.version, unsigned, apex.as_name(), policy, self.keys);
        let Some(changes) = changes else { return Ok(None) };
        if !changes.is_empty() && !self.sign_change(signed, &changes, &[], || Ok(()), &mut done)? {
            return Ok(None);
        }
        if signed.sign_again_at_unix_s.is_none_or(|at| at <= unix_s()) {
            let due = due_signatures(&signed.stored.version, self.parameters, unix_s());
            done.sign_again_at_unix_s = due.sign_again_at_unix_s;
            for names in due.names.chunks(RENEWED_NAMES_MAX) {
                if !self.sign_change(signed, &RecordChanges::default(), names, || Ok(()), &mut done)? {
                    return Ok(None);
                }
            }
        }
        signed.sign_again_at_unix_s = done.sign_again_at_unix_s;
        Ok(Some(done))
    }

    /// Signs a change, calls `store_before`, and stores the change; returns whether incremental signing was possible.
    fn sign_change(
        &mut self,
        signed: &mut Signed,
        changes: &RecordChanges,
        renewed: &[NameBuf],
        store_before: impl FnOnce() -> Result<(), String>,
        done: &mut SignedInPart,
    ) -> Result<bool, NotStored> {
        let (apex, keys, parameters) = (self.files.apex(), self.keys, self.parameters);
        let job = ChangeJob { apex: apex.as_name(), changes, renewed, keys, parameters, now_unix_s: unix_s() };
        let change = sanderling_dnssec::sign_change(&mut signed.stored.version, &job, &mut self.signer);
        let Some(change) = change.map_err(|error| NotStored::Refused(error.to_string()))? else { return Ok(false) };
        // From here on `signed` is later than the stored version.
        let mut append = || self.files.append(self.state, &mut signed.stored, &change);
        let mut changes = store_before().and_then(|()| append()).map_err(NotStored::WriteFailed)?;
        done.changes.append(&mut changes);
        done.made_count += change.made_count;
        done.kept_count += change.kept_count;
        signed.ttls.longest_s = signed.ttls.longest_s.max(change.longest_ttl_s);
        let times = [done.sign_again_at_unix_s, change.sign_again_at_unix_s];
        done.sign_again_at_unix_s = times.into_iter().flatten().min();
        Ok(true)
    }
}
