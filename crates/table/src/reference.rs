//! Turns one reference to an entry into a value that can be used, copied and dropped.

use crate::count::Taking;
use crate::slot::Slot;
use crate::slots::Slots;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;

/// An entry with a reference of its own: it stays whole, also when it is retired meanwhile, until this is dropped.
/// Whoever drops the last one drops the value.
pub struct Ref<'t, K, V> {
    slots: &'t Slots<K, V>,
    slot: &'t Slot<K, V>,
}

impl<'t, K, V> Ref<'t, K, V> {
    /// A new reference, unless the entry is dead.
    #[inline]
    pub(crate) fn take(slots: &'t Slots<K, V>, slot: &'t Slot<K, V>, taking: Taking) -> Option<Ref<'t, K, V>> {
        // Made only when the reference is there: dropping a Ref puts one.
        slot.take(taking).then(|| Ref { slots, slot })
    }

    /// Takes over a reference that was counted before.
    ///
    /// # Safety
    /// The caller owns such a reference to the entry in this slot of these slots, and gives it up.
    pub(crate) unsafe fn adopt(slots: &'t Slots<K, V>, slot: &'t Slot<K, V>) -> Ref<'t, K, V> {
        Ref { slots, slot }
    }

    /// The key of this entry.
    #[inline]
    pub fn key(&self) -> &K {
        // SAFETY: this value is a reference to the entry, and `&self` outlives what is returned.
        unsafe { &self.slot.entry().key }
    }

    /// Whether the table has stopped lending this entry. It may be retired right after this says no.
    #[inline]
    pub fn is_invalidated(&self) -> bool {
        !self.slot.generation().is_lent()
    }

    pub(crate) fn slot(&self) -> &'t Slot<K, V> {
        self.slot
    }

    /// Gives the reference to the caller, who must see that it is put.
    pub(crate) fn into_slot(self) -> &'t Slot<K, V> {
        ManuallyDrop::new(self).slot
    }
}

impl<K, V> Deref for Ref<'_, K, V> {
    type Target = V;

    #[inline]
    fn deref(&self) -> &V {
        // SAFETY: this value is a reference to the entry, and `&self` outlives what is returned.
        unsafe { &self.slot.entry().value }
    }
}

/// One more reference to the same entry, retired or not: one atomic addition, which cannot fail.
impl<K, V> Clone for Ref<'_, K, V> {
    fn clone(&self) -> Self {
        self.slot.take_another();
        Ref { slots: self.slots, slot: self.slot }
    }
}

impl<K, V> Drop for Ref<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this value is a reference to the entry, and ends here.
        unsafe { self.slots.put(self.slot) };
    }
}

/// A [`Ref`] that belongs to the [`LocalCache`](crate::LocalCache) of a worker, lent until they are asked again: it is used as
/// one, and a clone of it is one.
///
/// ```compile_fail
/// let table = sanderling_table::Table::<u32, u32>::new(1);
/// let mut leases = sanderling_table::LocalCache::new(&table, 1);
/// let lent = leases.get(&1);
/// leases.sweep();
/// drop(lent.is_none());
/// ```
pub struct CachedRef<'l, 't, K, V> {
    /// Never dropped: its reference is that of the lease.
    held: ManuallyDrop<Ref<'t, K, V>>,
    leases: PhantomData<&'l Ref<'t, K, V>>,
}

impl<'l, 't, K, V> CachedRef<'l, 't, K, V> {
    /// # Safety
    /// Somebody owns a reference to the entry in this slot of these slots, and keeps it for as long as `'l`.
    #[inline]
    pub(crate) unsafe fn new(slots: &'t Slots<K, V>, slot: &'t Slot<K, V>) -> CachedRef<'l, 't, K, V> {
        CachedRef { held: ManuallyDrop::new(Ref { slots, slot }), leases: PhantomData }
    }
}

impl<'t, K, V> Deref for CachedRef<'_, 't, K, V> {
    type Target = Ref<'t, K, V>;

    #[inline]
    fn deref(&self) -> &Ref<'t, K, V> {
        &self.held
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for CachedRef<'_, '_, K, V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Ref<'_, K, V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Ref")
            .field("key", self.key())
            .field("value", &**self)
            .field("retired", &self.is_invalidated())
            .finish()
    }
}
