//! An order, from its request to the stored certificate (RFC 8555 §7.1.6). The order is in the state folder with its
//! key as soon as the authority knows it, so that another agent can continue it.

use crate::accounts::Accounts;
use crate::caa::{self, Issuance};
use crate::failure::{Asked, Failure, Kind, OrderedNames};
use crate::json_files::read_json;
use crate::link::{Link, Published};
use crate::name_servers::{Answer, Expectation, NameServers, Unanswered};
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeStatus, ChallengeType, Error, Identifier, NewOrder,
    Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use sanderling_config::log::{log_error, log_warning};
use sanderling_config::{Config, DomainName, NameValidation, ValidationMethod, zone_of};
use sanderling_dns::Rtype;
use sanderling_ipc::agent::Challenge;
use sanderling_state::{CERTIFICATES, KEY_FILE, StateFolder};
use sanderling_tls::Certificate;
use sanderling_zone_files::wire_name;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Retries of an order after expired nonces, in addition to the attempts of the library with each.
const NONCE_FAILURES_MAX: u32 = 20;
const NONCE_FAILURE_PAUSE: Duration = Duration::from_millis(100);
/// Time for an order, without the wait for other name servers.
const ORDER_TIMEOUT: Duration = Duration::from_secs(600);
/// The checks of an order until it is given up for now. Pauses that the authority asks for have precedence (RFC 8555
/// §7.4).
const POLLS: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(100)).backoff(1.2).timeout(Duration::from_secs(300));

/// The remedy for an order that another name server delays.
const LAG_REMEDY: &str = "delegate this name to this server alone, or wait until the other server is up to date";

/// The shared state of all orders.
pub(crate) struct Orders {
    pub(crate) state: Arc<StateFolder>,
    pub(crate) link: Rc<Link>,
    pub(crate) accounts: Accounts,
    pub(crate) name_servers: NameServers,
    pub(crate) config: Rc<Config>,
    pub(crate) progress: Progress,
}

/// The orders' progress, for the operator.
#[derive(Default)]
pub(crate) struct Progress {
    by_name: RefCell<HashMap<String, &'static str>>,
    changed: Notify,
}

impl Progress {
    /// The order of the certificate `name` waits until this is so.
    fn set(&self, name: &str, waits_until: &'static str) {
        self.by_name.borrow_mut().insert(name.to_owned(), waits_until);
        self.changed.notify_one();
    }

    pub(crate) fn of(&self, name: &str) -> Option<&'static str> {
        self.by_name.borrow().get(name).copied()
    }

    /// Returns when something has changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// The order.
pub(crate) struct OrderRequest {
    pub(crate) name: String,
    pub(crate) names: Vec<String>,
    pub(crate) authority_index: usize,
    /// The private key as PEM, if the certificate must have this one.
    pub(crate) key: Option<String>,
    /// The replaced certificate (RFC 9773 §5).
    pub(crate) replaces: Option<CertificateIdentifier<'static>>,
    /// The names that are validated over HTTP although they are in zones of this server: validation over DNS has
    /// failed.
    pub(crate) over_http: Vec<String>,
}

impl OrderRequest {
    fn ordered(&self) -> OrderedNames<'_> {
        OrderedNames { domain: &self.name, names: &self.names }
    }

    /// The order as the ACME library reports it.
    fn failure(&self, error: Error) -> Failure {
        Failure::of(error, Asked::Order(self.ordered()))
    }

    /// How an authority validates `name`.
    fn method(&self, config: &Config, name: &str) -> Result<ChallengeType, Failure> {
        let prefers_http = self.over_http.iter().any(|other| other == name);
        match NameValidation::new(config).of(name, prefers_http) {
            Ok(ValidationMethod::Dns) => Ok(ChallengeType::Dns01),
            Ok(ValidationMethod::Http) => Ok(ChallengeType::Http01),
            Err(problem) => {
                let failure = Failure::new(Kind::Refused, problem.message, problem.remedy);
                Err(Failure::of_names(vec![(name.to_owned(), failure)]))
            }
        }
    }

    /// Whether all names meet the authority's requirements.
    fn check_names(&self, failed: Vec<(String, Failure)>) -> Result<(), Failure> {
        if failed.is_empty() { Ok(()) } else { Err(Failure::of_names(failed)) }
    }

    /// The name that an authority calls `identifier`. Only names that were ordered get records in zones.
    fn ordered_name(&self, identifier: &str) -> Result<&str, Failure> {
        let name = self.names.iter().find(|name| name.eq_ignore_ascii_case(identifier));
        name.map(String::as_str).ok_or_else(|| {
            let cause = format!("the authority wants to validate {identifier:?}, which was not ordered");
            Failure::new(Kind::Refused, cause, "")
        })
    }
}

/// An order in the state folder.
#[derive(Serialize, Deserialize)]
struct SavedOrder {
    directory: String,
    /// Empty until the authority has sent the URL.
    url: String,
    names: Vec<String>,
    /// The certificate's private key, in PEM.
    key: String,
}

impl SavedOrder {
    /// Whether the order matches the request, and the authority knows it.
    fn is_for(&self, request: &OrderRequest, directory: &str) -> bool {
        let has_key = request.key.as_ref().map_or(KeyPair::from_pem(&self.key).is_ok(), |key| *key == self.key);
        self.directory == directory && self.names == request.names && has_key && !self.url.is_empty()
    }
}

impl Orders {
    /// Has a certificate issued, and stores it.
    pub(crate) async fn issue(&self, request: &OrderRequest) -> Result<(), Failure> {
        let (mut nonce_failure_count, mut has_new_account) = (0, false);
        let time_max = ORDER_TIMEOUT + Duration::from_millis(self.config.limits.name_servers_timeout_ms);
        loop {
            let failure = match tokio::time::timeout(time_max, self.try_issue(request)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    let cause = format!("the order took more than {} s", time_max.as_secs());
                    Failure::new(Kind::Processing, cause, "the server will retry")
                }
            };
            match failure.kind {
                Kind::Again if nonce_failure_count < NONCE_FAILURES_MAX => {
                    nonce_failure_count += 1;
                    tokio::time::sleep(NONCE_FAILURE_PAUSE).await;
                }
                Kind::Gone | Kind::AccountRefused if !has_new_account => {
                    let problem = match failure.kind {
                        Kind::Gone => Some("the authority no longer knows it".to_owned()),
                        _ => self.accounts.problem(request.authority_index, &self.state).await,
                    };
                    self.state.remove(&order_file(&request.name))?;
                    let Some(problem) = problem else { return Err(failure) };
                    has_new_account = true;
                    let authority = &self.accounts.authority(request.authority_index).name;
                    log_warning(&format!(
                        "the account at {authority} can no longer be used: {problem}; registering a new account with \
                         a new key"
                    ));
                    self.accounts.forget(request.authority_index, &self.state).await?;
                }
                Kind::Unreachable => {
                    self.accounts.reconnect(request.authority_index).await;
                    return Err(failure);
                }
                // The order is finished: the next attempt needs a new order.
                Kind::Refused => {
                    self.state.remove(&order_file(&request.name))?;
                    return Err(failure);
                }
                Kind::Processing
                | Kind::RateLimited
                | Kind::NotReady
                | Kind::State
                | Kind::Again
                | Kind::Gone
                | Kind::AccountRefused => return Err(failure),
            }
        }
    }

    async fn try_issue(&self, request: &OrderRequest) -> Result<(), Failure> {
        self.progress.set(&request.name, "the authority has accepted it");
        let account = self.accounts.get(request.authority_index, &self.state).await?;
        self.check_profile(request, &account).await?;
        self.check_delegations(request).await?;
        // CAA records may name the account.
        self.check_caa(request).await?;
        let (mut order, saved) = self.resume_or_begin(request, &account).await?;
        if order.state().status == OrderStatus::Pending {
            let published = self.publish_challenges(request, &mut order).await?;
            self.progress.set(&request.name, "the authority has validated the names");
            let polled = order.poll_ready(&POLLS).await;
            self.check_polled(request, &mut order, polled).await?;
            drop(published);
        }
        let key = KeyPair::from_pem(&saved.key)
            .map_err(|error| Failure::new(Kind::State, format!("the next key cannot be used: {error}"), ""))?;
        if order.state().status == OrderStatus::Ready {
            self.progress.set(&request.name, "the authority has issued the certificate");
            let csr = signing_request(&request.names, &key)?;
            order.finalize_csr(&csr).await.map_err(|error| request.failure(error))?;
        }
        let polled = order.poll_certificate(&POLLS).await;
        let chain = self.check_polled(request, &mut order, polled).await?;
        check_issued(&chain, &saved.key, &request.names)?;
        self.state.store_certificate(&request.name, chain.as_bytes(), saved.key.as_bytes())?;
        self.link.certificate_stored(&request.name);
        Ok(())
    }

    /// The directory of the authority whose order is in the state folder although its certificate is stored: the agent
    /// was killed in between.
    pub(crate) fn stored_by(&self, name: &str) -> Option<String> {
        let saved = self.saved_order(name)?;
        let key = self.state.read(&format!("{CERTIFICATES}/{name}/{KEY_FILE}")).ok().flatten()?;
        (key == saved.key.as_bytes()).then_some(saved.directory)
    }

    /// Records that an order's certificate is stored, with all consequences.
    pub(crate) fn finish(&self, name: &str) {
        if let Err(error) = self.state.remove(&order_file(name)) {
            log_error(&format!("certificate {name}: {error}"));
        }
    }

    fn saved_order(&self, name: &str) -> Option<SavedOrder> {
        read_json(&self.state, &order_file(name)).unwrap_or_else(|problem| {
            log_warning(&format!("certificate {name}: {problem}; abandoning the order"));
            None
        })
    }

    /// Whether the authority has the profile.
    async fn check_profile(&self, request: &OrderRequest, account: &Account) -> Result<(), Failure> {
        let Some(profile) = &self.accounts.authority(request.authority_index).profile else { return Ok(()) };
        let mut offered: Vec<&str> = account.profiles().map(|offered| offered.name).collect();
        if offered.contains(&profile.as_str()) {
            return Ok(());
        }
        offered.sort_unstable();
        let (offered, remedy) = match offered.is_empty() {
            true => ("none".to_owned(), "remove `profile` of this authority in [certificates], and reload"),
            false => (offered.join(", "), "correct `profile` of this authority in [certificates], and reload"),
        };
        // The authority may have other addresses later.
        self.accounts.reconnect(request.authority_index).await;
        let cause = format!("the authority has no profile \"{profile}\"; it offers {offered}");
        Err(Failure::new(Kind::Refused, cause, remedy))
    }

    /// Whether the authority looks for records of the names in this server's zones. The authority looks elsewhere for
    /// names that are delegated.
    async fn check_delegations(&self, request: &OrderRequest) -> Result<(), Failure> {
        let mut failed = Vec::new();
        for name in &request.names {
            let is_by_record = match request.method(&self.config, name) {
                Ok(method) => method == ChallengeType::Dns01,
                Err(failure) => {
                    failed.extend(failure.of_names);
                    continue;
                }
            };
            let Some(apex) = zone_of(name, self.zones()).filter(|_| is_by_record) else { continue };
            let Ok(owner) = DomainName::parse(name.strip_prefix("*.").unwrap_or(name)) else { continue };
            let (owner, apex_name) = (wire_name(&owner), wire_name(apex));
            let answer = self.name_servers.ask_self(owner.as_name(), Rtype::TXT, apex_name.as_name()).await;
            if matches!(answer, Ok(Answer::Referral)) {
                let cause = format!(
                    "the zone {apex} delegates {name} to other name servers, so this server cannot validate it"
                );
                let remedy = "add a domain with the delegated zone here, or remove the name or the delegation";
                failed.push((name.clone(), Failure::new(Kind::NotReady, cause, remedy)));
            }
        }
        request.check_names(failed)
    }

    /// Whether the zones of this server let the authority issue.
    async fn check_caa(&self, request: &OrderRequest) -> Result<(), Failure> {
        let authority = self.accounts.authority(request.authority_index);
        let Some(caa) = &authority.caa else { return Ok(()) };
        let account = self.accounts.url(request.authority_index, &self.state);
        let mut failed = Vec::new();
        for name in &request.names {
            let Some(apex) = zone_of(name, self.zones()) else { continue };
            let method = match request.method(&self.config, name)? {
                ChallengeType::Http01 => "http-01",
                _ => "dns-01",
            };
            let issuance = Issuance { authority: caa, account: account.as_deref(), method };
            if let Some((problem, remedy)) = caa::problem(&self.name_servers, name, apex, issuance).await {
                let cause = format!("{} may not issue: {problem}", authority.name);
                failed.push((name.clone(), Failure::new(Kind::NotReady, cause, remedy)));
            }
        }
        request.check_names(failed)
    }

    /// The order in the state folder if it has the same names, or a new one.
    async fn resume_or_begin(&self, request: &OrderRequest, account: &Account) -> Result<(Order, SavedOrder), Failure> {
        let (file, directory) =
            (order_file(&request.name), &self.accounts.authority(request.authority_index).directory);
        if let Some(saved) = self.saved_order(&request.name).filter(|saved| saved.is_for(request, directory)) {
            match account.order(saved.url.clone()).await.map_err(|error| request.failure(error)) {
                Ok(mut order) => {
                    if order.state().status != OrderStatus::Invalid {
                        return Ok((order, saved));
                    }
                }
                // The order has expired, the authority has forgotten it, or it belongs to another account.
                Err(failure) if matches!(failure.kind, Kind::Refused | Kind::AccountRefused) => {}
                Err(failure) => return Err(failure),
            }
        }
        let identifiers: Vec<Identifier> = request.names.iter().map(|name| Identifier::Dns(name.clone())).collect();
        let new = || {
            let new = NewOrder::new(&identifiers);
            match &self.accounts.authority(request.authority_index).profile {
                Some(profile) => new.profile(profile),
                None => new,
            }
        };
        let new_key = || KeyPair::generate().map(|key| key.serialize_pem());
        let key = request.key.clone().map_or_else(new_key, Ok);
        let key =
            key.map_err(|error| Failure::new(Kind::State, format!("cannot generate a private key: {error}"), ""))?;
        let mut saved =
            SavedOrder { directory: directory.clone(), url: String::new(), names: request.names.clone(), key };
        let write =
            |saved: &SavedOrder| self.state.write(&file, &serde_json::to_vec(saved).expect("an order has no map"));
        // If the state folder is not writable, no order is requested, since it would be lost.
        write(&saved)?;
        let order = match request.replaces.clone() {
            None => account.new_order(&new()).await.map_err(|error| request.failure(error))?,
            Some(replaces) => {
                let order = account.new_order(&new().replaces(replaces)).await.map_err(|error| request.failure(error));
                match order {
                    // RFC 9773 §5: the certificate was already replaced, or the authority does not know it, or not for
                    // this account.
                    Err(failure)
                        if matches!(failure.kind, Kind::Refused | Kind::AccountRefused)
                            && failure.of_names.is_empty() =>
                    {
                        log_warning(&format!(
                            "certificate {}: {failure}; ordering a new certificate instead",
                            request.name
                        ));
                        account.new_order(&new()).await.map_err(|error| request.failure(error))?
                    }
                    order => order?,
                }
            }
        };
        order.url().clone_into(&mut saved.url);
        write(&saved)?;
        Ok((order, saved))
    }

    /// Makes the server answer the challenges, and asks the authority to validate.
    async fn publish_challenges(&self, request: &OrderRequest, order: &mut Order) -> Result<Published<'_>, Failure> {
        if order.state().authorizations.len() > request.names.len() {
            let cause = "the authority wants to validate more names than were ordered";
            return Err(Failure::new(Kind::Refused, cause, ""));
        }
        let mut challenges = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(|error| request.failure(error))?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let name = request.ordered_name(&authorization.identifier().to_string())?;
            let method = request.method(&self.config, name)?;
            let Some(challenge) = authorization.challenge(method.clone()) else {
                let cause = format!("the authority offers no supported validation method for {name}");
                let failure = Failure::new(Kind::Refused, cause, "serve the zone of the name here");
                return Err(Failure::of_names(vec![(name.to_owned(), failure)]));
            };
            let key = challenge.key_authorization();
            challenges.push(match method {
                ChallengeType::Dns01 => Challenge::Dns { name: challenge_owner(name), text: key.dns_value() },
                _ => Challenge::Http { token: challenge.token.clone(), content: key.as_str().to_owned() },
            });
        }
        let expectations = self.expectations(&challenges);
        self.progress.set(&request.name, "the server answers the challenges");
        let published = self.link.publish(challenges).await.ok_or_else(|| {
            Failure::new(Kind::Unreachable, "no server process can answer the authority", "see `sanderling status`")
        })?;
        self.progress.set(&request.name, "all name servers of the zone answer the challenges");
        let time_max = Duration::from_millis(self.config.limits.name_servers_timeout_ms);
        let Unanswered { lags, not_found } = self.name_servers.wait_until_answered(&expectations, time_max).await;
        not_found.iter().for_each(|problem| log_warning(&format!("{problem}; continuing without it")));
        let of_name = |name: &String| {
            let owner = challenge_owner(name);
            let lags = lags.iter().filter(|lag| lag.name() == owner).map(ToString::to_string).collect::<Vec<_>>();
            (!lags.is_empty()).then(|| (name.clone(), Failure::new(Kind::NotReady, lags.join("; "), LAG_REMEDY)))
        };
        request.check_names(request.names.iter().filter_map(of_name).collect())?;
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(|error| request.failure(error))?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let name = request.ordered_name(&authorization.identifier().to_string())?;
            let method = request.method(&self.config, name)?;
            if let Some(mut challenge) = authorization.challenge(method)
                && challenge.status == ChallengeStatus::Pending
            {
                let asked = Asked::Validation(request.ordered(), name);
                challenge.set_ready().await.map_err(|error| Failure::of(error, asked))?;
            }
        }
        Ok(published)
    }

    /// The records that all name servers of the zones must answer, because the authority can query any of them.
    fn expectations(&self, challenges: &[Challenge]) -> Vec<Expectation> {
        let expectation = |challenge: &Challenge| {
            let Challenge::Dns { name, text } = challenge else { return None };
            let apex = zone_of(name, self.zones())?.clone();
            let rdata = [&[text.len() as u8], text.as_bytes()].concat();
            Some(Expectation {
                apex,
                name: DomainName::parse(name).ok()?,
                rtype: Rtype::TXT,
                is_met: Rc::new(move |records| records.contains(&rdata)),
            })
        };
        challenges.iter().filter_map(expectation).collect()
    }

    /// This server's zones.
    fn zones(&self) -> impl Iterator<Item = &DomainName> {
        self.config.zones.iter().map(|zone| &zone.apex)
    }

    /// The result of polling an order, unless the authority has cancelled it.
    async fn check_polled<T>(
        &self,
        request: &OrderRequest,
        order: &mut Order,
        polled: Result<T, Error>,
    ) -> Result<T, Failure> {
        match order.state().status {
            OrderStatus::Invalid => Err(self.cause_of_invalid(request, order).await),
            _ => polled.map_err(|error| request.failure(error)),
        }
    }

    /// The reason why the authority cancelled the order: the names that it could not validate, or the order's own
    /// error.
    async fn cause_of_invalid(&self, request: &OrderRequest, order: &mut Order) -> Failure {
        let asked = Asked::Order(request.ordered());
        let of_order = order.state().error.as_ref().map(|problem| Failure::of_problem(problem, asked));
        let (mut failed, mut authorizations) = (Vec::new(), order.authorizations());
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            let Ok(name) = request.ordered_name(&authorization.identifier().to_string()) else { continue };
            let Ok(state) = authorization.refresh().await else { continue };
            if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
                let asked = Asked::Validation(request.ordered(), name);
                failed.extend(Failure::of_problem(problem, asked).of_names);
            }
        }
        if !failed.is_empty() {
            return Failure::of_names(failed);
        }
        of_order.unwrap_or_else(|| Failure::new(Kind::Refused, "the authority cancelled the order", ""))
    }
}

/// The name of the record that validates `name`, which may be a wildcard (RFC 8555 §8.4).
fn challenge_owner(name: &str) -> String {
    format!("_acme-challenge.{}", name.strip_prefix("*.").unwrap_or(name))
}

fn order_file(name: &str) -> String {
    format!("orders/{name}.json")
}

/// The request for a certificate, signed with its key (RFC 2986).
fn signing_request(names: &[String], key: &KeyPair) -> Result<Vec<u8>, Failure> {
    let failed = |error: rcgen::Error| Failure::new(Kind::Refused, format!("cannot make the request: {error}"), "");
    let mut parameters = CertificateParams::new(names.to_vec()).map_err(failed)?;
    parameters.distinguished_name = DistinguishedName::new();
    Ok(parameters.serialize_request(key).map_err(failed)?.der().to_vec())
}

/// Whether the issued certificate matches the order.
fn check_issued(chain: &str, key: &str, names: &[String]) -> Result<(), Failure> {
    let unusable =
        |cause: String| Failure::new(Kind::Refused, format!("the authority issued a certificate that {cause}"), "");
    let certificate = Certificate::from_pem(chain.as_bytes(), key.as_bytes())
        .map_err(|error| unusable(format!("cannot be used: {error}")))?;
    match names.iter().find(|name| !certificate.is_valid_for_host(name.as_bytes())) {
        Some(name) => Err(unusable(format!("is not for {name}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_were_ordered_are_validated() {
        let request = OrderRequest {
            name: "example.com".to_owned(),
            names: vec!["example.com".to_owned(), "*.example.com".to_owned()],
            authority_index: 0,
            key: None,
            replaces: None,
            over_http: Vec::new(),
        };
        let name = |identifier| request.ordered_name(identifier).map_err(|failure| failure.to_string());
        assert_eq!(name("*.EXAMPLE.com"), Ok("*.example.com"));
        let expected = "the authority wants to validate \"example.com. 5 IN NS x. ;\", which was not ordered";
        assert_eq!(name("example.com. 5 IN NS x. ;"), Err(expected.to_owned()));
    }
}
