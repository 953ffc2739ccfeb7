//! Decides which accesses move access times, by the options of the mount.
//!
//! Linux marks every inode of a FUSE mount as one whose access time the kernel does not move. The server must do that for the accesses
//! that reach it, and must know the flags of the mount. It gets them when it mounts. A later change
//! (`mount -o remount`) only reaches the kernel. So the server reads the mount table when it is asked to make everything
//! durable, which `remount` does after a change.
//!
//! An unprivileged mount shows the flags that `fusermount3` knows, which are not all requested flags. So the table
//! counts only after its row differs from the first one.

use std::path::PathBuf;
use std::sync::OnceLock;

use creamery_base::lock::{RankedMutex, RankedRead, RankedRwLock, rank};
use creamery_fs::{Atime, AtimeOptions, Filesystem};
use creamery_fuse::{Errno, MountOptions};

use crate::table::{device_at, flags_at};
use crate::way;

/// The options of a new mount.
pub(crate) fn of_options(options: &MountOptions) -> AtimeOptions {
    of_flags(|flag| options.has(flag))
}

/// Interprets flags, as Linux does.
fn of_flags(has: impl Fn(&str) -> bool) -> AtimeOptions {
    let atime = match () {
        () if has("ro") => Atime::Off,
        () if has("strictatime") => Atime::Strict,
        () if has("noatime") => Atime::Off,
        () => Atime::Relative,
    };
    AtimeOptions { atime, directories: !has("nodiratime"), lazy: has("lazytime") }
}

/// Interprets a row of the mount table, where `strictatime` is the absence of the other flags.
fn of_row(flags: &[String]) -> AtimeOptions {
    let has = |flag: &str| flags.iter().any(|word| word == flag);
    of_flags(|flag| if flag == "strictatime" { !has("noatime") && !has("relatime") } else { has(flag) })
}

/// The right to write without a write request of the kernel.
pub(crate) struct WriteRight<'a>(#[expect(dead_code, reason = "held")] RankedRead<'a, (), { rank::UNASKED }>);

/// The row of a mount in the mount table.
#[derive(Default)]
pub(crate) struct Watched {
    point: OnceLock<PathBuf>,
    /// The device number of all mounts of the filesystem; `None` if the server does not see its own mount.
    device: OnceLock<Option<String>>,
    flags: RankedMutex<Option<Vec<String>>, { rank::LEAF }>,
    /// Held for reading by controls that write without a write request of the kernel.
    unasked: RankedRwLock<(), { rank::UNASKED }>,
}

impl Watched {
    /// Begins with the mount at `point`.
    pub(crate) fn begin(&self, point: PathBuf) {
        *self.flags.lock() = flags_at(&point);
        let _ = self.device.set(device_at(&point));
        assert!(self.point.set(point).is_ok(), "one mount has one place");
    }

    /// Whether the mount is read-only now. The kernel does not notify the server of that, and does not check it before it sends a control.
    pub(crate) fn is_read_only(&self) -> bool {
        let flags = self.point.get().and_then(|point| flags_at(point));
        flags.is_some_and(|flags| flags.iter().any(|word| word == "ro"))
    }

    /// Whether the mount was read-only at the last check.
    pub(crate) fn was_read_only(&self) -> bool {
        self.flags.lock().as_ref().is_some_and(|flags| flags.iter().any(|word| word == "ro"))
    }

    /// The right to write without a write request, for a thread that has the inode `number` open. A mount
    /// that becomes read-only waits until the right is given back.
    /// Errors: the mount is read-only, or the one through which the thread has opened the inode.
    pub(crate) fn write_unasked(&self, thread: u32, number: u64) -> creamery_fuse::Result<WriteRight<'_>> {
        let right = WriteRight(self.unasked.read());
        let device = self.device.get().and_then(Option::as_deref);
        let is_read_only =
            self.is_read_only() || device.is_some_and(|device| !way::is_writable(thread, device, number));
        if is_read_only { Err(Errno::EROFS) } else { Ok(right) }
    }

    /// The right to write in the background, without an open file.
    /// Errors: the mount is read-only.
    pub(crate) fn write_in_background(&self) -> creamery_fuse::Result<WriteRight<'_>> {
        let right = WriteRight(self.unasked.read());
        if self.is_read_only() { Err(Errno::EROFS) } else { Ok(right) }
    }

    /// Applies a change of the row.
    pub(crate) fn look(&self, fs: &Filesystem) {
        let Some(now) = self.point.get().and_then(|point| flags_at(point)) else { return };
        self.wait_for_controls(&now);
        let mut flags = self.flags.lock();
        if flags.as_ref() != Some(&now) {
            fs.set_atime(of_row(&now));
            *flags = Some(now);
        }
    }

    /// If the mount is read-only `now`, waits for the controls that began to write before.
    fn wait_for_controls(&self, now: &[String]) {
        if now.iter().any(|word| word == "ro") {
            drop(self.unasked.write());
        }
    }
}

#[cfg(test)]
mod tests {
    use creamery_testkit::{ThreadWatch, wait_until};

    use super::*;

    #[test]
    fn a_mount_that_becomes_read_only_waits_for_controls_that_write() {
        let (watched, watch) = (Watched::default(), ThreadWatch::default());
        let right = watched.write_unasked(0, 256).expect("the mount is writable");
        watched.wait_for_controls(&["rw".to_owned()]);
        std::thread::scope(|scope| {
            let remount = scope.spawn(|| {
                watch.this_thread();
                watched.wait_for_controls(&["ro".to_owned()]);
            });
            wait_until("the remount", || watch.waits() || remount.is_finished());
            assert!(!remount.is_finished(), "the control has not ended");
            drop(right);
        });
    }

    #[test]
    fn words_of_an_option_list_and_of_the_mount_table_mean_the_same() {
        let relative = AtimeOptions { atime: Atime::Relative, ..AtimeOptions::default() };
        let off = AtimeOptions { atime: Atime::Off, ..relative };
        let strict = AtimeOptions { atime: Atime::Strict, ..relative };
        let rows = [
            ("", "rw,nosuid,relatime", relative),
            ("relatime,noatime", "rw,noatime", off),
            ("noatime,atime", "rw,relatime", relative),
            ("strictatime,relatime", "rw", strict),
            ("strictatime,ro", "ro", off),
            ("nodiratime", "rw,nodiratime,relatime", AtimeOptions { directories: false, ..relative }),
            ("strictatime,lazytime", "rw,lazytime", AtimeOptions { lazy: true, ..strict }),
            ("lazytime,nolazytime", "rw,relatime", relative),
        ];
        for (list, row, want) in rows {
            let mut options = MountOptions::new("disk.img", "creamery");
            assert_eq!(options.parse(list).expect("known words"), Vec::<&str>::new());
            assert_eq!(of_options(&options), want, "{list}");
            let words: Vec<_> = row.split(',').map(str::to_owned).collect();
            assert_eq!(of_row(&words), want, "{row}");
        }
    }
}
