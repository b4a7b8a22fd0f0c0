//! Checks of a zone's keys: before the first key is created, that no DS record of the parent zone belongs to a lost
//! key; and for each keeper, that it has all private keys.

use super::{SigningTask, WAIT_MAX};
use crate::command_answer::CommandAnswer;
use sanderling_config::log::{log, log_error};
use sanderling_dns::Rtype;

/// The result.
#[derive(Default)]
pub(super) struct KeyChecks {
    /// The problem of a private key.
    problem: Option<String>,
    /// The time of the keeper's last check of the keys; `None` if this keeper has not checked.
    looked_at: Option<tokio::time::Instant>,
    /// Whether the operator has allowed new keys, whatever the parent zone has.
    are_new_allowed: bool,
}

impl KeyChecks {
    /// The problem of a private key.
    pub(super) fn problem(&self) -> &Option<String> {
        &self.problem
    }

    /// Another keeper runs.
    pub(super) fn on_new_keeper(&mut self) {
        self.looked_at = None;
    }
}

impl SigningTask {
    /// Makes the keeper check all private keys, once, and again as long as one cannot be used. The signed version stays
    /// in service meanwhile, so that the problem would go unnoticed.
    pub(super) async fn look_for_keys(&mut self) {
        let KeyChecks { problem, looked_at, .. } = &self.key_checks;
        let is_due = looked_at.is_none_or(|at| problem.is_some() && at.elapsed() >= WAIT_MAX);
        // Without a keeper, the next one is asked.
        let Some(Ok(found)) = (if is_due { Some(self.keys.look_for_all().await) } else { None }) else { return };
        match (&found, &self.key_checks.problem) {
            (Some(problem), before) if before.as_ref() != Some(problem) => {
                log_error(&format!("zone {}: a private key cannot be used: {problem}", self.zone.apex));
            }
            (None, Some(_)) => log(&format!("zone {}: all private keys can be used again", self.zone.apex)),
            _ => {}
        }
        (self.key_checks.problem, self.key_checks.looked_at) = (found, Some(tokio::time::Instant::now()));
    }

    /// Takes commands to make new keys, and returns the clients to be told when they are made.
    pub(super) fn allow_new_keys(&mut self) -> Vec<(&'static str, CommandAnswer)> {
        let answers = self.shared.new_keys.take();
        if self.keys.needs_first_key() {
            self.key_checks.are_new_allowed |= !answers.is_empty();
            return answers.into_iter().map(|answer| ("signing with new keys", answer)).collect();
        }
        let apex = &self.zone.apex;
        for answer in answers {
            answer.fail(&format!(
                "sanderling: zone {apex}: it already has keys; `sanderling dnssec rollover {apex}` replaces them"
            ));
        }
        Vec::new()
    }

    /// Whether keys can be made or exist already; not while the parent zone is being asked. A first key would make all
    /// answers bogus if the parent zone had a DS record of another key, as after the loss of the state folder.
    ///
    /// # Errors
    /// Returns the reason why no key may be created, and the remedy.
    pub(super) async fn may_make_first_key(&mut self) -> Result<bool, String> {
        if !self.keys.needs_first_key() || self.key_checks.are_new_allowed {
            self.key_checks.are_new_allowed &= self.keys.needs_first_key();
            return Ok(true);
        }
        let apex = &self.zone.apex;
        if self.context.config.has_no_resolvers && self.zone.signing.parent_servers.is_empty() {
            log(&format!(
                "zone {apex}: creating its first key without checking the parent zone for DS records, because \
                    `resolvers` in [dns] is empty"
            ));
            return Ok(true);
        }
        let ds = match self.observer.ds_before_first_key() {
            None => return Ok(false),
            Some(Ok(ds)) => ds,
            Some(Err(problem)) => {
                return Err(format!(
                    "it has no key, and cannot check whether the parent zone has a DS record of an earlier one, in \
                        which case a new key would make resolvers reject all answers: {problem}; set `resolvers` in \
                        [dns] or `parent_servers`, write resolvers = [] in an isolated network, or, if the parent \
                        zone has no DS record, run `sanderling dnssec new-keys {apex}`"
                ));
            }
        };
        let others: Vec<Vec<u8>> = self.dnskeys_of_others();
        if ds.is_empty() || self.keys.can_follow(&ds, &others).await? {
            return Ok(true);
        }
        let tags: Vec<String> = ds.iter().map(|ds| ds.key_tag.to_string()).collect();
        Err(format!(
            "the parent zone has DS records (key tags {}), and this server lacks their private keys: with a new key, \
                resolvers would reject all answers; restore the state folder from a backup, or have the registrar \
                remove the DS records, and wait for their TTL; `sanderling dnssec new-keys {}` creates a new key \
                anyway",
            tags.join(", "),
            self.zone.apex
        ))
    }

    /// The DNSKEY records in the zone file of a zone that others sign too.
    fn dnskeys_of_others(&self) -> Vec<Vec<u8>> {
        let records = self.unsigned.iter().filter_map(|unsigned| unsigned.records.as_ref());
        let records = records.filter(|_| !self.zone.signing.other_signers.is_empty());
        let dnskeys = records.flat_map(|records| records.iter()).filter(|record| record.rtype == Rtype::DNSKEY);
        dnskeys.map(|record| record.rdata.to_vec()).collect()
    }
}
