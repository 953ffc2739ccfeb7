//! References with several counts.

use std::ops::Deref;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::memory;

/// A reference to an object that all threads use all the time. Clones of one `ShardedArc` share a count, apart from the clones
/// of another. With one `ShardedArc` for each thread, no cache line moves between threads.
///
/// ```
/// use std::sync::Arc;
/// use creamery_base::ShardedArc;
/// let whole = Arc::new([1, 2, 3]);
/// let mine = ShardedArc::new(Arc::clone(&whole));
/// let copy = mine.clone();
/// assert_eq!((copy[2], Arc::strong_count(&whole)), (3, 2));
/// ```
pub struct ShardedArc<T>(Arc<CachePadded<Arc<T>>>);

impl<T> ShardedArc<T> {
    /// Memory of one count, bytes: once for all clones, and without the object.
    pub const MEMORY: u64 = memory::shared::<CachePadded<Arc<T>>>();

    /// Creates a reference whose clones have a count of their own.
    pub fn new(whole: Arc<T>) -> Self {
        Self(Arc::new(CachePadded::new(whole)))
    }
}

impl<T> Clone for ShardedArc<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for ShardedArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
