//! Defragments a file of a live mount: by our control, which returns error messages, and by `BTRFS_IOC_DEFRAG_RANGE`, which
//! btrfs-progs sends. Both are sent to the file itself, by its owner, root or the mounter.
//!
//! `BTRFS_IOC_DEFRAG_RANGE` (`_IOW(0x94, 16, struct btrfs_ioctl_defrag_range_args)`, linux/btrfs.h) carries 48 bytes:
//!
//! | bytes | |
//! |---|---|
//! | 0 to 15 | offset and length of the range |
//! | 16 to 23 | flags: compress (1), start writing (2), the level is set, too (4), decompress (8) |
//! | 24 to 27 | extents of this length or longer stay; 0 stands for 256 KiB |
//! | 28 to 31 | the algorithm: 1 is zlib, as is 0, 2 LZO, 3 zstd; with a level it is only the first byte, and the next one is the level |

use creamery_base::{ErrorKind, InodeId, Result, Wait};
use creamery_fs::{Compress, Defragment, Filesystem, OpenFile, Recompress};
use creamery_fuse::{Errno, IoctlReply, control_number};
use serde::{Deserialize, Serialize};

use crate::access_times::Watched;
use crate::asker::Asker;
use crate::control::{GROUP, PAGE, new_key, order_in};
use crate::live_file::LiveFile;
use crate::options::Owner;
use crate::rights::{Judged, WRITE};
use crate::why::BytesDone;

pub(crate) const DEFRAGMENT: u32 = control_number::<PAGE>(GROUP, 17);
pub(crate) const DEFRAGMENT_OF_LINUX: u32 = 0x4030_9410;
/// Bytes of `struct btrfs_ioctl_defrag_range_args`.
const ARGS_LEN: usize = 48;
const THRESHOLD_OF_LINUX: u64 = 256 << 10;

const COMPRESS: u64 = 1;
const START_IO: u64 = 2;
const LEVEL: u64 = 4;
const PLAIN: u64 = 8;

/// An order.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
struct DefragmentOrder {
    offset: u64,
    len: u64,
    threshold: u64,
    /// An algorithm, with or without a level; "none" to decompress.
    compress: Option<String>,
}

impl DefragmentOrder {
    fn new(wanted: &Defragment) -> Self {
        let compress = match wanted.compress {
            Recompress::AsUsual => None,
            Recompress::With(method) => Some(method.to_string()),
            Recompress::Plain => Some("none".to_owned()),
        };
        Self { offset: wanted.offset, len: wanted.len, threshold: wanted.threshold, compress }
    }

    fn read(self) -> creamery_fuse::Result<Defragment> {
        let compress = match self.compress.as_deref() {
            None => Recompress::AsUsual,
            Some("none") => Recompress::Plain,
            Some(method) => recompress(method)?,
        };
        Ok(Defragment { offset: self.offset, len: self.len, threshold: self.threshold, compress })
    }
}

/// A request to defragment a file.
pub(crate) struct DefragmentRequest<'a> {
    pub(crate) fs: &'a Filesystem,
    pub(crate) id: InodeId,
    pub(crate) file: &'a OpenFile,
    /// The thread that waits for the answer.
    pub(crate) thread: u32,
    pub(crate) owner: Owner,
    pub(crate) row: &'a Watched,
    /// The number of the file's inode.
    pub(crate) number: u64,
    pub(crate) is_interrupted: &'a dyn Fn() -> bool,
}

impl DefragmentRequest<'_> {
    /// Errors: `EPERM`, as on Linux, for a caller that may neither write to the file nor administrate.
    fn may(&self) -> creamery_fuse::Result<()> {
        let asker = Asker::of(self.thread);
        let judged = Judged::of(self.fs, self.owner, self.id);
        let may_write = judged.is_ok_and(|judged| judged.check_access(&asker, WRITE).is_ok());
        if may_write || asker.administrates() { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Defragments, as long as the mount is writable.
    fn run(&self, wanted: &Defragment) -> Result<u64> {
        let (mut at, mut done) = (wanted.offset, 0);
        loop {
            let _right = self.row.write_unasked(self.thread, self.number).map_err(|_| ErrorKind::ReadOnly)?;
            match self.file.defragment_step(wanted, at, self.is_interrupted)? {
                Some((reached, bytes)) => (at, done) = (reached, done + bytes),
                None => return Ok(done),
            }
        }
    }
}

/// The mount's end: the text of the answer to the order in `page`.
pub(crate) fn answer(asked: &DefragmentRequest<'_>, page: &[u8]) -> creamery_fuse::Result<Vec<u8>> {
    asked.may()?;
    let wanted = order_in::<DefragmentOrder>(page)?.ok_or(Errno::EINVAL)?.read()?;
    let outcome = BytesDone::of(asked.run(&wanted));
    serde_json::to_vec(&outcome).map_err(|_| Errno::EIO)
}

/// Carries out `BTRFS_IOC_DEFRAG_RANGE`.
pub(crate) fn answer_of_linux(
    asked: &DefragmentRequest<'_>,
    input: &[u8],
) -> creamery_fuse::Result<IoctlReply> {
    asked.may()?;
    let wanted = of_linux(input)?;
    let size = asked.file.stat(Wait::Yes)?.size;
    if size == 0 {
        return Ok(IoctlReply::default());
    }
    if wanted.offset >= size {
        return Err(Errno::EINVAL);
    }
    asked.run(&wanted)?;
    Ok(IoctlReply::default())
}

fn of_linux(input: &[u8]) -> creamery_fuse::Result<Defragment> {
    let input: &[u8; ARGS_LEN] = input.try_into().map_err(|_| Errno::EINVAL)?;
    let word = |at: usize| u64::from_le_bytes(input[at..at + 8].try_into().expect("eight of 48 bytes"));
    let half = |at: usize| u32::from_le_bytes(input[at..at + 4].try_into().expect("four of 48 bytes"));
    let (flags, threshold) = (word(16), u64::from(half(24)));
    if flags & !(COMPRESS | START_IO | LEVEL | PLAIN) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let compress = match flags & (COMPRESS | PLAIN) {
        0 => Recompress::AsUsual,
        COMPRESS => method(flags & LEVEL != 0, half(28))?,
        PLAIN => Recompress::Plain,
        _ => return Err(Errno::EINVAL),
    };
    let threshold = if threshold == 0 { THRESHOLD_OF_LINUX } else { threshold };
    // A range with length 0 goes to the end of the file.
    let len = if word(8) == 0 { u64::MAX } else { word(8) };
    Ok(Defragment { offset: word(0), len, threshold, compress })
}

fn method(has_level: bool, told: u32) -> creamery_fuse::Result<Recompress> {
    let [kind, level, ..] = told.to_le_bytes();
    let kind = match if has_level { u32::from(kind) } else { told } {
        0 | 1 => "zlib",
        2 => "lzo",
        3 => "zstd",
        _ => return Err(Errno::EINVAL),
    };
    let level = if has_level && kind != "lzo" { format!(":{}", level.cast_signed()) } else { String::new() };
    recompress(&format!("{kind}{level}"))
}

fn recompress(text: &str) -> creamery_fuse::Result<Recompress> {
    text.parse().map(|Compress { method, .. }| Recompress::With(method)).map_err(|_| Errno::EINVAL)
}

impl LiveFile {
    /// Defragments the file like [`OpenFile::defragment`]. Returns the number of bytes rewritten.
    /// Errors: those of [`OpenFile::defragment`]; the caller may not write to the file, and is neither root nor the mounter; the server died, or does not know the
    /// control.
    ///
    /// ```no_run
    /// let file = creamery_mount::LiveFile::open("/mnt/disk".as_ref())?.expect("a mount of an image");
    /// println!("{} bytes", file.defragment(&creamery_fs::Defragment::default())?);
    /// # Ok::<(), creamery_base::Error>(())
    /// ```
    pub fn defragment(&self, wanted: &Defragment) -> Result<u64> {
        let order = DefragmentOrder::new(wanted);
        self.channel().ask_with::<DEFRAGMENT, BytesDone>(new_key(), &order)?.into_result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(offset: u64, flags: u64, threshold: u32, kind: u32) -> Vec<u8> {
        let mut bytes = [offset.to_le_bytes(), u64::MAX.to_le_bytes(), flags.to_le_bytes()].concat();
        bytes.extend(threshold.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.resize(ARGS_LEN, 0);
        bytes
    }

    #[test]
    fn what_btrfs_progs_asks_for_is_read_or_refused() {
        let with = |text: &str| Recompress::With(text.parse().expect("a method"));
        let rows = [
            ((0, 0, 0), Ok((256 << 10, Recompress::AsUsual))),
            ((2, 32 << 20, 0), Ok((32 << 20, Recompress::AsUsual))),
            ((1, 1, 0), Ok((1, with("zlib")))),
            ((3, 1, 2), Ok((1, with("lzo")))),
            ((1, 1, 3), Ok((1, with("zstd")))),
            ((1, 1, 4), Err(Errno::EINVAL)),
            ((1, 1, 0x0903), Err(Errno::EINVAL)),
            ((5, 1, 0x0903), Ok((1, with("zstd:9")))),
            ((5, 1, 0xfd03), Ok((1, with("zstd:-3")))),
            ((8, 1, 0), Ok((1, Recompress::Plain))),
            ((9, 1, 0), Err(Errno::EINVAL)),
            ((16, 1, 0), Err(Errno::EOPNOTSUPP)),
        ];
        for ((flags, threshold, kind), wanted) in rows {
            let read = of_linux(&args(4096, flags, threshold, kind));
            let read = read.map(|read| (read.threshold, read.compress));
            assert_eq!(read, wanted, "{flags} {threshold} {kind:#x}");
        }
        let mut all = args(4096, 0, 0, 0);
        all[8..16].fill(0);
        assert_eq!(of_linux(&all).map(|read| (read.offset, read.len)), Ok((4096, u64::MAX)));
        for len in [0, ARGS_LEN - 1, ARGS_LEN + 1] {
            assert_eq!(of_linux(&vec![0; len]), Err(Errno::EINVAL));
        }
    }

    #[test]
    fn an_order_is_read_as_it_was_meant() {
        for compress in ["none", "zstd:5", "lzo", ""] {
            let compress = match compress {
                "" => Recompress::AsUsual,
                "none" => Recompress::Plain,
                method => Recompress::With(method.parse().expect("a method")),
            };
            let wanted = Defragment { offset: 7, len: u64::MAX, threshold: 1 << 20, compress };
            let json = serde_json::to_vec(&DefragmentOrder::new(&wanted)).expect("JSON");
            assert_eq!(
                serde_json::from_slice::<DefragmentOrder>(&json).expect("an order").read(),
                Ok(wanted)
            );
        }
    }
}
