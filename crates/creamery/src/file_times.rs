//! The times of a file that a program sets.

use creamery_base::Timespec;

use crate::fs::{SetAttributes, Time};

/// Times of a file to set, as [`std::fs::FileTimes`]; a time that is not given stays.
///
/// ```
/// use creamery::attributes::{FileTimes, Timespec};
/// let times = FileTimes::new().set_accessed(Timespec { sec: 1, nsec: 0 }).set_modified(std::time::SystemTime::now());
/// # assert_ne!(times, FileTimes::new());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FileTimes {
    accessed: Option<Timespec>,
    modified: Option<Timespec>,
}

impl FileTimes {
    /// Sets no time yet, as [`std::fs::FileTimes::new`].
    ///
    /// ```
    /// # use creamery::attributes::FileTimes;
    /// assert_eq!(FileTimes::new(), FileTimes::default());
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self { accessed: None, modified: None }
    }

    /// Sets the time of the last access, as [`std::fs::FileTimes::set_accessed`].
    ///
    /// ```
    /// # use creamery::attributes::FileTimes;
    /// let times = FileTimes::new().set_accessed(std::time::SystemTime::now());
    /// # assert_ne!(times, FileTimes::new());
    /// ```
    #[must_use]
    pub fn set_accessed(mut self, time: impl Into<Timespec>) -> Self {
        self.accessed = Some(time.into());
        self
    }

    /// Sets the time of the last change of the data, as [`std::fs::FileTimes::set_modified`].
    ///
    /// ```
    /// # use creamery::attributes::FileTimes;
    /// let times = FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    /// # assert_ne!(times, FileTimes::new());
    /// ```
    #[must_use]
    pub fn set_modified(mut self, time: impl Into<Timespec>) -> Self {
        self.modified = Some(time.into());
        self
    }

    pub(crate) fn to_set(self) -> SetAttributes {
        SetAttributes {
            atime: self.accessed.map(Time::At),
            mtime: self.modified.map(Time::At),
            ..SetAttributes::default()
        }
    }
}
