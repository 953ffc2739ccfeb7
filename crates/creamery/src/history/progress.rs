//! How far a search is.

/// Is told how far a search is.
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
    /// `done` blocks were looked at, of `of` where that is known.
    fn at(&self, done: u64, of: Option<u64>);
}

/// Nobody is told.
///
/// ```
/// let _quiet: &dyn creamery::history::SearchProgress = &creamery::history::NoSearchProgress;
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct NoSearchProgress;

impl SearchProgress for NoSearchProgress {
    fn at(&self, _done: u64, _of: Option<u64>) {}
}
