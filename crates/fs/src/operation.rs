//! The end of an operation: ending its handle, or aborting the transaction where it failed.

use creamery_base::{Error, ErrorKind, Result};
use creamery_txn::{Engine, Handle, Units};

/// Ends `handle` after its first change was made: a failure from there on cannot be taken back, so it aborts. What changes an
/// inode's item has done so by then (INODE-6).
#[track_caller]
pub(crate) fn finish<T>(handle: Handle<'_>, result: Result<T>) -> Result<T> {
    match result {
        Ok(value) => {
            handle.end();
            Ok(value)
        }
        Err(error) => Err(handle.abort(error)),
    }
}

/// Whether whoever tries the next one of many would meet the same.
pub(crate) fn is_lasting(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::ReadOnly | ErrorKind::Aborted)
}

/// Makes the first change of an operation, one that leaves no trace if it fails: then the handle just ends.
pub(crate) fn or_end<'e, T>(
    handle: Handle<'e>,
    first: impl FnOnce(&Handle<'e>) -> Result<T>,
) -> Result<(Handle<'e>, T)> {
    match first(&handle) {
        Ok(value) => Ok((handle, value)),
        Err(error) => {
            handle.end();
            Err(error)
        }
    }
}

/// Runs `change` in a handle of its own. It begins with the first change of a tree, so its errors abort.
#[track_caller]
pub(crate) fn in_handle<T>(
    engine: &Engine,
    units: Units,
    change: impl FnOnce(&Handle<'_>) -> Result<T>,
) -> Result<T> {
    let handle = engine.start(units)?;
    let changed = change(&handle);
    finish(handle, changed)
}
