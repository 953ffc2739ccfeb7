//! The size of a filesystem on a device: it may grow.
//!
//! A resize makes the file longer first, then the filesystem, in one transaction: the device's item in the chunk tree, its copy in
//! the superblock, and the sum there. A crash in between leaves a file that is longer than its filesystem; this is harmless, and
//! the next resize uses the room. A failure gives the file its old length back, unless a superblock may have the new size: once a
//! commit has begun to write superblocks, the devices may hold either one. An abort by another thread makes a resize fail while a
//! commit is still on its way, so the resize waits for that first. A filesystem cannot shrink: the blocks past the new end would
//! have to be moved.
//!
//! # Invariants
//! - RESIZE-1: a file is cut only while no superblock has the new size, and none can get it any more. Shown by
//!   `a_resize_that_fails_while_others_commit_leaves_the_file_as_long_as_the_superblock_says`.

use creamery_base::{DevId, Error, ErrorKind, HumanSize, Result};
use creamery_device::BlockDevice;
use creamery_txn::Engine;
use serde::{Deserialize, Serialize};

use crate::Filesystem;

/// The requested size of a filesystem on a device, in bytes. A part of a sector at the end is left out.
///
/// ```
/// # fn example(fs: &creamery_fs::Filesystem) -> creamery_base::Result<()> {
/// use creamery_base::DevId;
/// let resized = fs.resize(DevId::new(1), creamery_fs::NewSize::More(1 << 30))?;
/// assert_eq!(resized.to - resized.from, 1 << 30);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NewSize {
    /// All of the device.
    Max,
    /// So many bytes.
    Bytes(u64),
    /// So many bytes more than now.
    More(u64),
    /// So many bytes less than now.
    Less(u64),
}

/// The result of a resize.
///
/// ```
/// let same = creamery_fs::Resized { device: 1, path: "disk.img".into(), from: 1 << 30, to: 1 << 30 };
/// assert_eq!(same.from, same.to);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Resized {
    /// The number of the device in the filesystem.
    pub device: u64,
    /// The file or device of the host, or the name of a custom device.
    pub path: String,
    /// Bytes of the device that the filesystem had.
    pub from: u64,
    /// Bytes of the device that the filesystem has now.
    pub to: u64,
}

impl Filesystem {
    /// Grows the filesystem on a device. A file that is too short is made longer; a partition and a block device keep their length.
    /// Durable when it returns, with every change so far.
    /// Errors: not found: there is no such device; unsupported: the filesystem would shrink; no space: the device is shorter;
    /// read-only; those of a commit. A file has its old length then, unless the commit failed to write its superblock.
    pub fn resize(&self, device: DevId, size: NewSize) -> Result<Resized> {
        let engine = self.engine();
        engine.check_writable()?;
        let not_found = || {
            Error::new(ErrorKind::NotFound, format!("no device {device}"))
                .advise("`creamery filesystem show` lists the devices")
        };
        let on = engine.volume().device(device).ok_or_else(not_found)?;
        let _alone = self.resize_alone();
        let has = engine.devices().into_iter().find(|member| member.id == device);
        let from = has.ok_or_else(not_found)?.total_bytes;
        // The present length: the device may have been made longer since it was opened.
        let len = on.lengthen(0)?;
        let wanted = match size {
            NewSize::Max => Some(len),
            NewSize::Bytes(bytes) => Some(bytes),
            NewSize::More(bytes) => from.checked_add(bytes),
            NewSize::Less(bytes) => Some(from.saturating_sub(bytes)),
        };
        let wanted = wanted.ok_or_else(|| Error::invalid("the size would be 16 EiB or more"))?;
        let sector = u64::from(engine.sector_size());
        let to = match wanted / sector * sector {
            // The present size need not end with a whole sector.
            to if wanted >= from => to.max(from),
            to => to,
        };
        if to < from {
            let (from, to) = (HumanSize(from), HumanSize(to));
            let what = format!(
                "cannot shrink device {device} from {from} to {to}: data would have to be \
                 moved, which is not implemented"
            );
            return Err(Error::unsupported(what));
        }
        if to > from {
            let published = engine.volume().counters().publishes;
            on.lengthen(to).map_err(|error| too_short(error, len, to))?;
            let grown = engine.grow_device(device, to);
            let is_running = grown.is_ok();
            if let Err(error) = grown.and_then(|()| self.make_durable()) {
                if len < to && is_unsaid(engine, published, is_running) {
                    shorten(&*on, to, len);
                }
                return Err(error);
            }
        }
        Ok(Resized { device: device.get(), path: on.describe(), from, to })
    }
}

/// Whether no superblock has the new size, nor will get it (RESIZE-1). `published` is the number of superblocks written before,
/// `is_running` whether the transaction has the new size.
fn is_unsaid(engine: &Engine, published: u64, is_running: bool) -> bool {
    let is_over = engine.aborted_and_over().is_some() || !is_running;
    is_over && engine.volume().counters().publishes == published
}

/// Gives a file that is `from` bytes long its old length back. Where that fails the file is longer than its filesystem, which is
/// harmless.
fn shorten(device: &dyn BlockDevice, from: u64, to: u64) {
    if device.lengthen(0).is_ok_and(|len| len == from) {
        let _ = device.resize(to);
    }
}

/// The error for a device whose length cannot be changed here, with its length.
fn too_short(error: Error, len: u64, to: u64) -> Error {
    match error.kind() {
        ErrorKind::Unsupported => {
            let what = format!("device too short, expected {}, found {}", HumanSize(to), HumanSize(len));
            Error::with_source(ErrorKind::NoSpace, what, error)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::sync::{Arc, Mutex};
    use std::thread;

    use creamery_base::TreeId;
    use creamery_base::panics::Panic;
    use creamery_device::{Hook, Request};

    use super::*;
    use crate::data::tests::support::{Kind, fixture};
    use crate::{FsOptions, NewInode};

    const MORE: u64 = 64 << 20;
    const SUPERBLOCK: u64 = 64 << 10;

    /// Fails writes at these offsets.
    struct Fails(fn(u64) -> bool);

    impl Hook for Fails {
        fn before(&self, request: &Request) -> Result<()> {
            match request {
                Request::Write { offset, .. } if self.0(*offset) => {
                    Err(Error::new(ErrorKind::Io, "it fails"))
                }
                _ => Ok(()),
            }
        }
    }

    /// The growth of a device in a resize that failed; `None` where the host cannot make the filesystem.
    fn longer_by(fails: fn(u64) -> bool) -> Option<u64> {
        let (engine, device) = fixture(Kind::DEFAULT)?.behind(Fails(fails));
        let fs = Filesystem::open(engine, FsOptions::default()).expect("opening writes nothing");
        let before = device.len();
        fs.resize(DevId::new(1), NewSize::More(MORE)).expect_err("the device fails");
        Some(device.len() - before)
    }

    #[test]
    fn a_resize_whose_blocks_cannot_be_written_leaves_the_file_as_long_as_it_was() {
        let Some(more) = longer_by(|_| true) else { return };
        assert_eq!(more, 0);
    }

    #[test]
    fn a_resize_whose_superblock_cannot_be_written_leaves_the_file_longer() {
        let Some(more) = longer_by(|offset| offset == SUPERBLOCK) else { return };
        assert_eq!(more, MORE);
    }

    /// The first write of each of these threads waits. The thread reports it, and goes on when the test lets it.
    struct FirstWriteWaits(Mutex<HashMap<&'static str, Stop>>);

    type Stop = (Sender<()>, Receiver<()>);

    impl Hook for FirstWriteWaits {
        fn before(&self, request: &Request) -> Result<()> {
            let name = thread::current().name().unwrap_or_default().to_owned();
            let stop = match request {
                Request::Write { .. } => self.0.lock().expect("no holder panics").remove(&*name),
                _ => None,
            };
            if let Some((reached, go)) = stop {
                reached.send(()).expect("it waits for that");
                go.recv().expect("it says so");
            }
            Ok(())
        }
    }

    /// The resize fails during its writeback because of an abort; the commit that has the new size is on its way then, and ends well.
    #[test]
    fn a_resize_that_fails_while_others_commit_leaves_the_file_as_long_as_the_superblock_says() {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let stop = || {
            let ((reached, is_reached), (go, goes)) = (mpsc::channel(), mpsc::channel());
            ((reached, goes), (is_reached, go))
        };
        let ((resizer, at_resizer), (committer, at_committer)) = (stop(), stop());
        let stops = HashMap::from([("resizer", resizer), ("committer", committer)]);
        let (engine, device) = fixture.behind(FirstWriteWaits(Mutex::new(stops)));
        let fs = Filesystem::open(Arc::clone(&engine), FsOptions::default()).expect("opening writes nothing");
        let root = fs.root(TreeId::FS).expect("it is there");
        let made = fs.create(root, b"file", &NewInode::file(0o600)).expect("room");
        let file = fs.open_file(made.id).expect("it is there");
        file.write_at(0, &[7; 1 << 16]).expect("room");
        thread::scope(|scope| {
            let run = |name: &str, work: Box<dyn FnOnce() -> Result<()> + Send>| {
                thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work).expect("a thread")
            };
            let resize = || fs.resize(DevId::new(1), NewSize::More(MORE)).map(drop);
            let resizing = run("resizer", Box::new(resize));
            at_resizer.0.recv().expect("it writes data");
            let committing = run("committer", Box::new(|| engine.commit()));
            at_committer.0.recv().expect("it writes blocks");
            let panic = Panic { message: "somebody else's".to_owned(), place: "elsewhere".to_owned() };
            engine.abort_after_panic(&panic);
            at_resizer.1.send(()).expect("it waits");
            at_committer.1.send(()).expect("it waits");
            committing.join().expect("no panic").expect("it was on its way");
            resizing.join().expect("no panic").expect_err("nothing can be written any more");
        });
        assert!(device.len() >= engine.volume().superblock().total_bytes(), "cut below its filesystem");
    }
}
