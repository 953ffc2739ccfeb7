//! Loop devices, with the backing file and the bytes of each.

use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Sectors, as the kernel counts them in sysfs.
const SECTOR: u64 = 512;

/// A loop device with a backing file.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    /// The kernel's name, for example `loop0`.
    pub(crate) name: String,
    /// The file's name when it was attached. By now the name may lead to another file, or to none.
    pub(crate) path: PathBuf,
    /// Device and inode number of the file, if they can be determined.
    file: Option<(u64, u64)>,
    /// The range of the file.
    pub(crate) bytes: Range<u64>,
}

impl LoopDevice {
    /// Returns the loop device `name`. `None` if it is no loop device, or has no backing file.
    fn named(name: String) -> Option<Self> {
        let told = |what: &str| fs::read_to_string(format!("/sys/block/{name}/loop/{what}")).ok();
        let number = |what: &str| told(what).and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let path = told("backing_file")?;
        let path = PathBuf::from(path.strip_suffix('\n').unwrap_or(&path));
        let (start, len) = (number("offset"), number("sizelimit"));
        let bytes = part(&(0..u64::MAX), start, len);
        let file =
            file_behind(&name).or_else(|| fs::metadata(&path).ok().map(|file| (file.dev(), file.ino())));
        Some(Self { name, path, file, bytes })
    }

    /// Returns all loop devices with a backing file.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let names = blocks.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with("loop")).filter_map(Self::named)
    }

    /// Returns the loop device at this place in sysfs. For a partition of a loop device, returns that device with the partition's bytes.
    pub(crate) fn at(sys: &Path) -> Option<Self> {
        let sys = fs::canonicalize(sys).ok()?;
        let name = |sys: &Path| Some(sys.file_name()?.to_str()?.to_owned());
        if !sys.join("partition").exists() {
            return Self::named(name(&sys)?);
        }
        let number = |what: &str| fs::read_to_string(sys.join(what)).ok()?.trim().parse::<u64>().ok();
        let whole = Self::named(name(sys.parent()?)?)?;
        let bytes =
            part(&whole.bytes, number("start")?.checked_mul(SECTOR)?, number("size")?.checked_mul(SECTOR)?);
        Some(Self { bytes, ..whole })
    }

    /// Returns device and inode number of its backing file, if they can be determined.
    pub(crate) const fn file(&self) -> Option<(u64, u64)> {
        self.file
    }

    /// Whether `file` is its backing file.
    pub(crate) fn is_on(&self, file: &fs::Metadata) -> bool {
        self.file == Some((file.dev(), file.ino()))
    }

    /// Whether `other` is another loop device with some of the same bytes.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let overlap = self.bytes.start < other.bytes.end && other.bytes.start < self.bytes.end;
        self.name != other.name && self.file.is_some() && self.file == other.file && overlap
    }

    /// Opens its backing file by name; `None` if the name leads to another file by now, or to none. `writes`: open for writing, too.
    pub(crate) fn open_file(&self, writes: bool) -> Option<File> {
        // Checked before the open: opening a fifo would wait for its other end.
        let metadata = fs::metadata(&self.path).ok()?;
        let kind = metadata.file_type();
        if !self.is_on(&metadata) || !(kind.is_file() || kind.is_block_device()) {
            return None;
        }
        let file = File::options().read(true).write(writes).open(&self.path).ok()?;
        file.metadata().is_ok_and(|metadata| self.is_on(&metadata)).then_some(file)
    }

    /// Returns the path of its node.
    pub(crate) fn node(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }
}

/// Returns `len` bytes of `whole` from `start` on; all following bytes if `len` is 0.
fn part(whole: &Range<u64>, start: u64, len: u64) -> Range<u64> {
    let start = whole.start.saturating_add(start);
    let end = if len == 0 { whole.end } else { start.saturating_add(len).min(whole.end) };
    start..end
}

/// Returns device and inode number of a loop device's backing file, which may have no name any more. `None` without the permission
/// to open the device.
fn file_behind(name: &str) -> Option<(u64, u64)> {
    /// `LOOP_GET_STATUS64`.
    const GET_STATUS: libc::Ioctl = 0x4c05;
    /// The major number of loop devices.
    const LOOP: libc::c_uint = 7;
    let node = File::open(Path::new("/dev").join(name)).ok()?;
    let metadata = node.metadata().ok()?;
    if !metadata.file_type().is_block_device() || libc::major(metadata.rdev()) != LOOP {
        return None;
    }
    // `struct loop_info64`: numbers of the file and the device first, then other fields, names and keys.
    let mut told = [0_u64; 29];
    // SAFETY: the loop driver, whose device it is by its major number, writes one `loop_info64` of 232 bytes through the pointer and
    // keeps nothing; `told` is as large, takes any bytes, and lives across the call.
    let answer = unsafe { libc::ioctl(node.as_raw_fd(), GET_STATUS, told.as_mut_ptr()) };
    (answer == 0).then_some((told[0], told[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_files_end_where_these_do() {
        let whole = 0..u64::MAX;
        assert_eq!(part(&whole, 0, 0), whole);
        assert_eq!(part(&whole, 4096, 0), 4096..u64::MAX);
        assert_eq!(part(&whole, 4096, 4096), 4096..8192);
        assert_eq!(part(&(4096..8192), 2048, 4096), 6144..8192);
        assert_eq!(part(&whole, u64::MAX, 1), u64::MAX..u64::MAX);
    }
}
