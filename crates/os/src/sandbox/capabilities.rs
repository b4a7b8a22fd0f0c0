//! Gives up every capability of this process (capabilities(7)).

use crate::error::with_context;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use std::io;

/// What became of the set that bounds what an exec can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundingSet {
    /// It is empty.
    Empty,
    /// It stays as it was: to change it needs CAP_SETPCAP. Since no exec gives anything any more, it bounds nothing.
    Unchanged,
}

/// Empties the bounding set, if this process may.
pub(super) fn empty_bounding_set() -> io::Result<BoundingSet> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(false) => continue,
            Ok(true) => {}
            // The kernel has no more of them.
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(with_context("prctl", "PR_CAPBSET_READ", &errno.into())),
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            Err(Errno::PERM) => return Ok(BoundingSet::Unchanged),
            Err(errno) => return Err(with_context("prctl", "PR_CAPBSET_DROP", &errno.into())),
        }
    }
    Ok(BoundingSet::Empty)
}

/// Gives up the others: ambient, inheritable, permitted, effective.
pub(super) fn give_up() -> io::Result<()> {
    match clear_ambient_capability_set() {
        // Before Linux 4.3 there was none.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(errno) => return Err(with_context("prctl", "PR_CAP_AMBIENT_CLEAR_ALL", &errno.into())),
    }
    let nothing = CapabilitySet::empty();
    let nothing = CapabilitySets { effective: nothing, permitted: nothing, inheritable: nothing };
    set_capabilities(None, nothing).map_err(|errno| with_context("capset", "nothing", &errno.into()))
}
