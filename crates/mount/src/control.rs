//! The control channel of a live mount: how `creamery stats`, `sync` and `umount` talk with the program that serves it.
//!
//! A program opens any directory of the mount and sends it one of these controls, `_IOWR(0xe6, NUMBER, char[8192])`:
//!
//! | number | | answer |
//! |---|---|---|
//! | 1 | get the statistics | the JSON of [`MountStatistics`] |
//! | 2 | make everything durable, and follow the flags of the mount (see `access_times`) | the JSON of `Synced` |
//! | 3 | report the end (see `closing`) | nothing |
//! | 4 | discard free space | nothing; the result goes over the asker's socket (see `fitrim`) |
//! | 5 to 14 | subvolumes (see `subvolumes`) | the JSON of an `Outcome` |
//! | 15 | list the extents of a file (see `fiemap`); sent to the file instead of a directory | the JSON of a `FiemapAnswer` |
//! | 16 | compress new data like this, the JSON of a [`Compression`] | nothing |
//! | 17 | defragment a file (see `defragment`); sent to the file | the JSON of a `BytesDone` |
//! | 18 | quotas (see `subvolumes`) | the JSON of an `Outcome` |
//! | 19 | the filesystem as a whole (see `subvolumes`) | the JSON of an `Outcome` |
//! | 20 | find the files that refer to data (see `subvolumes`) | the JSON of an `Outcome` |
//! | 21 | scrub, or report its progress (see `scrub`) | the JSON of a `ScrubAnswer` |
//!
//! An answer is text in pages, since a control over FUSE carries at most 16383 bytes:
//!
//! | bytes | to the mount | back |
//! |---|---|---|
//! | 0 to 7 | offset into the text, little endian | length of the whole text |
//! | 8 to 15 | a key that no other asker uses, the same for all pages | the text from that offset on; |
//! | 16 to 8191 | 0, or the JSON of an order | the rest of the page is 0 |
//!
//! # Invariants
//! - CONTROL-1: all pages belong to one text. Offset 0 makes the text, later offsets read on in it, and the server keeps it until its last
//!   page was read or offset 0 comes again. An offset without a text before it returns nothing. The server does not notice when
//!   an asker leaves, so the oldest text is dropped when there are too many.
//!   Shown by `pages_make_up_one_text`, `there_is_no_text_for_others_or_after_its_last_page`, `of_too_many_texts_the_oldest_goes`.
//! - CONTROL-2: numbers 1 and 2 change nothing except what is durable. Any process that may open a directory may send them: the only names in the
//!   answers are those of counters and of the log. Numbers 3 and 4 are for the mounter and root alone; those from 5 on are checked against
//!   their target. 13 and 14, which return names, are for the mounter and root again, as are 16, 18, 20 and 21, and 19 if it changes something. Number 15 is for any process
//!   that could open the file, 17 for the file's owner, too, if the mount is writable.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Result};
use creamery_device::{DeviceId, ImageName};
use creamery_fs::{Filesystem, Statistics};
use creamery_fuse::protocol::IoctlFlags;
use creamery_fuse::{
    Errno, HeldMount, IoctlReply, IoctlRequest, RequestContext, RequestCounts, control, control_number,
};
use rustix::fs::OFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::asker::Asker;
use crate::closing::Watchers;
use crate::fitrim::{self, FITRIM};
use crate::lost_writes::LostWrites;
use crate::options::{Compression, Writing};
use crate::sync_callers::SyncCallers;
use crate::table::{MountedImage, mount_of, mounted_at, point_of};
use crate::why::Why;

/// Bytes of a page.
pub(crate) const PAGE: usize = 8192;
/// Offset of the text in a page.
pub(crate) const HEAD: usize = 8;
/// Bytes of the asker's key.
pub(crate) const KEY: usize = 8;
/// The ioctl type of these controls.
pub(crate) const GROUP: u8 = 0xe6;
/// Texts that askers may be reading at once.
const TEXTS_MAX: usize = 256;
/// The numbers of the controls.
pub(crate) const STATISTICS: u32 = control_number::<PAGE>(GROUP, 1);
pub(crate) const O_DIRECTORY: i32 = OFlags::DIRECTORY.bits().cast_signed();
pub(crate) const SYNC: u32 = control_number::<PAGE>(GROUP, 2);
pub(crate) const WATCH: u32 = control_number::<PAGE>(GROUP, 3);
const TRIM: u32 = control_number::<PAGE>(GROUP, 4);
const COMPRESS: u32 = control_number::<PAGE>(GROUP, 16);
/// Bytes of the longest text that is accepted: an answer has some hundred bytes for each tree, and no mount has so many open.
const TEXT_MAX: usize = 64 << 20;

/// The order in a page, if there is one. Errors: it is not an order of this kind.
pub(crate) fn order_in<T: DeserializeOwned>(page: &[u8]) -> creamery_fuse::Result<Option<T>> {
    let order = page.get(HEAD + KEY..).unwrap_or_default();
    match order.iter().rposition(|byte| *byte != 0) {
        None => Ok(None),
        Some(last) => serde_json::from_slice(&order[..=last]).map(Some).map_err(|_| Errno::EINVAL),
    }
}

/// Statistics of a mount since it was made.
///
/// ```
/// let none: creamery_mount::MountStatistics = serde_json::from_str("{}").unwrap();
/// assert_eq!(none.filesystem.commits.count, 0);
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct MountStatistics {
    /// Seconds since the server began to answer.
    pub mounted_seconds: u64,
    /// The server's log file; `None` if there is none.
    pub log: Option<String>,
    /// The identity of each image, independent of its name: filesystem and inode number of the file, or 0 and the
    /// number of the block device; and the offset of the image in it, bytes. A filesystem of several devices has several.
    pub images: Vec<[u64; 3]>,
    /// Whether the server has opened the image for reading only, so that it cannot be remounted writable.
    pub opened_for_reading: bool,
    /// Writebacks of mapped pages that failed. msync and fsync report them; the data is lost.
    pub lost_writes: u64,
    /// Requests of the kernel, by their names in the protocol ("lookup", "batch_forget"). A kind without requests has no entry.
    pub requests: BTreeMap<String, Requests>,
    /// The server's options for writing.
    pub writing: Writing,
    /// Statistics of the filesystem.
    pub filesystem: Statistics,
}

/// Requests of one kind.
///
/// ```
/// assert_eq!(creamery_mount::Requests::default().count, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// Number of requests.
    pub count: u64,
    /// Total time that the filesystem took for them, microseconds; without the way to the kernel and back.
    pub sum_micros: u64,
}

/// The result of a sync.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Synced {
    /// The error message, if it failed.
    failure: Option<String>,
    /// The kind of the failure.
    why: Why,
}

impl Synced {
    fn new(synced: Result<()>) -> Self {
        match synced {
            Ok(()) => Self::default(),
            Err(error) => Self { failure: Some(error.without_kind()), why: Why::of(error.kind()) },
        }
    }
}

/// The mount's end of the control channel.
pub(crate) struct Control {
    begun: Instant,
    log: Option<String>,
    writing: Writing,
    watchers: Arc<Watchers>,
    lost_writes: Arc<LostWrites>,
    sync_callers: SyncCallers,
    /// Texts that askers are reading, the latest last, by the key of the asker.
    texts: RankedMutex<VecDeque<([u8; 8], Vec<u8>)>, { rank::LEAF }>,
}

impl Control {
    pub(crate) fn new(log: Option<String>, writing: Writing) -> Self {
        Self {
            begun: Instant::now(),
            log,
            writing,
            watchers: Arc::default(),
            lost_writes: Arc::default(),
            sync_callers: SyncCallers::default(),
            texts: RankedMutex::default(),
        }
    }

    /// The kernel's own writes that failed.
    pub(crate) fn lost_writes(&self) -> &Arc<LostWrites> {
        &self.lost_writes
    }

    /// The processes that wait for the end of the mount.
    pub(crate) fn watchers(&self) -> &Arc<Watchers> {
        &self.watchers
    }

    /// Makes everything durable, with the identity of the user of the thread `pid`.
    pub(crate) fn sync(&self, fs: &Filesystem, pid: u32) -> Result<()> {
        fs.sync_as(&self.sync_callers.of(pid))
    }

    /// Answers a control; `None` if it is not one of these.
    pub(crate) fn answer(
        &self,
        asker: &RequestContext<'_>,
        ioctl: &IoctlRequest,
        input: &[u8],
        output: &mut [u8],
        (fs, requests): (&Filesystem, Option<&RequestCounts>),
    ) -> Option<creamery_fuse::Result<IoctlReply>> {
        Some(match ioctl.command {
            _ if !ioctl.flags.contains(IoctlFlags::DIR) => return None,
            STATISTICS => self.page(input, output, || text_of(&self.gather(fs, requests))),
            SYNC => self.page(input, output, || {
                text_of(&Synced::new(fs.settle_as(&self.sync_callers.of(asker.pid))))
            }),
            WATCH => self.watchers.add(&Asker::of(asker.pid), input).map(|()| IoctlReply::default()),
            FITRIM => fitrim::answer(fs, asker.pid, input, output),
            TRIM => fitrim::answer_in_person(fs, asker.pid, input).map(|()| IoctlReply::default()),
            COMPRESS => set_compression(fs, asker.pid, input).map(|()| IoctlReply::default()),
            _ => return None,
        })
    }

    /// Gathers the statistics from their counters.
    fn gather(&self, fs: &Filesystem, requests: Option<&RequestCounts>) -> MountStatistics {
        let requests = requests.into_iter().flat_map(RequestCounts::all).map(|(opcode, seen)| {
            let sum_micros = u64::try_from(seen.time.as_micros()).unwrap_or(u64::MAX);
            (words(&format!("{opcode:?}")), Requests { count: seen.count, sum_micros })
        });
        MountStatistics {
            mounted_seconds: self.begun.elapsed().as_secs(),
            log: self.log.clone(),
            images: fs.engine().volume().device_ids().into_iter().map(DeviceId::numbers).collect(),
            opened_for_reading: fs.engine().is_opened_for_reading(),
            lost_writes: self.lost_writes.count(),
            requests: requests.collect(),
            writing: Writing { compression: Compression::of(fs.compress()), ..self.writing.clone() },
            filesystem: fs.statistics(),
        }
    }

    /// Answers one page of the text; `take` makes the text.
    pub(crate) fn page(
        &self,
        input: &[u8],
        output: &mut [u8],
        take: impl FnOnce() -> creamery_fuse::Result<Vec<u8>>,
    ) -> creamery_fuse::Result<IoctlReply> {
        let (Some((offset, rest)), PAGE) = (input.split_first_chunk::<HEAD>(), output.len()) else {
            return Err(Errno::EINVAL);
        };
        let asker = *rest.first_chunk().ok_or(Errno::EINVAL)?;
        let offset = u64::from_le_bytes(*offset);
        let text = if offset == 0 { take()? } else { self.text_for(asker) };
        let rest = usize::try_from(offset).ok().and_then(|offset| text.get(offset..)).unwrap_or_default();
        let (head, body) = output.split_at_mut(HEAD);
        head.copy_from_slice(&(text.len() as u64).to_le_bytes());
        let len = rest.len().min(body.len());
        body[..len].copy_from_slice(&rest[..len]);
        body[len..].fill(0);
        if len < rest.len() {
            self.keep_text(asker, text);
        }
        Ok(IoctlReply { result: 0, len: PAGE })
    }

    /// Takes the text that an asker is reading.
    fn text_for(&self, asker: [u8; 8]) -> Vec<u8> {
        let mut texts = self.texts.lock();
        let at = texts.iter().position(|(of, _)| *of == asker);
        at.and_then(|at| texts.remove(at)).map(|(_, text)| text).unwrap_or_default()
    }

    /// Keeps a text for the next page, in place of an older one of the same asker.
    fn keep_text(&self, asker: [u8; 8], text: Vec<u8>) {
        drop(self.text_for(asker));
        let mut texts = self.texts.lock();
        if texts.len() >= TEXTS_MAX {
            texts.pop_front();
        }
        texts.push_back((asker, text));
    }
}

/// Sets the compression of new data from the order in a page, if the asker administrates the mount.
fn set_compression(fs: &Filesystem, asker: u32, page: &[u8]) -> creamery_fuse::Result<()> {
    if !Asker::of(asker).administrates() {
        return Err(Errno::EPERM);
    }
    let wanted: Compression = order_in(page)?.ok_or(Errno::EINVAL)?;
    fs.set_compress(wanted.read().map_err(|_| Errno::EINVAL)?);
    Ok(())
}

fn text_of(answer: &impl Serialize) -> creamery_fuse::Result<Vec<u8>> {
    serde_json::to_vec(answer).map_err(|_| Errno::EIO)
}

/// Converts `BatchForget` to `batch_forget`.
fn words(name: &str) -> String {
    let mut out = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// Gets the statistics of the live mount that `place` names: by its image, or by a directory in it.
/// Errors: `place` does not exist; it is not mounted, or another user mounted it; the server died, or does not know the control.
///
/// ```no_run
/// let done = creamery_mount::statistics("/mnt".as_ref())?;
/// println!("{} commits", done.filesystem.commits.count);
/// # Ok::<(), creamery_base::Error>(())
/// ```
pub fn statistics(place: &Path) -> Result<MountStatistics> {
    Channel::open(&find_around(place)?)?.statistics()
}

/// Makes all changes on a live mount durable, including mapped pages that only the kernel has. `place` names the mount by its image, or by a directory in it.
/// It does the work of syncfs(2), which does not reach a FUSE server.
/// Errors: the reason why changes are not durable; those of [`statistics`].
///
/// ```no_run
/// creamery_mount::sync("/mnt".as_ref())?;
/// # Ok::<(), creamery_base::Error>(())
/// ```
pub fn sync(place: &Path) -> Result<()> {
    Channel::open(&find_around(place)?)?.sync()
}

/// Discards the free space, in pieces of at least `min` bytes, of the live mount that `place` names: by its image, or by a directory
/// in it. Returns the number of discarded bytes. Only the mounter and root may do that.
/// Errors: permission denied; those of [`Filesystem::trim`]; those of [`statistics`].
///
/// ```no_run
/// println!("{} bytes", creamery_mount::trim("/mnt".as_ref(), 0)?);
/// # Ok::<(), creamery_base::Error>(())
/// ```
pub fn trim(place: &Path, min: u64) -> Result<u64> {
    let mounted = find_around(place)?;
    let channel = Channel::open(&mounted)?;
    fitrim::ask_in_person(mounted.mounter, min, |message| channel.tell::<TRIM>(message))
}

/// The asker's end of the channel. It keeps the mount busy.
#[derive(Debug)]
pub(crate) struct Channel {
    dir: File,
    point: PathBuf,
}

impl Channel {
    pub(crate) fn open(mounted: &MountedImage) -> Result<Self> {
        let point = mounted.point.clone();
        // Only a directory is opened: if another mount has taken the place, no device node is opened, which could have effects.
        let dir = File::options().read(true).custom_flags(O_DIRECTORY).open(&point);
        let dir = dir.map_err(|error| told(error, &point))?;
        if !mounted.is_reached() {
            return Err(mounted.hidden());
        }
        Ok(Self::of(dir, point))
    }

    /// Opens a channel to the server of a held mount, whose path is `point`.
    pub(crate) fn through(held: &HeldMount, point: &Path) -> Result<Self> {
        let dir = held.open_root().map_err(|error| told(error, point))?;
        Ok(Self::of(dir, point.to_owned()))
    }

    /// Makes a channel from an open directory, whose path is `point`.
    pub(crate) const fn of(dir: File, point: PathBuf) -> Self {
        Self { dir, point }
    }

    pub(crate) fn statistics(&self) -> Result<MountStatistics> {
        self.ask::<STATISTICS, _>()
    }

    pub(crate) fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(&self.dir).map_err(|errno| told(errno.into(), &self.point))?;
        let Synced { failure, why } = self.ask::<SYNC, Synced>()?;
        let told = |failure| Error::new(why.kind(), format!("{}: {failure}", self.point.display()));
        failure.map_or(Ok(()), |failure| Err(told(failure)))
    }

    /// Sets the compression of new data.
    pub(crate) fn compress(&self, compression: &Compression) -> Result<()> {
        let order = serde_json::to_vec(compression).expect("an order is no problem for JSON");
        self.tell::<COMPRESS>(&[&[0; HEAD + KEY], &order[..]].concat())
    }

    /// Sends a message whose answer has no text.
    pub(crate) fn tell<const NUMBER: u32>(&self, message: &[u8]) -> Result<()> {
        let mut page = [0; PAGE];
        page[..message.len()].copy_from_slice(message);
        control::<NUMBER, PAGE>(&self.dir, &mut page).map_err(|error| told(error, &self.point))
    }

    fn ask<const NUMBER: u32, Answer: DeserializeOwned>(&self) -> Result<Answer> {
        self.ask_text::<NUMBER, Answer>(new_key(), &[])
    }

    /// Sends `order` with the key `key` and reads the answer.
    pub(crate) fn ask_with<const NUMBER: u32, Answer: DeserializeOwned>(
        &self,
        key: [u8; KEY],
        order: &impl Serialize,
    ) -> Result<Answer> {
        let order = serde_json::to_vec(order).expect("an order is no problem for JSON");
        self.ask_text::<NUMBER, Answer>(key, &order)
    }

    fn ask_text<const NUMBER: u32, Answer: DeserializeOwned>(
        &self,
        key: [u8; KEY],
        order: &[u8],
    ) -> Result<Answer> {
        if order.len() > PAGE - HEAD - KEY {
            return Err(Error::new(ErrorKind::NameTooLong, self.point.display().to_string()));
        }
        let text = read_text::<NUMBER>(&self.dir, key, order).map_err(|error| told(error, &self.point))?;
        serde_json::from_slice(&text).map_err(|error| {
            let what = format!("{}: reading the answer of the mount", self.point.display());
            Error::with_source(ErrorKind::Io, what, error)
        })
    }
}

fn find(place: &Path) -> Result<MountedImage> {
    // The directory itself is not examined: its server may have died, and then reading its attributes fails.
    match ImageName::metadata(place) {
        Ok(meta) if !meta.is_dir() => mount_of(place)?
            .ok_or_else(|| Error::invalid(format!("{}: no mount of this image is visible", place.display()))),
        // The image may be removed since.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            mount_of(place)?.ok_or_else(|| Error::from(error).context(place.display()))
        }
        _ => mounted_at(place),
    }
}

/// Finds a mount like [`find`], also from a directory below the mount point, as btrfs-progs and fstrim(8) do.
fn find_around(place: &Path) -> Result<MountedImage> {
    find(place).or_else(|error| {
        // The type of a file on a dead mount is unknown.
        let Ok(Some((point, _))) = point_of(place) else { return Err(error) };
        mounted_at(&point).map_err(|_| error)
    })
}

/// Whether the error is the kernel's for a mount whose server died.
pub(crate) fn is_of_a_dead_server(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(says_dead)
}

/// Adds advice to the error of a mount whose server died.
pub(crate) fn with_way_out(error: Error, place: &Path) -> Error {
    match is_of_a_dead_server(&error) {
        true => error.advise(format!("use `creamery umount {}`", place.display())),
        false => error,
    }
}

/// Whether a system call on a mount failed because the server died.
pub(crate) fn says_dead(error: &std::io::Error) -> bool {
    use rustix::io::Errno as Raw;
    Raw::from_io_error(error).is_some_and(|errno| [Raw::NOTCONN, Raw::CONNABORTED].contains(&errno))
}

fn told(error: std::io::Error, point: &Path) -> Error {
    use rustix::io::Errno as Raw;
    let raw = Raw::from_io_error(&error);
    let what = match raw {
        Some(Raw::NOTTY) => "the server of this mount does not know this request",
        Some(Raw::NOTCONN | Raw::CONNABORTED) => "the server of this mount has died",
        _ => "asking the mount",
    };
    let told = Error::from(error).context(format_args!("{}: {what}", point.display()));
    let told = with_way_out(told, point);
    match raw {
        Some(Raw::ACCESS) => told.advise("ask as its mounter, or mount it with -o allow_other"),
        Some(Raw::PERM) => told.advise("ask as root or as its mounter"),
        _ => told,
    }
}

/// A random key for an asker.
pub(crate) fn new_key() -> [u8; KEY] {
    RandomState::new().build_hasher().finish().to_le_bytes()
}

fn read_text<const NUMBER: u32>(dir: &File, key: [u8; KEY], order: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    loop {
        let mut page = [0; PAGE];
        page[..HEAD].copy_from_slice(&(text.len() as u64).to_le_bytes());
        page[HEAD..][..KEY].copy_from_slice(&key);
        page[HEAD + KEY..][..order.len()].copy_from_slice(order);
        control::<NUMBER, PAGE>(dir, &mut page)?;
        let (head, body) = page.split_first_chunk::<HEAD>().expect("a page is longer than its head");
        let whole = usize::try_from(u64::from_le_bytes(*head)).unwrap_or(usize::MAX);
        if whole > TEXT_MAX || whole <= text.len() {
            return Err(std::io::Error::other(format!("{whole} bytes of text, {} read", text.len())));
        }
        text.extend_from_slice(&body[..body.len().min(whole - text.len())]);
        if text.len() == whole {
            return Ok(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(control: &Control, asker: u64, offset: u64) -> (u64, Vec<u8>) {
        let mut output = [0xff; PAGE];
        let of = |count| Requests { count, sum_micros: 1 };
        let requests = (0..900).map(|number| (format!("request_{number:03}"), of(number))).collect();
        let take = || text_of(&MountStatistics { requests, ..Default::default() });
        let input = [offset.to_le_bytes(), asker.to_le_bytes()].concat();
        let reply = control.page(&input, &mut output, take);
        assert_eq!(reply.expect("a page").len, PAGE);
        let whole = u64::from_le_bytes(output[..HEAD].try_into().expect("eight bytes"));
        (whole, output[HEAD..].to_vec())
    }

    #[test]
    fn pages_make_up_one_text() {
        let control = Control::new(None, Writing::default());
        let (whole, mut text) = ask(&control, 1, 0);
        while (text.len() as u64) < whole {
            text.extend(ask(&control, 1, text.len() as u64).1);
        }
        let (text, padding) = text.split_at(usize::try_from(whole).expect("small"));
        assert!(text.len() > 2 * PAGE && padding.iter().all(|byte| *byte == 0));
        let told: MountStatistics = serde_json::from_slice(text).expect("whole JSON");
        assert_eq!(told.requests["request_899"].count, 899);
    }

    #[test]
    fn there_is_no_text_for_others_or_after_its_last_page() {
        let control = Control::new(None, Writing::default());
        let (whole, _) = ask(&control, 1, 0);
        let nothing = (0, vec![0; PAGE - HEAD]);
        assert_eq!(ask(&control, 2, 8), nothing);
        assert_eq!(ask(&control, 1, 8).0, whole);
        assert_eq!(ask(&control, 1, whole - 1).0, whole);
        assert_eq!(ask(&control, 1, 8), nothing);
        ask(&control, 1, 0);
        assert_eq!(ask(&control, 1, u64::MAX), (whole, nothing.1.clone()));
        assert_eq!(ask(&control, 1, 8), nothing, "who reads past the end has read it");
    }

    #[test]
    fn of_too_many_texts_the_oldest_goes() {
        let control = Control::new(None, Writing::default());
        for asker in 0..=TEXTS_MAX as u64 {
            ask(&control, asker, 0);
        }
        assert_eq!(ask(&control, 0, 8).0, 0);
        assert!((1..=TEXTS_MAX as u64).all(|asker| ask(&control, asker, 8).0 > 0));
        assert_eq!(control.texts.lock().len(), TEXTS_MAX);
    }

    #[test]
    fn other_sizes_are_refused() {
        let control = Control::new(None, Writing::default());
        let page = |input: &[u8], len| control.page(input, &mut vec![0; len], || Ok(Vec::new()));
        for (input, len) in [(&[0; 7][..], PAGE), (&[0; 15], PAGE), (&[0; 16], PAGE - 1), (&[], 0)] {
            assert_eq!(page(input, len), Err(Errno::EINVAL));
        }
    }

    #[test]
    fn requests_are_named_as_the_protocol_writes_them() {
        assert_eq!(words("BatchForget"), "batch_forget");
        assert_eq!(words("CopyFileRange64"), "copy_file_range64");
        assert_eq!(words("Rename2"), "rename2");
    }
}
