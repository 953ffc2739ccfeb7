//! One file as the host shows it.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail};
use rustix::fs::{OFlags, SeekFrom, lgetxattr, lgetxattr_query, llistxattr, llistxattr_query, seek};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

/// Above this size only the data ranges of a file are hashed: a hole of a tebibyte must not be read.
const READ_WHOLE_MAX: u64 = 256 << 20;
/// Bytes read at a time, at most: most files are small, and there are very many of them.
const BUFFER_MAX: u64 = 1 << 20;
const RANGES_MAX: usize = 1 << 22;

/// Seconds and nanoseconds since 1970, earlier times being negative seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds on top, always positive.
    pub nanoseconds: i64,
}

/// What is compared of one file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of stat(2)")]
pub struct Entry {
    pub kind: &'static str,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub size: u64,
    pub atime: Moment,
    pub mtime: Moment,
    pub ctime: Moment,
    pub btime: Option<Moment>,
    pub nlink: u64,
    /// All paths of this inode in the tree, when it has several.
    pub links: Vec<Vec<u8>>,
    pub target: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Ranges of data, `[start, end)`; what lies between them is a hole.
    pub data: Vec<(u64, u64)>,
    pub content: [u8; 32],
}

impl Entry {
    /// Reads everything about the file at `path`.
    pub(super) fn read(path: &Path, stat: &Metadata) -> Result<Self> {
        let moment = |seconds, nanoseconds| Moment { seconds, nanoseconds };
        let mut entry = Self {
            kind: kind(stat)?,
            mode: stat.mode() & 0o7777,
            uid: stat.uid(),
            gid: stat.gid(),
            rdev: stat.rdev(),
            size: stat.size(),
            atime: moment(stat.atime(), stat.atime_nsec()),
            mtime: moment(stat.mtime(), stat.mtime_nsec()),
            ctime: moment(stat.ctime(), stat.ctime_nsec()),
            btime: birth(stat),
            nlink: stat.nlink(),
            links: Vec::new(),
            target: Vec::new(),
            xattrs: xattrs(path)?,
            data: Vec::new(),
            content: [0; 32],
        };
        if stat.is_symlink() {
            entry.target = std::fs::read_link(path)?.into_os_string().into_vec();
        } else if stat.is_file() {
            let mut file = open_quietly(path)?;
            entry.data = data_ranges(&file, stat.size())?;
            entry.content = content(&mut file, stat.size(), &entry.data)?;
        }
        Ok(entry)
    }
}

fn kind(stat: &Metadata) -> Result<&'static str> {
    let kind = stat.file_type();
    Ok(match () {
        () if kind.is_file() => "file",
        () if kind.is_dir() => "folder",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "character device",
        () if kind.is_block_device() => "block device",
        () => bail!("a type of file that nobody knows"),
    })
}

fn birth(stat: &Metadata) -> Option<Moment> {
    let created = stat.created().ok()?;
    match created.duration_since(UNIX_EPOCH) {
        Ok(after) => {
            let seconds = i64::try_from(after.as_secs()).ok()?;
            Some(Moment { seconds, nanoseconds: i64::from(after.subsec_nanos()) })
        }
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).ok()?;
            match i64::from(before.subsec_nanos()) {
                0 => Some(Moment { seconds: -seconds, nanoseconds: 0 }),
                part => Some(Moment { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - part }),
            }
        }
    }
}

/// Opens without touching the access time, where the caller owns the file.
fn open_quietly(path: &Path) -> Result<File> {
    let quietly = OFlags::NOATIME.bits().cast_signed();
    match File::options().read(true).custom_flags(quietly).open(path) {
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => Ok(File::open(path)?),
        other => Ok(other?),
    }
}

fn xattrs(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names =
        vec![0; llistxattr_query(path).or_else(none_where_unsupported).context("listing xattrs")?];
    let len = if names.is_empty() { 0 } else { llistxattr(path, names.as_mut_slice())? };
    names.truncate(len);
    let mut found = BTreeMap::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let shown = || format!("reading xattr {}", String::from_utf8_lossy(name));
        let mut value = vec![0; lgetxattr_query(path, name).with_context(shown)?];
        let len = if value.is_empty() {
            0
        } else {
            lgetxattr(path, name, value.as_mut_slice()).with_context(shown)?
        };
        value.truncate(len);
        if found.insert(name.to_vec(), value).is_some() {
            bail!("xattr {} is listed twice", String::from_utf8_lossy(name));
        }
    }
    Ok(found)
}

fn none_where_unsupported(error: Errno) -> rustix::io::Result<usize> {
    if error == Errno::OPNOTSUPP { Ok(0) } else { Err(error) }
}

/// The partition of a file into data and holes, as SEEK_DATA and SEEK_HOLE tell it; both must agree.
fn data_ranges(file: &File, size: u64) -> Result<Vec<(u64, u64)>> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error).context(format!("SEEK_DATA from {at}")),
        };
        let end = seek(file, SeekFrom::Hole(start)).with_context(|| format!("SEEK_HOLE from {start}"))?;
        if start < at || end <= start {
            bail!("from {at}, SEEK_DATA says {start} and SEEK_HOLE from there says {end}");
        }
        match ranges.last_mut() {
            Some(last) if last.1 == start => last.1 = end.min(size),
            _ => ranges.push((start, end.min(size))),
        }
        if ranges.len() > RANGES_MAX {
            bail!("more than {RANGES_MAX} ranges of data");
        }
        at = end;
    }
    Ok(ranges)
}

fn content(file: &mut File, size: u64, data: &[(u64, u64)]) -> Result<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; size.clamp(1, BUFFER_MAX) as usize];
    let whole = [(0, size)];
    let ranges = if size <= READ_WHOLE_MAX { &whole[..] } else { data };
    for &(start, end) in ranges {
        seek(&*file, SeekFrom::Start(start))?;
        let mut left = end - start;
        while left > 0 {
            let part = left.min(buffer.len() as u64) as usize;
            let len = file.read(&mut buffer[..part]).with_context(|| format!("reading at {}", end - left))?;
            if len == 0 {
                bail!("the file ends at {} and its size is {size}", end - left);
            }
            hash.update(&buffer[..len]);
            left -= len as u64;
        }
    }
    if size <= READ_WHOLE_MAX && file.read(&mut buffer)? != 0 {
        bail!("the file goes on after its size of {size}");
    }
    Ok(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::data_ranges;
    use crate::Scratch;

    #[test]
    fn holes_are_seen_between_data() {
        let scratch = Scratch::new("holes").unwrap();
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(scratch.file("sparse"))
            .unwrap();
        file.write_all_at(&[1; 4096], 65536).unwrap();
        file.set_len(200_000).unwrap();
        assert_eq!(data_ranges(&file, 200_000).unwrap(), [(65536, 65536 + 4096)]);
    }
}
