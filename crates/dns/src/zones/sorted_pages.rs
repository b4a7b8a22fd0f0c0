//! A sorted sequence in pages that versions of a zone share: a change copies the pages that it touches, and the list of
//! pages.

use alloc::sync::Arc;
use alloc::vec::Vec;

/// Items of a page. With n items, a change copies a page and n / 1024 references.
const PAGE_ITEMS_MAX: usize = 1_024;

/// Different items in ascending order. For an order other than the type's, methods take a predicate: whether an item
/// comes before a place, which is true for the first items and false for the others.
#[derive(Clone, Debug)]
pub(crate) struct SortedPages<T> {
    /// No page is empty.
    pages: Vec<Arc<Vec<T>>>,
}

impl<T: Copy> SortedPages<T> {
    /// The sequence of `items`, which are sorted.
    pub(crate) fn new(items: &[T]) -> SortedPages<T> {
        // Pages that are not full leave room for the first changes.
        let pages = items.chunks(PAGE_ITEMS_MAX * 3 / 4).map(|page| Arc::new(page.to_vec())).collect();
        SortedPages { pages }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = T> {
        self.pages.iter().flat_map(|page| page.iter().copied())
    }

    pub(crate) fn first(&self) -> Option<T> {
        self.pages.first()?.first().copied()
    }

    pub(crate) fn last(&self) -> Option<T> {
        self.pages.last()?.last().copied()
    }

    /// The item before a place.
    #[inline]
    pub(crate) fn last_before(&self, is_before: impl Fn(&T) -> bool) -> Option<T> {
        let page = self.pages.get(self.page_at(&is_before))?;
        page.get(page.partition_point(is_before).checked_sub(1)?).copied()
    }

    /// The items from a place on.
    pub(crate) fn range_from_place(&self, is_before: impl Fn(&T) -> bool) -> impl Iterator<Item = T> {
        let page = self.page_at(&is_before);
        let start = self.pages.get(page).map_or(0, |page| page.partition_point(is_before));
        let pages = self.pages.get(page..).unwrap_or_default();
        pages.iter().flat_map(|page| page.iter().copied()).skip(start)
    }

    /// Adds an item at its place.
    pub(crate) fn insert_at(&mut self, item: T, is_before: impl Fn(&T) -> bool) {
        let index = self.page_at(&is_before);
        let Some(page) = self.pages.get_mut(index) else {
            self.pages.push(Arc::new(alloc::vec![item]));
            return;
        };
        let page = Arc::make_mut(page);
        page.insert(page.partition_point(is_before), item);
        if page.len() > PAGE_ITEMS_MAX {
            let upper = page.split_off(page.len() / 2);
            self.pages.insert(index + 1, Arc::new(upper));
        }
    }

    /// Removes the item before a place.
    pub(crate) fn remove_before(&mut self, is_before: impl Fn(&T) -> bool) {
        let index = self.page_at(&is_before);
        let Some(page) = self.pages.get_mut(index) else { return };
        let Some(at) = page.partition_point(is_before).checked_sub(1) else { return };
        let page = Arc::make_mut(page);
        page.remove(at);
        if page.is_empty() {
            self.pages.remove(index);
        }
    }

    /// Bytes of memory, with pages that other versions share.
    pub(crate) fn memory_bytes(&self) -> usize {
        let of_pages: usize = self.pages.iter().map(|page| page.capacity() * size_of::<T>()).sum();
        of_pages + self.pages.capacity() * size_of::<Arc<Vec<T>>>()
    }

    /// The index of the last page whose first item precedes a place, or of the first page.
    #[inline]
    fn page_at(&self, is_before: impl Fn(&T) -> bool) -> usize {
        // Usually there is a single page, which needs no comparison.
        let others = self.pages.get(1..).unwrap_or_default();
        others.partition_point(|page| page.first().is_some_and(&is_before))
    }
}

impl<T: Copy + Ord> SortedPages<T> {
    pub(crate) fn contains(&self, item: T) -> bool {
        self.last_before(|other| *other <= item) == Some(item)
    }

    /// The items that are not less than `item`.
    pub(crate) fn range_from(&self, item: T) -> impl Iterator<Item = T> {
        self.range_from_place(move |other| *other < item)
    }

    /// Adds an item. Nothing changes if it exists.
    pub(crate) fn insert(&mut self, item: T) {
        if !self.contains(item) {
            self.insert_at(item, |other| *other < item);
        }
    }

    /// Removes an item. Nothing changes if it does not exist.
    pub(crate) fn remove(&mut self, item: T) {
        if self.contains(item) {
            self.remove_before(|other| *other <= item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn equals_a_set_after_random_changes() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let start: BTreeSet<u32> = (0..5_000).map(|_| random.u32(..20_000)).collect();
        let mut set = start.clone();
        let before = SortedPages::new(&start.iter().copied().collect::<Vec<_>>());
        let mut pages = before.clone();
        for round in 0..40_000 {
            let item = random.u32(..20_000);
            // First more come, then all go.
            if round < 15_000 && random.u8(..4) != 0 {
                set.insert(item);
                pages.insert(item);
            } else {
                set.remove(&item);
                pages.remove(item);
            }
            assert_eq!(pages.contains(item), set.contains(&item), "seed {seed}");
            let next = random.u32(..20_000);
            assert!(pages.range_from(next).take(3).eq(set.range(next..).copied().take(3)), "seed {seed}");
        }
        assert!(pages.iter().eq(set.iter().copied()), "seed {seed}");
        assert!(before.iter().eq(start.iter().copied()), "the first version is unchanged; seed {seed}");
    }
}
