//! Lends values to threads without a lock.
#![deny(clippy::undocumented_unsafe_blocks)]

// Each module imports only from those below it.
mod leases;
mod table;
mod held;
mod index;
mod slots;
mod slot;
mod count;
mod hash;
mod sync;

pub use count::Taking;
pub use held::Held;
pub use leases::Leases;
pub use slots::CAPACITY_MAX;
pub use table::{Census, Full, Refused, Table};
