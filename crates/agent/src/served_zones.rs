//! The zones that the server process serves, as it has reported them last.

use sanderling_config::DomainName;
use sanderling_ipc::agent::{ServedZone, ServedZones};
use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use tokio::sync::watch;

/// The reported zones.
pub(crate) struct ServedMap {
    state: RefCell<ServedState>,
    changes: watch::Sender<()>,
}

#[derive(Default)]
pub(crate) struct ServedState {
    /// Whether there was a report.
    pub(crate) is_known: bool,
    /// Whether no further zone of the operator is served.
    pub(crate) is_complete: bool,
    pub(crate) zones: BTreeMap<DomainName, ServedZone>,
}

impl ServedMap {
    pub(crate) fn new() -> ServedMap {
        ServedMap { state: RefCell::default(), changes: watch::Sender::new(()) }
    }

    /// Records the served zones, and that there are no others.
    pub(crate) fn replace(&self, served: ServedZones) {
        let named = |zone: ServedZone| Some((DomainName::parse(&zone.name).ok()?, zone));
        let zones = served.zones.into_iter().filter_map(named).collect();
        *self.state.borrow_mut() = ServedState { is_known: true, is_complete: served.is_complete, zones };
        self.notify();
    }

    /// Records that another version of a zone is served.
    pub(crate) fn insert(&self, name: DomainName, zone: ServedZone) {
        self.state.borrow_mut().zones.insert(name, zone);
        self.notify();
    }

    /// Wakes those that watch, as if a zone had changed.
    pub(crate) fn notify(&self) {
        self.changes.send_replace(());
    }

    /// Reports when something has changed.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(crate) fn state(&self) -> Ref<'_, ServedState> {
        self.state.borrow()
    }
}
