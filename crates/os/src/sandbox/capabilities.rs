//! Drops all capabilities of this process (capabilities(7)).

use crate::error::with_context;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use std::io;

/// Empties the bounding set, which limits the capabilities that an exec can grant. It stays unchanged without CAP_SETPCAP,
/// and has no effect then, since no exec can grant capabilities.
pub(super) fn empty_bounding_set() -> io::Result<()> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(false) => continue,
            Ok(true) => {}
            // No capability has this number or a higher one.
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(with_context("prctl", "PR_CAPBSET_READ", &errno.into())),
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            Err(Errno::PERM) => break,
            Err(errno) => return Err(with_context("prctl", "PR_CAPBSET_DROP", &errno.into())),
        }
    }
    Ok(())
}

/// Clears the other sets: ambient, inheritable, permitted, effective.
pub(super) fn drop_all() -> io::Result<()> {
    match clear_ambient_capability_set() {
        // Linux before 4.3 has no ambient set.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(errno) => return Err(with_context("prctl", "PR_CAP_AMBIENT_CLEAR_ALL", &errno.into())),
    }
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, none).map_err(|errno| with_context("capset", "none", &errno.into()))
}
