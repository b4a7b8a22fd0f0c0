//! Drops capabilities of this process (capabilities(7)).

use crate::error::with_context;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use std::io;

/// The actions that the supervisor of a system service does with the privileges of root: it binds ports below 1024,
/// reads and writes files of its operator, raises its limit of open files, starts server processes as another user, and
/// signals them.
const SUPERVISING: CapabilitySet = CapabilitySet::NET_BIND_SERVICE
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::KILL);

/// Empties the bounding set, which limits the capabilities that an exec can grant. Without CAP_SETPCAP, the set stays
/// unchanged and has no effect, since no exec can grant capabilities.
pub(super) fn empty_bounding_set() -> io::Result<()> {
    limit_bounding_set(CapabilitySet::empty())
}

fn limit_bounding_set(kept: CapabilitySet) -> io::Result<()> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
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

/// Keeps those capabilities that a supervisor needs, here and in the programs that it starts.
pub(super) fn keep_those_of_a_supervisor() -> io::Result<()> {
    limit_bounding_set(SUPERVISING)?;
    let CapabilitySets { effective, permitted, inheritable } =
        capabilities(None).map_err(|errno| with_context("capget", "", &errno.into()))?;
    let kept = CapabilitySets {
        effective: effective & SUPERVISING,
        permitted: permitted & SUPERVISING,
        inheritable: inheritable & SUPERVISING,
    };
    set_capabilities(None, kept).map_err(|errno| with_context("capset", "of a supervisor", &errno.into()))
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
