//! Copies a file out of an earlier commit.

use std::path::{Path, PathBuf};

use creamery_base::{Error, ErrorKind, Generation, InodeId, Result, Wait};
use creamery_volume::NamedSet;

use super::commits::{Commits, Fate};
use super::judge::FoundRootTree;
use super::progress::NoSearchProgress;
use crate::copy::CopyOptions;
use crate::fs::{Attributes, FileType as Kind};
use crate::path::{Last, at};
use crate::progress::{OnError, Progress};
use crate::salvage::for_each_piece;
use crate::selection::{Selection, is_unverified};
use crate::{File, Filesystem};

/// Options of [`undelete`].
///
/// ```
/// use creamery::history::UndeleteOptions;
/// use creamery::id::Generation;
/// let of_nine = UndeleteOptions { generation: Some(Generation::new(9)), ..UndeleteOptions::default() };
/// assert!(!of_nine.force && !of_nine.unverified);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct UndeleteOptions {
    /// The commit to copy from. Without it: the newest commit that has a file at the path which the last commit does not have.
    pub generation: Option<Generation>,
    /// Existing files of the host are replaced.
    pub force: bool,
    /// Files without checksums (NODATASUM) are copied, too. Another file may use their space by now; then the copy has the content of that
    /// file.
    pub unverified: bool,
}

/// The result of [`undelete`].
///
/// ```
/// fn line(undeleted: creamery::history::Undeleted) -> String {
///     format!("as generation {} has it", undeleted.generation)
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Undeleted {
    /// The commit that the copy comes from.
    pub generation: Generation,
}

/// Copies `path` from an earlier commit to the host: into `to`, if that is a directory. A directory comes with everything readable in it;
/// unreadable files are reported as with [`OnError::NextFile`]. Without `force` existing files of the host stay: the copy of a single file
/// is an error, and within a directory [`Progress::skipped`] is called. Existing directories receive the copies, and the owner and mode of
/// their source, as with `cp -a`. The image is only read.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let (image, out) = (dir.path().join("disk.img"), dir.path().join("out"));
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// use creamery::history::{UndeleteOptions, undelete};
/// use creamery::Image;
/// use creamery::progress::NoProgress;
/// for work in [true, false] {
///     let fs = Image::options().write().open(&image)?;
///     if work { fs.write("/note", "by mistake")? } else { fs.remove_file("/note")? }
///     fs.close()?;
/// }
/// undelete(&image, "/note", &out, &UndeleteOptions::default(), &NoProgress)?;
/// assert_eq!(std::fs::read(&out)?, b"by mistake");
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// - No commit that is left has the path, or the last commit still has it.
/// - The data cannot be read. The error names an older commit whose data is whole, if there is one.
/// - The name exists on the host.
pub fn undelete(
    image: impl Into<NamedSet>,
    path: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: &UndeleteOptions,
    progress: &dyn Progress,
) -> Result<Undeleted> {
    let (image, path, to) = (image.into(), path.as_ref(), to.as_ref());
    let commits = Commits::open(&image, options.generation, &NoSearchProgress)?;
    let chosen = choose(&commits, image.first(), path, options)?;
    let Chosen { number, fs, attributes } = &chosen;
    let generation = commits.earlier[*number].candidate.generation;
    if attributes.kind == Kind::File && !options.unverified && is_unverified(attributes) {
        let what = "its data has no checksums (NODATASUM): another file may have overwritten it";
        let error = Error::invalid(what).advise("copy it anyway with --unverified");
        return Err(at(path)(error));
    }
    if !options.force {
        refuse_taken(path, to, attributes.kind == Kind::Directory)?;
    }
    let selection = Selection { verified: !options.unverified, ..Selection::everything() };
    let copy = CopyOptions {
        recursive: true,
        archive: true,
        on_error: if attributes.kind == Kind::Directory { OnError::NextFile } else { OnError::Stop },
        replace_images: options.force,
        ..CopyOptions::default()
    };
    progress.go_on()?;
    let copied = fs.copy_out_selected(path, to, copy, Some(&selection), !options.force, progress);
    match copied {
        Err(error) if error.kind().is_damage() && !error.is_on_host() => {
            let older = older_that_is_whole(&commits, *number, path, attributes.size, progress)?;
            Err(error.advise(match older {
                Some((older, len)) => {
                    format!("--generation {older} has it whole, as it was then: {len} bytes")
                }
                None if options.generation.is_some() => "another --generation may have it whole".to_owned(),
                None => "its space is in use again, and no older commit has it whole".to_owned(),
            }))
        }
        copied => copied.map(|()| Undeleted { generation }),
    }
}

/// The file in the commit that it is copied from.
struct Chosen {
    /// The index of the commit.
    number: usize,
    fs: Filesystem,
    attributes: Attributes,
}

fn choose(commits: &Commits, image: &Path, path: &Path, options: &UndeleteOptions) -> Result<Chosen> {
    let (mut is_there, mut first) = (false, None);
    for (number, commit) in commits.earlier.iter().enumerate() {
        let found = look(commits, commit, path);
        let (fs, id, attributes) = match found {
            Ok(found) => found,
            Err(error) => {
                let is_absent = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
                if !is_absent {
                    let generation = commit.candidate.generation;
                    first.get_or_insert_with(|| error.context(format!("generation {generation}")));
                }
                continue;
            }
        };
        // A caller that names a commit gets the file of that commit, even if it is not deleted.
        if options.generation.is_none() && commits.current.fate(id, attributes.generation)? == Fate::There {
            is_there = true;
            continue;
        }
        return Ok(Chosen { number, fs, attributes });
    }
    let shown = image.display();
    if is_there {
        let error = Error::invalid("the last commit still has it");
        return Err(at(path)(error.advise(format!(
            "copy it with `creamery cp -a`, or name the commit with --generation: `creamery history {shown}` lists them"
        ))));
    }
    if let Some(error) = first {
        return Err(at(path)(error.context("no commit that can be read has it")));
    }
    let what = match options.generation {
        Some(generation) if commits.earlier.is_empty() => {
            format!("no root of the commit of generation {generation} is left")
        }
        Some(generation) => format!("the commit of generation {generation} has no such file"),
        None => "no remaining commit has it".to_owned(),
    };
    let advice = match options.generation {
        Some(_) => format!("`creamery history {shown}` lists the commits that can be read"),
        None => format!("`creamery undelete {shown}` lists the files that some commit has"),
    };
    Err(at(path)(Error::new(ErrorKind::NotFound, what).advise(advice)))
}

fn look(commits: &Commits, commit: &FoundRootTree, path: &Path) -> Result<(Filesystem, InodeId, Attributes)> {
    let fs = commits.show(commit)?;
    let id = fs.resolve(path, Last::Keep)?;
    let attributes = fs.fs.stat(id, Wait::Yes)?;
    Ok((fs, id, attributes))
}

/// Errors: the name of the copy exists.
fn refuse_taken(path: &Path, to: &Path, is_directory: bool) -> Result<()> {
    let place = place(path, to);
    match std::fs::symlink_metadata(&place) {
        Ok(there) if is_directory && there.is_dir() => Ok(()),
        Ok(_) => {
            let error = Error::new(ErrorKind::AlreadyExists, "not overwritten");
            Err(error.on_host(&place).advise("replace it with --force, or name another target"))
        }
        Err(_) => Ok(()),
    }
}

/// The path of the copy.
fn place(path: &Path, to: &Path) -> PathBuf {
    match path.file_name().filter(|_| to.is_dir()) {
        Some(name) => to.join(name),
        None => to.to_owned(),
    }
}

/// The newest commit before the one that was read in which all data of the file can be read, and the number of its bytes there. A commit
/// may have recorded the file before its data: an empty file does not help where the other is not empty.
fn older_that_is_whole(
    commits: &Commits,
    read: usize,
    path: &Path,
    len: u64,
    progress: &dyn Progress,
) -> Result<Option<(Generation, u64)>> {
    for commit in &commits.earlier[read + 1..] {
        let Ok((fs, id, attributes)) = look(commits, commit, path) else { continue };
        let is_empty = attributes.size == 0 && len > 0;
        if attributes.kind != Kind::File || is_unverified(&attributes) || is_empty {
            continue;
        }
        let Ok(file) = fs.fs.open_file(id) else { continue };
        let file = File::for_reading(fs.near(), file);
        match for_each_piece(&file, attributes.size, |_, _| progress.go_on()) {
            Ok(()) => return Ok(Some((commit.candidate.generation, attributes.size))),
            Err(error) if error.kind().is_damage() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
