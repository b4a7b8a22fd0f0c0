//! The accounts at certificate authorities, each with its key in the state folder.

use crate::failure::{Asked, Failure, Kind};
use crate::https_client::HttpsClient;
use crate::json_files::read_json;
use instant_acme::{Account, AccountCredentials, Error, ExternalAccountKey, NewAccount};
use sanderling_config::diagnostic::{Diagnostic, Problem};
use sanderling_config::{Acme, Authority, Config, ExternalAccount};
use sanderling_state::StateFolder;
use serde::Deserialize;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// The configuration's authorities.
pub(crate) struct Accounts {
    contacts: Vec<String>,
    entries: Vec<Entry>,
}

struct Entry {
    authority: Authority,
    client: Result<HttpsClient, String>,
    /// The account of the operator there, or why it cannot be used.
    external: Option<Result<ExternalAccountKey, String>>,
    /// Locked during registration, so that only one account is registered.
    registration: Mutex<Registration>,
}

/// An account's state.
#[derive(Default)]
struct Registration {
    account: Option<Account>,
    /// The account's credentials, while they cannot be stored: the account is not registered again.
    unstored: Option<Vec<u8>>,
    /// The last failure and its time: orders that have waited for the registration get the same failure.
    failure: Option<(Instant, Failure)>,
}

impl Registration {
    fn store(&mut self, file: &str, state: &StateFolder) -> Result<(), Failure> {
        if let Some(credentials) = &self.unstored {
            state.write(file, credentials)?;
            self.unstored = None;
        }
        Ok(())
    }
}

/// The remedy if the system has no roots: the agent reads them before it enters its sandbox.
const NO_ROOTS_REMEDY: &str = "install the package ca-certificates, and restart the server";

/// The problem that this system has no roots, although `config` requests certificates from an authority that needs
/// them.
pub fn roots_problem(config: &Config) -> Option<Diagnostic> {
    let acme = config.acme.as_ref().filter(|_| config.requests_certificates())?;
    let authority = acme.authorities.iter().find(|authority| authority.root.is_none())?;
    let error = HttpsClient::new(None, Duration::ZERO).err()?;
    Some(Diagnostic::warning(authority.location.clone(), Problem::new(error.to_string(), NO_ROOTS_REMEDY)))
}

impl Accounts {
    /// Reads the roots and the keys of external accounts: call this before the sandbox. Without `acme`, there are no
    /// authorities.
    pub(crate) fn new(acme: Option<&Acme>, timeout: Duration) -> Accounts {
        let Some(acme) = acme else { return Accounts { contacts: Vec::new(), entries: Vec::new() } };
        let entry = |authority: &Authority| Entry {
            authority: authority.clone(),
            client: HttpsClient::new(authority.root.as_deref(), timeout).map_err(|error| error.to_string()),
            external: authority.external_account.as_ref().map(external_account_key),
            registration: Mutex::default(),
        };
        Accounts { contacts: acme.contacts.clone(), entries: acme.authorities.iter().map(entry).collect() }
    }

    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn authority(&self, index: usize) -> &Authority {
        &self.entries[index].authority
    }

    /// The authority with this directory.
    pub(crate) fn index_of(&self, directory: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.authority.directory == directory)
    }

    /// The account at an authority, which is registered if necessary.
    pub(crate) async fn get(&self, index: usize, state: &StateFolder) -> Result<Account, Failure> {
        let entry = &self.entries[index];
        let asked_at = Instant::now();
        let mut registration = entry.registration.lock().await;
        registration.store(&entry.file(), state)?;
        if let Some(account) = &registration.account {
            return Ok(account.clone());
        }
        if let Some((at, failure)) = &registration.failure
            && *at > asked_at
        {
            return Err(failure.clone());
        }
        let result = self.connect(entry, &mut registration, state).await;
        registration.failure = result.as_ref().err().map(|failure| (Instant::now(), failure.clone()));
        result
    }

    /// Reads the account from the state folder, or registers it.
    async fn connect(
        &self,
        entry: &Entry,
        registration: &mut Registration,
        state: &StateFolder,
    ) -> Result<Account, Failure> {
        let client = entry.client.clone().map_err(|error| {
            let remedy = match &entry.authority.root {
                Some(_) => "correct `authorities` in [certificates], and reload",
                None => NO_ROOTS_REMEDY,
            };
            Failure::new(Kind::Refused, error, remedy)
        })?;
        let builder = Account::builder_with_http(Box::new(client));
        let file = entry.file();
        let stored: Option<AccountCredentials> = read_json(state, &file).map_err(|problem| {
            Failure::new(Kind::State, problem, "restore it from a backup, or remove it for another account")
        })?;
        let account = match stored {
            Some(credentials) => {
                let connected = builder.from_credentials(credentials).await;
                connected.map_err(|error| Failure::of(error, Asked::Directory))?
            }
            None => {
                let contacts: Vec<&str> = self.contacts.iter().map(String::as_str).collect();
                let new = NewAccount { contact: &contacts, terms_of_service_agreed: true, only_return_existing: false };
                let external =
                    entry.external.as_ref().map(Result::as_ref).transpose().map_err(|problem| {
                        Failure::new(Kind::Refused, problem.as_str(), "then run `sanderling reload`")
                    })?;
                let directory = entry.authority.directory.clone();
                let created = builder.create(&new, directory, external).await;
                let (created, credentials) = created.map_err(|error| Failure::of(error, Asked::Account))?;
                let text = serde_json::to_vec(&credentials)
                    .map_err(|error| Failure::new(Kind::State, format!("cannot store the account: {error}"), ""))?;
                registration.unstored = Some(text);
                created
            }
        };
        registration.account = Some(account.clone());
        registration.store(&file, state)?;
        Ok(account)
    }

    /// The URL of the account at an authority, if there is one.
    pub(crate) fn url(&self, index: usize, state: &StateFolder) -> Option<String> {
        #[derive(Deserialize)]
        struct Stored {
            id: String,
        }
        let text = state.read(&self.entries[index].file()).ok().flatten()?;
        Some(serde_json::from_slice::<Stored>(&text).ok()?.id)
    }

    /// The reason why the account at an authority can no longer be used; `None` if it can, or if the authority does not
    /// say. The agent finds out by updating the contacts, which the authority refuses for a deactivated account (RFC
    /// 8555 §7.3.6).
    pub(crate) async fn problem(&self, index: usize, state: &StateFolder) -> Option<String> {
        let account = self.get(index, state).await.ok()?;
        let contacts: Vec<&str> = self.contacts.iter().map(String::as_str).collect();
        let error = account.update_contacts(&contacts).await.err()?;
        if matches!(error, Error::Str(_)) {
            // The library has read the account, and its status is not `valid`.
            return Some("the authority has deactivated it".to_owned());
        }
        // In answer to these requests, the same errors concern the account itself.
        let failure = Failure::of(error, Asked::Directory);
        matches!(failure.kind, Kind::AccountRefused | Kind::Gone).then(|| failure.cause().to_owned())
    }

    /// The authority no longer knows the account: a new account is registered.
    pub(crate) async fn forget(&self, index: usize, state: &StateFolder) -> Result<(), Failure> {
        *self.entries[index].registration.lock().await = Registration::default();
        Ok(state.remove(&self.entries[index].file())?)
    }

    /// The authority's directory may have changed.
    pub(crate) async fn reconnect(&self, index: usize) {
        self.entries[index].registration.lock().await.account = None;
    }
}

fn external_account_key(account: &ExternalAccount) -> Result<ExternalAccountKey, String> {
    let key = account.read_key().map_err(|diagnostic| diagnostic.to_string())?;
    Ok(ExternalAccountKey::new(account.id.clone(), &key))
}

impl Entry {
    /// A different directory means a different authority.
    fn file(&self) -> String {
        let is_plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '-');
        let name: String = self.authority.directory.chars().map(|one| if is_plain(one) { one } else { '_' }).collect();
        format!("acme/{name}/account.json")
    }
}
