//! Extents shared by the kernel.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Has the kernel share the first `len` bytes of `from` with `to`, at offset `at`: on btrfs it clones whole blocks of files in
/// one filesystem.
///
/// ```no_run
/// creamery_testkit::clone_range("/mnt/a".as_ref(), 4096, "/mnt/b".as_ref(), 1 << 40).unwrap();
/// ```
///
/// # Errors
/// When the kernel refuses, or takes less.
pub fn clone_range(from: &Path, len: u64, to: &Path, at: u64) -> Result<()> {
    let what = || format!("cloning {} into {} at {at}", from.display(), to.display());
    let source = File::open(from).with_context(what)?;
    let target = File::options().write(true).open(to).with_context(what)?;
    let (mut source_at, mut target_at) = (0, at);
    let room = usize::try_from(len)?;
    let cloned =
        rustix::fs::copy_file_range(&source, Some(&mut source_at), &target, Some(&mut target_at), room)
            .with_context(what)?;
    ensure!(cloned == room, "{}: {cloned} of {len} bytes", what());
    Ok(())
}

/// Has the kernel commit the filesystem that `path` is on.
///
/// ```no_run
/// creamery_testkit::sync_filesystem("/mnt".as_ref()).unwrap();
/// ```
///
/// # Errors
/// When it cannot.
pub fn sync_filesystem(path: &Path) -> Result<()> {
    let what = || format!("committing what {} is on", path.display());
    let file = File::open(path).with_context(what)?;
    rustix::fs::syncfs(file).with_context(what)
}
