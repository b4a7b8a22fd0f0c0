//! References to entries.

use crate::slot::Slot;
use crate::slots::Slots;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;

/// A counted reference to an entry, which lives as long as the last of them, also if it is invalidated meanwhile.
pub struct Ref<'t, K, V> {
    slots: &'t Slots<K, V>,
    slot: &'t Slot<K, V>,
}

impl<'t, K, V> Ref<'t, K, V> {
    /// A new reference, unless the entry is dead.
    #[inline]
    pub(crate) fn try_new(slots: &'t Slots<K, V>, slot: &'t Slot<K, V>) -> Option<Ref<'t, K, V>> {
        // Lazily: dropping a Ref decrements the count.
        slot.try_reference().then(|| Ref { slots, slot })
    }

    /// Takes over a reference that is already counted.
    ///
    /// # Safety
    /// The caller owns such a reference to the entry in this slot of these slots, and gives it up.
    pub(crate) unsafe fn from_counted(slots: &'t Slots<K, V>, slot: &'t Slot<K, V>) -> Ref<'t, K, V> {
        Ref { slots, slot }
    }

    /// This entry's key.
    #[inline]
    pub fn key(&self) -> &K {
        // SAFETY: `self` is a reference to the entry and outlives the result.
        unsafe { &self.slot.entry().key }
    }

    /// Whether this entry is invalidated. If not, it may be at any later time.
    #[inline]
    pub fn is_invalidated(&self) -> bool {
        !self.slot.generation().is_valid()
    }

    pub(crate) fn slot(&self) -> &'t Slot<K, V> {
        self.slot
    }

    /// Gives the counted reference to the caller, which must release it.
    pub(crate) fn into_slot(self) -> &'t Slot<K, V> {
        ManuallyDrop::new(self).slot
    }
}

impl<K, V> Deref for Ref<'_, K, V> {
    type Target = V;

    #[inline]
    fn deref(&self) -> &V {
        // SAFETY: `self` is a reference to the entry and outlives the result.
        unsafe { &self.slot.entry().value }
    }
}

/// Another reference to the same entry: one atomic addition, which cannot fail.
impl<K, V> Clone for Ref<'_, K, V> {
    fn clone(&self) -> Self {
        self.slot.reference();
        Ref { slots: self.slots, slot: self.slot }
    }
}

impl<K, V> Drop for Ref<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `self` is a reference to the entry, and ends here.
        unsafe { self.slots.release(self.slot) };
    }
}

/// A [`Ref`] that a [`LocalCache`](crate::LocalCache) owns, borrowed until the cache is used again. A clone is a `Ref`.
///
/// ```compile_fail
/// let table = sanderling_table::Table::<u32, u32>::new(1);
/// let mut cache = sanderling_table::LocalCache::new(&table, 1);
/// let cached = cache.get(&1);
/// cache.sweep();
/// drop(cached.is_none());
/// ```
pub struct CachedRef<'c, 't, K, V> {
    /// Never dropped: the cache owns the reference.
    reference: ManuallyDrop<Ref<'t, K, V>>,
    cache: PhantomData<&'c Ref<'t, K, V>>,
}

impl<'c, 't, K, V> CachedRef<'c, 't, K, V> {
    /// # Safety
    /// There is a reference to the entry in this slot of these slots for as long as `'c`.
    #[inline]
    pub(crate) unsafe fn new(slots: &'t Slots<K, V>, slot: &'t Slot<K, V>) -> CachedRef<'c, 't, K, V> {
        CachedRef { reference: ManuallyDrop::new(Ref { slots, slot }), cache: PhantomData }
    }
}

impl<'t, K, V> Deref for CachedRef<'_, 't, K, V> {
    type Target = Ref<'t, K, V>;

    #[inline]
    fn deref(&self) -> &Ref<'t, K, V> {
        &self.reference
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Ref<'_, K, V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Ref")
            .field("key", self.key())
            .field("value", &**self)
            .field("is_invalidated", &self.is_invalidated())
            .finish()
    }
}
