//! A bounded number of permits, shared by all workers: who has none left does not accept.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many there may be, and how many are left.
#[derive(Debug)]
pub(crate) struct Permits(AtomicUsize);

/// The right to one connection; it goes back when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit<'s>(&'s Permits);

impl Permits {
    /// `count_max` permits.
    pub(crate) fn new(count_max: usize) -> Permits {
        Permits(AtomicUsize::new(count_max))
    }

    /// One of them, if one is left.
    pub(crate) fn take(&self) -> Option<Permit<'_>> {
        // Relaxed: the number guards nothing but itself.
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        taken.ok().map(|_| Permit(self))
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
    fn there_are_no_more_than_there_may_be() {
        let permits = Permits::new(2);
        let first = permits.take();
        let second = permits.take();
        assert!(first.is_some() && second.is_some());
        assert!(permits.take().is_none());
        drop(first);
        assert!(permits.take().is_some());
    }
}
