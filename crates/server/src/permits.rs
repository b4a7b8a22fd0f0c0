//! A bounded number of permits, shared by all workers: a connection without a permit is not served.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The remaining permits.
#[derive(Debug)]
pub(crate) struct Permits(AtomicUsize);

/// The right to one connection. Dropping the permit returns it to [`Permits`].
#[derive(Debug)]
pub(crate) struct Permit<'s>(&'s Permits);

impl Permits {
    pub(crate) fn new(count_max: usize) -> Permits {
        Permits(AtomicUsize::new(count_max))
    }

    /// A permit, if one remains.
    pub(crate) fn take(&self) -> Option<Permit<'_>> {
        // Relaxed: the number guards no other memory.
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |remaining| remaining.checked_sub(1));
        taken.ok().map(|_| Permit(self))
    }

    /// Whether none remains.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_permits_are_given_than_there_are() {
        let permits = Permits::new(2);
        let first = permits.take();
        let second = permits.take();
        assert!(first.is_some() && second.is_some());
        assert!(permits.take().is_none());
        drop(first);
        assert!(permits.take().is_some());
    }
}
