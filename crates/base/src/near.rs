//! References that are counted in several places.

use std::ops::Deref;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::memory;

/// A reference to something that everybody refers to all the time. Copies of one are counted together and apart from copies
/// of another, so that with one for each thread no cache line wanders between them.
///
/// ```
/// use std::sync::Arc;
/// use creamery_base::Near;
/// let whole = Arc::new([1, 2, 3]);
/// let mine = Near::new(Arc::clone(&whole));
/// let copy = mine.clone();
/// assert_eq!((copy[2], Arc::strong_count(&whole)), (3, 2));
/// ```
pub struct Near<T>(Arc<CachePadded<Arc<T>>>);

impl<T> Near<T> {
    /// What a place takes in memory, bytes: once for all copies, and without what is referred to.
    pub const MEMORY: u64 = memory::shared::<CachePadded<Arc<T>>>();

    /// A reference whose copies are counted in a place of their own.
    pub fn new(whole: Arc<T>) -> Self {
        Self(Arc::new(CachePadded::new(whole)))
    }
}

impl<T> Clone for Near<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Near<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
