//! Which opener of a file, and which caller of sync, has seen which error of writing back.
//!
//! The engine counts its failures, so the time of an error is such a count, and the place of an opener lies between two: those
//! before and after its last call. That is enough to say what must be reported and what must not: an opener that has seen nothing
//! since before the error must learn of it, and nobody learns of a loss twice.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use creamery_base::Error;

/// The count of failures before and after a call; as the place of a caller, those of its last call.
#[derive(Clone, Copy, Default)]
pub(crate) struct Around {
    pub(crate) before: u64,
    pub(crate) after: u64,
}

/// What each of them has seen.
#[derive(Default)]
pub(crate) struct SeenErrors {
    /// For each file that is known to have lost data: how many failures there were at most before that.
    lost: HashMap<u64, u64>,
    /// Up to which failure an opener of the file has seen its errors.
    seen: HashMap<u64, Around>,
    synced: Around,
}

impl SeenErrors {
    /// The place of an opener of `file` that comes now.
    pub(crate) fn opened(&self, file: u64) -> Around {
        self.seen.get(&file).copied().unwrap_or_default()
    }

    /// `file` was found to have lost data, after there were `failures`.
    pub(crate) fn lose(&mut self, file: u64, failures: u64) {
        self.lost.insert(file, failures);
    }

    /// An opener of `file` asked for an fsync, which ended with `error`, or well.
    ///
    /// # Errors
    /// It was told of a loss twice, or of one that it should know not at all.
    pub(crate) fn fsync(
        &mut self,
        file: u64,
        place: Around,
        around: Around,
        error: Option<&Error>,
    ) -> Result<()> {
        let lost = self.lost.get(&file).copied();
        judge(lost, place, around, error, &format_args!("an opener of file {file}"))?;
        self.seen.insert(file, around);
        Ok(())
    }

    /// A caller asked for a sync of all, which ended with `error`, or well.
    ///
    /// # Errors
    /// As for [`SeenErrors::fsync`].
    pub(crate) fn sync(&mut self, around: Around, error: Option<&Error>) -> Result<()> {
        let lost = around.before.checked_sub(1);
        judge(lost, self.synced, around, error, &"a caller of sync")?;
        self.synced = around;
        Ok(())
    }
}

/// Judges an answer to a caller at `place`, where data was lost after there were `lost` failures.
fn judge(
    lost: Option<u64>,
    place: Around,
    around: Around,
    error: Option<&Error>,
    caller: &dyn std::fmt::Display,
) -> Result<()> {
    match error {
        None => ensure!(lost.is_none_or(|lost| lost < place.after), "{caller} learns nothing of a loss"),
        Some(error) if error.to_string().contains("written data was lost") => {
            ensure!(around.after > place.before, "{caller} learns of a loss twice: {error}");
        }
        Some(_) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use creamery_base::ErrorKind;

    use super::*;

    const FILE: u64 = 300;

    fn at(failures: u64) -> Around {
        Around { before: failures, after: failures }
    }

    #[test]
    fn an_opener_must_learn_of_a_loss_once_unless_another_did_before() {
        let loss = Error::new(ErrorKind::Io, "written data was lost");
        let mut errors = SeenErrors::default();
        let early = errors.opened(FILE);
        errors.lose(FILE, 0);
        assert!(errors.fsync(FILE, early, at(1), None).is_err(), "nobody has told it");
        errors.fsync(FILE, errors.opened(FILE), at(1), Some(&loss)).expect("it is the first");
        assert!(errors.fsync(FILE, at(1), at(1), Some(&loss)).is_err(), "twice");
        assert!(errors.fsync(FILE, early, at(1), Some(&loss)).is_ok());
        let late = errors.opened(FILE);
        assert!(errors.fsync(FILE, late, at(1), Some(&loss)).is_err(), "another has seen it");
        assert!(errors.fsync(FILE, late, at(1), None).is_ok());
    }

    #[test]
    fn a_caller_of_sync_must_learn_of_every_failure_once() {
        let loss = Error::new(ErrorKind::Io, "written data was lost");
        let mut errors = SeenErrors::default();
        assert!(errors.sync(at(0), None).is_ok());
        assert!(errors.sync(at(1), None).is_err());
        assert!(errors.sync(at(1), Some(&loss)).is_ok());
        assert!(errors.sync(at(1), Some(&loss)).is_err());
        assert!(errors.sync(at(1), None).is_ok());
    }
}
