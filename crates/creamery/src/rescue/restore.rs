//! Gets files off a damaged filesystem, as `btrfs restore` does: this module has the options; the copy is that of every copy out of an
//! image (`sink`, `copy_out`, `salvage`). Options for opening relax the checks
//! ([`ImageOptions::rescue`](crate::ImageOptions::rescue), [`start`](crate::ImageOptions::start)).

use std::path::Path;

use creamery_base::Result;

use super::dry_run::DryRun;
use crate::Filesystem;
use crate::copy_out::HostSink;
use crate::fs::FileType;
use crate::metadata::file_type;
use crate::progress::{OnError, Progress};
use crate::selection::{PathPattern, Selection};
use crate::sink::{Driver, KeptAttributes};

/// Options of a restore. By default it copies regular files and directories with their data, names and permission bits. Hard
/// links stay hard links.
///
/// ```
/// use creamery::rescue::RestoreOptions;
/// let everything = RestoreOptions { metadata: true, xattrs: true, symlinks: true, snapshots: true, ..RestoreOptions::default() };
/// assert!(!everything.overwrite);
/// ```
#[derive(Clone, Default, Debug)]
pub struct RestoreOptions {
    /// Restores snapshots, too, each with everything in it. Other subvolumes are restored in any case.
    pub snapshots: bool,
    /// Restores owners, modes and times.
    pub metadata: bool,
    /// Restores extended attributes, including ACLs.
    pub xattrs: bool,
    /// Restores symbolic links.
    pub symlinks: bool,
    /// Replaces existing files at the destination. Without it they stay, and
    /// [`Progress::skipped`] is called.
    pub overwrite: bool,
    /// Goes on after errors, as with [`OnError::PastDamage`].
    pub ignore_errors: bool,
    /// Makes nothing, and calls [`Progress::entry`] for each file that would be made.
    pub dry_run: bool,
    /// Restores only these paths, which begin at the subvolume that was opened.
    pub pattern: Option<PathPattern>,
}

impl RestoreOptions {
    /// Restores the content of the subvolume that was opened into the directory `to` of the host.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let (image, out) = (dir.path().join("disk.img"), dir.path().join("out"));
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// # fs.write("/diary", "dear diary")?;
    /// # fs.close()?;
    /// # std::fs::create_dir(&out)?;
    /// use creamery::{Image, rescue::RestoreOptions};
    /// use creamery::id::TreeId;
    /// use creamery::progress::NoProgress;
    /// let fs = Image::options().subvolume_id(TreeId::FS).rescue("ibadroots".parse()?).open(&image)?;
    /// RestoreOptions::default().restore(&fs, &out, &NoProgress)?;
    /// assert_eq!(std::fs::read(out.join("diary"))?, b"dear diary");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// `to` is not a directory; the first error of reading or making a file, unless errors are ignored. Earlier files stay.
    pub fn restore(&self, fs: &Filesystem, to: impl AsRef<Path>, progress: &dyn Progress) -> Result<()> {
        fs.restore(to.as_ref(), self, progress)
    }
}

impl Filesystem {
    /// See [`RestoreOptions::restore`].
    pub(crate) fn restore(&self, to: &Path, options: &RestoreOptions, progress: &dyn Progress) -> Result<()> {
        let (to, from) = (to, Path::new("/"));
        let &RestoreOptions { snapshots, symlinks, metadata, xattrs, .. } = options;
        let pattern = options.pattern.clone();
        let selection = Selection { snapshots, symlinks, pattern, ..Selection::default() };
        let keeps = KeptAttributes { metadata, xattrs, links: true };
        let driver = Driver {
            from: self,
            keeps,
            on_error: if options.ignore_errors { OnError::PastDamage } else { OnError::Stop },
            selection: Some(&selection),
            progress,
        };
        let kind = file_type(FileType::Directory);
        if options.dry_run {
            let mut sink = DryRun { replaces: options.overwrite };
            return driver.copy(&mut sink, self.root, kind, to.to_owned(), None, from);
        }
        let (sink, dir) = HostSink::open(to, keeps)?;
        let mut sink = if options.overwrite { sink } else { sink.keeping_what_is_there() };
        driver.copy(&mut sink, self.root, kind, dir, None, from)
    }
}
