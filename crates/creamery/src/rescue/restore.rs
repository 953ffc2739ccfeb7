//! Getting files off a damaged filesystem, as `btrfs restore` does: its words are here, and the work is that of every copy out of an
//! image (`sink`, `copy_out`, `salvage`). What is taken less strictly is said where the image is opened
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
use crate::sink::{Driver, Keeps};

/// What is restored, and how. Without more it is the regular files and directories, and of those the data, names and permission bits; hard
/// links stay what they are.
///
/// ```
/// use creamery::rescue::RestoreOptions;
/// let everything = RestoreOptions { metadata: true, xattrs: true, symlinks: true, snapshots: true, ..RestoreOptions::default() };
/// assert!(!everything.overwrite);
/// ```
#[derive(Clone, Default, Debug)]
pub struct RestoreOptions {
    /// Snapshots, too, each with all that is in it. Other subvolumes are restored anyway.
    pub snapshots: bool,
    /// Owners, modes and times.
    pub metadata: bool,
    /// Extended attributes, ACLs among them.
    pub xattrs: bool,
    /// Symbolic links.
    pub symlinks: bool,
    /// Files that have a name already where the copy goes are replaced; without it they stay, and
    /// [`Progress::skipped`] is told.
    pub overwrite: bool,
    /// Go on past what cannot be read, as with [`OnError::PastDamage`].
    pub ignore_errors: bool,
    /// Make nothing, and tell [`Progress::entry`] what would be made.
    pub dry_run: bool,
    /// Of the paths, which begin at the subvolume that was opened, only these.
    pub pattern: Option<PathPattern>,
}

impl RestoreOptions {
    /// Restores what is in the subvolume that was opened, and below, into the directory `to` of the host.
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
    /// `to` is no directory; the first thing that cannot be read or made, unless such are passed over. What came before stays.
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
        let keeps = Keeps { metadata, xattrs, links: true };
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
