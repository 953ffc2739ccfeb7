//! Makes new filesystems straight from archives.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Escaped, InodeId, Result, Timespec, TreeId, Wait};
use creamery_codec::CompressionMethod;
use creamery_device::{ImageName, file_of};
use creamery_mkfs::{Content, Measure, Progress, RootdirSubvolume, Source};

use super::extract::{Extractor, Rules};
use super::names::components;
use super::stored::TarArchive;
use super::way::DIRECTORY_MODE;
use crate::fs::{self, NewInode};
use crate::{FileType, Filesystem};

/// Archives that fill a new filesystem, one above the other.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let (path, image) = (dir.path().join("rootfs.tar"), dir.path().join("disk.img"));
/// # std::fs::write(&path, [0; 1024])?;
/// use creamery::Image;
/// use creamery::tar::{TarArchive, TarRootfs};
/// let archive = TarArchive::new(std::fs::File::open(&path)?, &path, dir.path())?;
/// let rootfs = TarRootfs { shrink: true, ..TarRootfs::new([archive]) };
/// Image::make(&image).label("system").tar(rootfs).run()?;
/// assert!(Image::open(&image)?.read_dir("/")?.next().is_none());
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Debug)]
pub struct TarRootfs {
    /// The archives, in order: a later one replaces files of earlier ones.
    pub archives: Vec<TarArchive>,
    /// The archives are layers of a container image, the lowest one first: members with names of whiteouts remove files.
    pub whiteouts: bool,
    /// User and group that own every file.
    pub owner: Option<(u32, u32)>,
    /// Access, change and birth times are this time, modification times at most this (`SOURCE_DATE_EPOCH`).
    pub clamp_times: Option<Timespec>,
    /// Directories of the archives that become subvolumes.
    pub subvolumes: Vec<RootdirSubvolume>,
    /// Shrinks the finished filesystem to the space that it needs.
    pub shrink: bool,
    /// Compresses data that becomes shorter.
    pub compress: Option<CompressionMethod>,
}

impl TarRootfs {
    /// Takes everything in the archives as it is.
    pub fn new(archives: impl Into<Vec<TarArchive>>) -> Self {
        Self {
            archives: archives.into(),
            whiteouts: false,
            owner: None,
            clamp_times: None,
            subvolumes: Vec::new(),
            shrink: false,
            compress: None,
        }
    }

    /// Rejects a subvolume for which no archive has a directory, as when a directory is the source.
    fn check_subvolumes(&self) -> Result<()> {
        let mut wanted = Vec::new();
        for subvolume in &self.subvolumes {
            wanted.push((components(&subvolume.path)?, There::Nothing));
        }
        for archive in &self.archives {
            if wanted.is_empty() {
                break;
            }
            let mut members = archive.members().map_err(|error| of_archive(archive, None, error))?;
            while let Some(member) = members.next().map_err(|error| of_archive(archive, None, error))? {
                // Creating the member reports the error.
                let Ok(names) = components(&member.facts.name) else { continue };
                let is_directory = member.file_type() == FileType::Directory;
                wanted.iter_mut().for_each(|(path, there)| there.add(path, &names, is_directory));
            }
        }
        let Some((path, there)) = wanted.iter().find(|(_, there)| *there != There::Directory) else {
            return Ok(());
        };
        let path = path.join(&b'/');
        let what = match there {
            There::SomethingElse => "not a directory in the archives",
            _ => "no archive has this directory",
        };
        Err(Error::invalid(format!("subvolume '{}' of the source: {what}", Escaped(&path))))
    }

    /// Makes the subvolumes before anything is in them.
    fn make_subvolumes(
        &self,
        fs: &fs::Filesystem,
        root: InodeId,
    ) -> Result<Vec<(TreeId, &RootdirSubvolume)>> {
        let make = |path: &[u8]| -> Result<TreeId> {
            let mut dir = root;
            let mut names = components(path)?;
            let last = names.pop().expect("an empty path is none of a subvolume");
            let new = NewInode::directory(DIRECTORY_MODE);
            for name in names {
                dir = match fs.lookup(dir, name, Wait::Yes) {
                    Err(error) if error.kind() == ErrorKind::NotFound => fs.create(dir, name, &new)?.id,
                    found => found?,
                };
            }
            Ok(fs.create_subvolume(dir, last, &new)?.subvolume)
        };
        // Subvolumes inside others come after them.
        let mut sorted: Vec<&RootdirSubvolume> = self.subvolumes.iter().collect();
        sorted.sort_by(|one, other| one.path.cmp(&other.path));
        sorted.into_iter().map(|subvolume| Ok((make(&subvolume.path)?, subvolume))).collect()
    }
}

/// The state of a subvolume's path in the archives, member by member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum There {
    Nothing,
    Directory,
    SomethingElse,
}

impl There {
    /// Takes a member called `names` into account.
    fn add(&mut self, path: &[&[u8]], names: &[&[u8]], is_directory: bool) {
        if names == path {
            *self = if is_directory { Self::Directory } else { Self::SomethingElse };
        } else if names.starts_with(path) && *self == Self::Nothing {
            *self = Self::Directory;
        } else if path.starts_with(names) && !is_directory {
            *self = Self::SomethingElse;
        }
    }
}

/// Adds the name of the archive to an error without it. An invalid archive is not damage of the filesystem.
fn of_archive(archive: &TarArchive, member: Option<&[u8]>, error: Error) -> Error {
    let name = archive.name().display().to_string();
    if error.to_string().starts_with(&name) {
        return error;
    }
    let place = member.map_or(name.clone(), |member| format!("{name}: {}", Escaped(member)));
    match error.kind() {
        ErrorKind::InvalidData | ErrorKind::InvalidInput => {
            Error::invalid(format!("{place}: {}", error.without_kind()))
        }
        // The caller, mkfs, checks for a full filesystem.
        ErrorKind::NoSpace => error,
        _ if error.is_on_host() => error,
        _ => error.context(place),
    }
}

impl Source for TarRootfs {
    fn shrink(&self) -> bool {
        self.shrink
    }

    fn compress(&self) -> Option<CompressionMethod> {
        self.compress
    }

    fn check(&self) -> Result<()> {
        RootdirSubvolume::check_all(&self.subvolumes)?;
        self.check_subvolumes()
    }

    fn check_target(&self, target: &Path, is_new: bool) -> Result<()> {
        let Some(target_meta) = (!is_new).then(|| ImageName::metadata(target).ok()).flatten() else {
            return Ok(());
        };
        for archive in &self.archives {
            let Some(file) = archive.file() else { continue };
            let meta = file.metadata().map_err(|error| Error::from(error).on_host(archive.name()))?;
            if file_of(&meta) == file_of(&target_meta) {
                return Err(Error::invalid("the archive is the image itself"));
            }
        }
        Ok(())
    }

    fn measure(&self, mut measure: Measure) -> Result<Content> {
        // The root directory.
        measure.entry(0);
        for archive in &self.archives {
            let mut members = archive.members().map_err(|error| of_archive(archive, None, error))?;
            while let Some(member) = members.next().map_err(|error| of_archive(archive, None, error))? {
                member.measure(&mut measure);
            }
        }
        Ok(measure.content())
    }

    fn fill(
        &self,
        fs: &Arc<fs::Filesystem>,
        image: Option<(u64, u64)>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let root = fs.root(TreeId::FS)?;
        let subvolumes = self.make_subvolumes(fs, root)?;
        let to = Filesystem::new(Arc::clone(fs), root, image, 0);
        let rules = Rules { is_layer: self.whiteouts, owner: self.owner, clamp: self.clamp_times };
        for archive in &self.archives {
            // An incomplete image is not a result.
            let failed = |member: &[u8], error| Err(of_archive(archive, Some(member), error));
            let gives_way = BTreeSet::new();
            let mut extractor = Extractor { to: &to, root, progress, failed: &failed, rules, gives_way };
            extractor.add(archive).map_err(|error| of_archive(archive, None, error))?;
        }
        let trees = subvolumes.iter().map(|(tree, _)| *tree);
        fs.renew_uuids(&std::iter::once(TreeId::FS).chain(trees).collect::<Vec<_>>())?;
        for (tree, RootdirSubvolume { path, kind }) in subvolumes {
            let there =
                components(path)?.into_iter().try_fold(root, |dir, name| fs.lookup(dir, name, Wait::Yes));
            if !there.is_ok_and(|there| there.subvolume == tree) {
                let what = "an archive replaces or removes it";
                return Err(Error::invalid(format!("subvolume '{}': {what}", Escaped(path))));
            }
            if kind.is_default() {
                fs.set_default_subvolume(tree)?;
            }
            if kind.is_read_only() {
                fs.set_subvolume_read_only(tree, true)?;
            }
        }
        Ok(())
    }
}
