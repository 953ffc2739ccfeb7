//! Opens an image for a mount.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use creamery_base::lock::contention;
use creamery_base::{Error, ErrorKind, InodeId, Result, TreeId};
use creamery_device::{Access, FileDevice};
use creamery_fs::{Filesystem, FsOptions};
use creamery_txn::Engine;
use creamery_volume::{Mode, Volume};

use crate::options::Options;
use crate::table::is_mounted;

/// Time that a server without a mount may still use its image, to make changes durable.
const CLOSING_MAX: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Opens the filesystem in the image file or on the block device at `path`, and locks it until it is dropped. Gives a server
/// that was just unmounted time to finish.
/// Its other devices come from `options` and from a search beside it.
/// A seed is opened for reading, whatever `options` say; they are changed accordingly.
/// Errors: no filesystem; damage; a state that does not allow writing; it is open elsewhere.
pub fn open(path: &Path, options: &mut Options) -> Result<Arc<Filesystem>> {
    match open_patiently(path, options) {
        Err(error)
            if error.kind() == ErrorKind::Unsupported
                && !options.transport.read_only()
                && is_seed(path, options) =>
        {
            options.transport.set_read_only();
            open_patiently(path, options)
        }
        opened => opened,
    }
}

fn is_seed(path: &Path, options: &Options) -> bool {
    let open = |devices| Volume::open(devices, Mode::ReadOnly);
    options.set(path).open(Access::ReadOnly, open).is_ok_and(|volume| volume.is_seed())
}

fn open_patiently(path: &Path, options: &Options) -> Result<Arc<Filesystem>> {
    let start = Instant::now();
    loop {
        match open_parts(path, options) {
            Err(error)
                if error.kind() == ErrorKind::Busy && start.elapsed() < CLOSING_MAX && !is_mounted(path) =>
            {
                std::thread::sleep(LOOK_AGAIN);
            }
            opened => return opened.map_err(|error| named(error, path)),
        }
    }
}

fn open_parts(path: &Path, options: &Options) -> Result<Arc<Filesystem>> {
    let read_only = options.transport.read_only();
    let (access, mode) = match read_only {
        true => (Access::ReadOnly, Mode::ReadOnly),
        false => (Access::ReadWrite, Mode::ReadWrite),
    };
    let device = FileDevice::open_with(path, access, options.io)?;
    let gather_syncs = !options.ssd.unwrap_or_else(|| !device.is_rotational());
    options.set(path).open_on(Arc::new(device), access, |devices| {
        let volume = match mode {
            Mode::ReadWrite if options.use_super_copy => Volume::open_by_copy(devices)?,
            Mode::ReadWrite => Volume::open(devices, mode)?,
            Mode::ReadOnly => Volume::open_for_rescue(devices, options.rescue)?,
        };
        open_on(volume, options, gather_syncs)
    })
}

fn open_on(volume: Volume, options: &Options, gather_syncs: bool) -> Result<Arc<Filesystem>> {
    if options.transport.read_only()
        && !options.rescue.no_log_replay
        && volume.superblock().log_root().is_some()
    {
        let what = match volume.superblock().device_count() {
            0 | 1 => {
                "the log has writes that the last commit lacks: replay it with `creamery touch IMAGE:/` or a read-write mount, or mount the last commit \
                 with ro,nologreplay"
            }
            _ => {
                "the log has writes that the last commit lacks, and a filesystem of several devices cannot be mounted read-write here: mount the last \
                 commit with ro,nologreplay, or replay the log with Linux"
            }
        };
        return Err(Error::new(ErrorKind::ReadOnly, what));
    }
    if options.lock_statistics {
        contention::count();
    }
    let open = |volume| -> Result<_> {
        let fs = Filesystem::open(
            Engine::open(volume, engine_options(options, gather_syncs))?,
            fs_options(options),
        )?;
        // This is where another root may be tried if the mounted subvolume cannot be read.
        if options.rescue.use_backup_root {
            subvolume_root(&fs, options)?;
        }
        Ok(fs)
    };
    if options.rescue.use_backup_root { volume.by_newest_usable_root(open) } else { open(volume) }
}

/// The root of the subvolume to mount.
pub(crate) fn subvolume_root(fs: &Filesystem, options: &Options) -> Result<InodeId> {
    // Number 0 stands for the top level, as on Linux.
    let by_number = options.subvolid.map(|id| if id == 0 { TreeId::FS } else { TreeId::new(id) });
    let subvolume = match (&options.subvol, by_number) {
        (Some(path), _) => fs
            .resolve_subvolume(path.as_bytes())
            .map_err(|error| error.context(format_args!("subvolume {path}")))?,
        (None, Some(id)) => id,
        (None, None) => fs.default_subvolume(),
    };
    match (&options.subvol, by_number) {
        (Some(path), Some(id)) if id != subvolume => Err(Error::invalid(format!(
            "subvol={path} does not match subvolid={id}: the subvolume there has number {subvolume}; give one of the two options"
        ))),
        _ => fs.root(subvolume),
    }
}

fn engine_options(options: &Options, gather_syncs: bool) -> creamery_txn::Options {
    creamery_txn::Options {
        read_only: options.transport.read_only(),
        tree_log: options.treelog,
        gather_syncs,
        ..creamery_txn::Options::default()
    }
}

fn fs_options(options: &Options) -> FsOptions {
    let usual = FsOptions::default();
    FsOptions {
        flush_on_commit: options.flush_on_commit,
        nodatacow: options.nodatacow,
        compress: options.compress,
        max_inline: options.max_inline,
        delayed_bytes: if options.delalloc { usual.delayed_bytes } else { 0 },
        ..usual
    }
}

/// Adds the image's path to a message without it, and turns the options in its advice into mount options.
fn named(error: Error, path: &Path) -> Error {
    let shown = path.display().to_string();
    let words = [
        ("--device PATH", "-o device=PATH"),
        ("--device", "-o device="),
        ("--degraded", "-o ro,degraded"),
        ("--direct-io", "-o directio"),
        ("--rescue all", "-o ro,rescue=all"),
    ];
    let of_mount = |advice: &str| {
        words.iter().fold(advice.to_owned(), |advice, (word, option)| advice.replace(word, option))
    };
    let error = match error.advice().map(of_mount) {
        Some(advice) => error.advise(advice),
        None => error,
    };
    if error.to_string().contains(&shown) { error } else { error.context(shown) }
}
