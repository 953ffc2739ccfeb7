//! SIGINT and SIGTERM in the middle of long work.
//!
//! Watched work stops before the next file, or within a large one, as after an error: unfinished files are removed, and finished ones stay.
//! Then the program dies of the signal, as a calling script expects. A second signal ends it at once, which leaves no more behind than a
//! loss of power does. Commands that write nothing end at once with the first signal. So does work that waits for a pipe or a terminal, as
//! nothing would wake it.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use creamery::{Error, ErrorKind};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// The number of the signal that came.
static CAME: OnceLock<Arc<AtomicUsize>> = OnceLock::new();
/// The state that a signal leaves, if the command gave it.
static LEFT: OnceLock<&str> = OnceLock::new();
/// Whether a signal now leaves a partial archive.
static ARCHIVE_IN_PLACE: AtomicBool = AtomicBool::new(false);
/// The number of finished files and directories, or of other units that the command counts.
static DONE: AtomicU64 = AtomicU64::new(0);

/// Whether a signal now leaves a partial copy of the current file.
static IN_PLACE: AtomicBool = AtomicBool::new(false);

/// Whether reading or writing the path may block forever: it is a stream, a pipe or a terminal.
pub(crate) fn may_wait(path: &Path) -> bool {
    path == Path::new("-")
        || std::fs::metadata(path).is_ok_and(|meta| {
            let kind = meta.file_type();
            !kind.is_file() && !kind.is_dir() && !kind.is_block_device()
        })
}

/// Dies of the signal that came, if one came.
pub(crate) fn die() {
    if let Some(signal) = came().and_then(|signal| i32::try_from(signal).ok()) {
        // If that fails, the exit status has the signal.
        let _ = low_level::emulate_default_handler(signal);
    }
}

/// From now on a signal makes [`go_on`] fail instead of ending the program.
pub(crate) fn watch() {
    if CAME.get().is_some() {
        return;
    }
    let (came, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(*signal)) {
        let number = usize::try_from(signal).expect("signals have small numbers");
        // If no handler can be installed, the signal ends the program at once.
        let _ = flag::register_conditional_default(signal, Arc::clone(&again))
            .and_then(|_| flag::register(signal, Arc::clone(&again)))
            .and_then(|_| flag::register_usize(signal, Arc::clone(&came), number));
    }
    // It is unset, by the check above.
    let _ = CAME.set(came);
}

/// Whether a signal was ignored when the program began, as in the background of a script: then it stays ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}

fn came() -> Option<usize> {
    CAME.get().map(|came| came.load(Ordering::Relaxed)).filter(|signal| *signal > 0)
}

/// Checks for a signal. Errors: a signal came.
pub(crate) fn go_on() -> Result<(), Error> {
    came().map_or(Ok(()), |_| Err(ErrorKind::Interrupted.into()))
}

/// Sets the state that a signal leaves, where the number of finished files does not describe it.
pub(crate) fn leaves(what: &'static str) {
    let _ = LEFT.set(what);
}

/// From now on a signal leaves a partial archive.
pub(crate) fn archive_in_place() {
    ARCHIVE_IN_PLACE.store(true, Ordering::Relaxed);
}

/// From now on a signal leaves a partial file on the host, until [`done`].
pub(crate) fn in_place() {
    IN_PLACE.store(true, Ordering::Relaxed);
}

/// Counts one more finished file.
pub(crate) fn done() {
    IN_PLACE.store(false, Ordering::Relaxed);
    DONE.fetch_add(1, Ordering::Relaxed);
}

/// The message and the exit status of work that a signal ended.
pub(crate) fn end(command: &str) -> Option<(String, u8)> {
    let signal = came()?;
    let name = if signal == SIGTERM as usize { "SIGTERM" } else { "SIGINT" };
    let what = match (command, DONE.load(Ordering::Relaxed)) {
        ("mkfs", _) => "no filesystem was made".to_owned(),
        ("quota enable" | "quota rescan" | "qgroup assign" | "qgroup remove", _) => {
            "`creamery quota rescan -W` counts the rest".to_owned()
        }
        ("subvolume delete" | "subvolume sync", _) => {
            "`creamery subvolume sync` or the next writer drops the rest".to_owned()
        }
        _ if ARCHIVE_IN_PLACE.load(Ordering::Relaxed) => "the archive is incomplete".to_owned(),
        _ if let Some(left) = LEFT.get() => (*left).to_owned(),
        (_, count) if IN_PLACE.load(Ordering::Relaxed) => {
            format!("{count} files and directories are done, and a file written in place is incomplete")
        }
        ("tune", 0) => "no tree block was changed".to_owned(),
        ("tune", count) => format!(
            "{count} tree blocks have the new UUID; the filesystem cannot be opened until `creamery tune -u` completes"
        ),
        (_, count) => format!("{count} files and directories are done, and none is incomplete"),
    };
    Some((format!("ended by {name}: {what}"), 128 + u8::try_from(signal).ok()?))
}
