//! The `ALIAS` targets of the zone files, as the server process and the signer have read them.

use sanderling_config::DomainName;
use sanderling_ipc::agent::ServedZones;
use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use tokio::sync::Notify;

/// The targets by zone.
#[derive(Default)]
pub(crate) struct AliasNames {
    state: RefCell<NamesState>,
    /// Whether they may have changed since [`AliasNames::take_changed`].
    has_changed: Cell<bool>,
    changed: Notify,
}

#[derive(Default)]
pub(crate) struct NamesState {
    /// The targets of the zones that are known, in lower case and without a dot at the end.
    by_zone: BTreeMap<DomainName, Vec<String>>,
    /// Whether further unsigned zones have no targets.
    is_complete: bool,
}

impl NamesState {
    /// The targets of `zone`; `None` if they are not known.
    pub(crate) fn of(&self, zone: &DomainName, is_signed: bool) -> Option<&[String]> {
        match self.by_zone.get(zone) {
            Some(targets) => Some(targets),
            None => (self.is_complete && !is_signed).then_some(&[]),
        }
    }

    /// The zones with targets, and these targets.
    pub(crate) fn zones(&self) -> impl Iterator<Item = (&DomainName, &[String])> {
        self.by_zone.iter().filter(|(_, targets)| !targets.is_empty()).map(|(zone, targets)| (zone, &**targets))
    }
}

impl AliasNames {
    /// A zone's file has these targets.
    pub(crate) fn set(&self, zone: &DomainName, targets: &[String], is_signed: bool) {
        if self.state.borrow().of(zone, is_signed) == Some(targets) {
            return;
        }
        self.state.borrow_mut().by_zone.insert(zone.clone(), targets.to_owned());
        self.notify();
    }

    /// Records the zones that are served. Signed zones are skipped: their signed versions contain no `ALIAS`.
    pub(crate) fn set_served(&self, served: &ServedZones, is_signed: impl Fn(&DomainName) -> bool) {
        let named = served.zones.iter().filter_map(|zone| Some((DomainName::parse(&zone.name).ok()?, zone)));
        let named: BTreeMap<DomainName, Vec<String>> =
            named.filter(|(name, _)| !is_signed(name)).map(|(name, zone)| (name, zone.alias_targets.clone())).collect();
        let mut state = self.state.borrow_mut();
        if served.is_complete {
            state.by_zone.retain(|zone, _| is_signed(zone) || named.contains_key(zone));
        }
        state.is_complete = served.is_complete;
        state.by_zone.extend(named);
        self.notify();
    }

    fn notify(&self) {
        self.has_changed.set(true);
        self.changed.notify_one();
    }

    /// Whether they may have changed since the last call.
    pub(crate) fn take_changed(&self) -> bool {
        self.has_changed.take()
    }

    /// Returns when they may have changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn state(&self) -> Ref<'_, NamesState> {
        self.state.borrow()
    }
}
