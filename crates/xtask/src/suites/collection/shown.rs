//! What Linux shows of an image that it mounts, and what we show.
//!
//! An image that is damaged where nobody looks is one that both read whole. Where Linux comes upon an error, or takes no such image,
//! there is nothing to hold ours against.

use std::path::Path;

use creamery_testkit::walk::{Compare, Walk, differences};
use creamery_testkit::{FuseMount, LoopMount, Program, Scratch};

/// Linux is not asked of these: they were made to bring kernels down.
const HOSTILE: &str = "fuzz-tests/";
/// More of them say nothing new.
const DIFFERENCES_MAX: usize = 5;

/// How an image compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shown {
    /// Both read all of it, and what they read is the same.
    Same,
    /// Linux does not mount it, or not all can be read.
    NotByLinux,
}

/// Reads `image` through a mount of ours and one of Linux'; what is not the same is an error of one line each.
pub(super) fn compare(
    case: &str,
    image: &Path,
    program: &Program,
    scratch: &Scratch,
) -> Result<Shown, Vec<String>> {
    if case.starts_with(HOSTILE) {
        return Ok(Shown::NotByLinux);
    }
    // Ours first: Linux replays a log that it finds, on a mount for reading, too.
    let ours = FuseMount::mount(program, image, &scratch.file("ours"), "ro").and_then(|mount| {
        let walk = Walk::take(mount.dir());
        mount.unmount()?;
        walk
    });
    let linux = LoopMount::mount(image, &scratch.file("linux"), "ro").and_then(|mount| {
        let walk = Walk::take(mount.dir());
        mount.unmount()?;
        walk
    });
    let Ok(linux) = linux else { return Ok(Shown::NotByLinux) };
    let ours = ours.map_err(|error| vec![format!("Linux reads all of it, and we: {error:#}")])?;
    // Holes: Linux shows some data where nothing is but zeros.
    let compare = Compare { ctime: true, btime: true, holes: false, ..Compare::default() };
    let mut found = differences(&linux, &ours, &compare);
    found.truncate(DIFFERENCES_MAX);
    if found.is_empty() { Ok(Shown::Same) } else { Err(found) }
}
