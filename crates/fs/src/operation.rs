//! The end of an operation: ends its handle, or aborts the transaction if the operation failed.

use creamery_base::{Error, ErrorKind, Result};
use creamery_txn::{Engine, Handle, ReserveItems};

/// Ends `handle` after its first change. A failure from there on cannot be undone, so it aborts the transaction. By then the caller has made its change of an
/// inode's item (INODE-6).
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

/// Whether the next operation of a series would fail with this error, too.
pub(crate) fn is_lasting(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::ReadOnly | ErrorKind::Aborted)
}

/// Makes the first change of an operation. If that fails, it leaves no trace: the handle just ends.
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

/// Runs `change` in a handle of its own. `change` begins with its first change of a tree, so its errors abort the transaction.
#[track_caller]
pub(crate) fn in_handle<T>(
    engine: &Engine,
    units: ReserveItems,
    change: impl FnOnce(&Handle<'_>) -> Result<T>,
) -> Result<T> {
    let handle = engine.start(units)?;
    let changed = change(&handle);
    finish(handle, changed)
}
