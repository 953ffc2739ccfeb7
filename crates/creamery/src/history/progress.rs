//! Progress of a search.

/// Receives the progress of a search for commits, files or filesystems.
///
/// ```
/// use creamery::history::SearchProgress;
/// struct Percent;
/// impl SearchProgress for Percent {
///     fn at(&self, done: u64, of: Option<u64>) {
///         if let Some(of) = of.filter(|of| *of > 0) {
///             println!("{}%", done * 100 / of);
///         }
///     }
/// }
/// ```
pub trait SearchProgress {
    /// The search has read `done` blocks, of `of` if the total is known.
    fn at(&self, done: u64, of: Option<u64>);
}

/// Ignores the progress of a search.
///
/// ```
/// let _quiet: &dyn creamery::history::SearchProgress = &creamery::history::NoSearchProgress;
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct NoSearchProgress;

impl SearchProgress for NoSearchProgress {
    fn at(&self, _done: u64, _of: Option<u64>) {}
}
