//! The images that a command works on, each opened once.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use creamery::id::TreeId;
use creamery::partitions::{self, ImageName};
use creamery::rescue::Rescue;
use creamery::rescue::{WayIn, way_in};
use creamery::{Error, ErrorKind, Filesystem, Image, NamedSet};
use creamery_tools::glob::{Glob, expand};

use crate::failure::{Failure, warn, with_all};
use crate::losses::Losses;
use crate::path_in_image::{PathInImage, is_no_image, mount_of};
use crate::source_date;
use crate::view::{ViewArgs, WriteArgs};
use crate::waits;

/// Commands that also exist as programs of the host.
const OF_THE_HOST: [&str; 15] = [
    "ls",
    "cat",
    "stat",
    "cp",
    "mkdir",
    "rm",
    "mv",
    "ln",
    "chmod",
    "chown",
    "touch",
    "truncate",
    "find",
    "tar",
    "fallocate",
];

/// Errors after which a mounted image is asked through its mount.
const HELD: [ErrorKind; 3] = [ErrorKind::Busy, ErrorKind::DeviceMissing, ErrorKind::Unsupported];

/// Whether a command writes to an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    Read,
    Write,
}

pub(crate) struct Images<'a> {
    command: &'static str,
    view: &'a ViewArgs,
    use_super_copy: bool,
    /// Whether the rescue options apply only to images that are read.
    spares_written: bool,
    open: Vec<(PathBuf, Purpose, Filesystem)>,
}

impl<'a> Images<'a> {
    pub(crate) const fn new(command: &'static str, view: &'a ViewArgs) -> Self {
        Self { command, view, use_super_copy: false, spares_written: false, open: Vec::new() }
    }

    /// The images of a command that writes.
    pub(crate) fn to_write(command: &'static str, args: &'a WriteArgs) -> Self {
        Self { use_super_copy: args.usesupercopy, ..Self::new(command, &args.view) }
    }

    /// Applies the rescue options only to images that are read: an image to write is opened without them.
    pub(crate) fn sparing_written(mut self) -> Self {
        self.spares_written = true;
        self
    }

    /// The filesystem whose first device is `image`, with the devices that the options name.
    pub(crate) fn set_of(&self, image: &Path) -> NamedSet {
        self.view.rescue.set.of(image)
    }

    /// The command that uses the images.
    pub(crate) const fn command(&self) -> &'static str {
        self.command
    }

    /// The place in an image that `text` names.
    pub(crate) fn place(&self, text: &OsStr) -> Result<PathInImage, Failure> {
        let place = PathInImage::parse(text);
        if mount_of(&place.image).is_some() && place.image.is_dir() {
            return Err(self.on_a_mount(&place.image));
        }
        if place.image.is_dir() {
            let what = Error::unsupported(format!("{} is a directory of the host", place.image.display()));
            let advice =
                "name an image that is not mounted (IMAGE:/PATH), or use `btrfs` on a mount of the kernel";
            return Err(Failure::new(self.command, what).advise(advice));
        }
        Ok(place)
    }

    /// The places that the pattern in the path matches.
    /// Errors: nothing matches.
    pub(crate) fn expand(
        &mut self,
        place: &PathInImage,
        purpose: Purpose,
    ) -> Result<Vec<PathInImage>, Failure> {
        if !Glob::is_pattern(place.path.as_os_str().as_encoded_bytes()) {
            return Ok(vec![place.clone()]);
        }
        let failed = self.failed(&place.image);
        let fs = self.open(&place.image, purpose)?;
        let paths = expand(fs, &place.path).map_err(failed)?;
        Ok(paths.into_iter().map(|path| PathInImage { image: place.image.clone(), path }).collect())
    }

    /// Opens the image of a place, for a question about the whole filesystem. Errors: the place does not exist.
    pub(crate) fn open_at(&mut self, place: &PathInImage, purpose: Purpose) -> Result<&Filesystem, Failure> {
        let failed = self.failed(&place.image);
        let fs = self.open(&place.image, purpose)?;
        fs.metadata(&place.path).map_err(failed)?;
        Ok(fs)
    }

    /// Opens `path`, unless it is open already. To be written, it must be opened for writing the first time.
    pub(crate) fn open(&mut self, path: &Path, purpose: Purpose) -> Result<&Filesystem, Failure> {
        let index = match self.open.iter().position(|(open, ..)| open == path) {
            Some(index) => index,
            None => {
                let fs = self.open_new(path, purpose).map_err(|error| self.not_open(path, error))?;
                self.open.push((path.to_owned(), purpose, fs));
                self.open.len() - 1
            }
        };
        Ok(&self.open[index].2)
    }

    /// The failure to open an image. If the path is on a live mount and is no image, the error says so.
    fn not_open(&self, path: &Path, error: Error) -> Failure {
        match error.kind() {
            _ if is_no_image(&error) && mount_of(path).is_some() => self.on_a_mount(path),
            _ if error.advice().is_some() => Failure::new(self.command, error),
            ErrorKind::Busy => {
                let failure = Failure::new(self.command, error);
                match creamery_mount::mount_point_of(path) {
                    Ok(Some(point)) => failure.advise(self.use_mount(&point)),
                    _ => failure,
                }
            }
            // Advice about another commit than the last one would not help.
            kind if kind.is_damage() && self.view.rescue.generation().is_some() => {
                let advice =
                    format!("`creamery history {}` lists the commits that can be read", path.display());
                Failure::new(self.command, error).advise(advice)
            }
            // The error is about the image; commands have their own advice for paths in one.
            ErrorKind::NotFound => {
                let is_number = self.view.subvolid.is_some() && ImageName::metadata(path).is_ok();
                let what = if is_number { "check the number" } else { "check the path" };
                Failure::new(self.command, error).advise(what)
            }
            _ => Failure::new(self.command, with_way_in(&self.view.rescue.set.of(path), error)),
        }
    }

    /// The advice for an image that is mounted at `point`.
    fn use_mount(&self, point: &Path) -> String {
        let point = quoted(&point.display().to_string());
        let instead = match self.command {
            command if OF_THE_HOST.contains(&command) => format!("use `{command}` of the host there"),
            _ => format!("name {point} instead, if the command takes a mount"),
        };
        format!("{instead}, or unmount it first (`creamery umount {point}`)")
    }

    fn on_a_mount(&self, path: &Path) -> Failure {
        let what = Error::unsupported(format!("{} is on a live mount, expected an image", path.display()));
        let there = match self.command {
            command if OF_THE_HOST.contains(&command) => format!("use `{command}` of the host"),
            _ => "use the programs of the host".to_owned(),
        };
        let advice = format!("name an image that is not mounted (IMAGE:/PATH); on a mount {there}");
        Failure::new(self.command, what).advise(advice)
    }

    /// The result of `of_image` for the image that `text` names; if it is mounted, that of `of_mount` for its mount point.
    pub(crate) fn image_or_mount<T>(
        &mut self,
        text: &OsStr,
        of_image: impl Fn(&mut Self) -> Result<T, Failure>,
        of_mount: impl Fn(&mut Self, &Path) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        // Opening with --wait would wait until the image is unmounted.
        if waits::is_asked()
            && let Some(point) = self.mount_point(text)
            && !creamery_mount::is_dead(&point)
        {
            return of_mount(self, &point);
        }
        of_image(self).or_else(|failure| match self.mount_point(text) {
            // The mount may know the other devices.
            Some(point) if HELD.contains(&failure.kind()) => of_mount(self, &point),
            _ => Err(failure),
        })
    }

    /// The mount point of the image that `text` names, if the options only ask for the mounted view.
    fn mount_point(&self, text: &OsStr) -> Option<PathBuf> {
        let is_plain =
            self.view.subvol.is_none() && self.view.subvolid.is_none() && self.view.rescue.is_plain();
        let place = PathInImage::parse(text);
        let is_whole = place.path == Path::new("/");
        let point = || creamery_mount::mount_point_of(&place.image).ok().flatten();
        if is_plain && is_whole { point() } else { None }
    }

    /// Notes the commits that were read from the open images.
    pub(crate) fn note_in(&self, losses: &mut Losses) {
        self.open.iter().for_each(|(path, _, fs)| losses.read_from(path, fs));
    }

    /// Prints where paths begin in each open image, if it is not the top level and the user did not choose it.
    pub(crate) fn note_beginnings(&self) {
        for (path, _, fs) in &self.open {
            fs.subvolumes().why_paths_begin_below().iter().for_each(|note| warn_of(path, note));
        }
    }

    /// An open image.
    pub(crate) fn get(&self, path: &Path) -> &Filesystem {
        let (.., fs) = self.open.iter().find(|(open, ..)| open == path).expect("the image was opened before");
        fs
    }

    fn open_new(&self, path: &Path, purpose: Purpose) -> Result<Filesystem, Error> {
        let is_spared = self.spares_written && purpose == Purpose::Write;
        let rescue = if is_spared { Rescue::default() } else { self.view.rescue.all() };
        let mut options = Image::options().rescue(rescue);
        if self.use_super_copy {
            options = options.use_super_copy();
        }
        if let Some(generation) = self.view.rescue.generation().filter(|_| !is_spared) {
            options = options.generation(generation);
        }
        if let Some(subvolume) = &self.view.subvol {
            options = options.subvolume(subvolume);
        }
        if let Some(id) = self.view.subvolid {
            options = options.subvolume_id(TreeId::new(id));
        }
        let devices = &self.view.rescue.set;
        options = if is_spared { devices.io(options) } else { devices.options(options) };
        if purpose == Purpose::Write {
            options = options.write().env(source_date::env()?);
        }
        let fs = options.open(path)?;
        fs.volume().notes().iter().for_each(|note| warn_of(path, note));
        Ok(fs)
    }

    /// Prefixes errors in an image, but not errors of the host, with the image.
    pub(crate) fn failed(&self, image: &Path) -> impl Fn(Error) -> Failure + use<> {
        let devices = typed(&self.view.rescue.set.of(image));
        let (command, image) = (self.command, image.display().to_string());
        let within = match (self.view.subvolid, &self.view.subvol) {
            (Some(id), _) => format!(" --subvolid {id}"),
            (None, Some(path)) => format!(" --subvol {}", quoted(&path.display().to_string())),
            (None, None) => String::new(),
        };
        move |error| {
            let is_bare = error.kind().is_damage() && error.host().is_none() && error.advice().is_none();
            let failure = Failure::new(command, in_image(&image, error));
            let within = format!("{within}{devices}");
            if is_bare { failure.advise(past_damage(&image, &within)) } else { failure }
        }
    }

    /// Makes the changes durable, also after a failure: earlier changes stay. Returns the first failure; if failures were printed already,
    /// prints which other changes are not durable.
    pub(crate) fn finish(self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        let (command, is_alone) = (self.command, outcome.as_ref().is_err_and(|failure| !failure.is_told()));
        let written: Vec<_> =
            self.open.into_iter().filter(|(_, purpose, _)| *purpose == Purpose::Write).collect();
        let closed = with_all(written, |(path, _, fs)| match fs.close() {
            Err(error) if !is_alone => Err(Failure::new(command, error.context(path.display()))),
            _ => Ok(()),
        });
        match outcome {
            Err(failure) if failure.is_told() => Err(closed.map_err(Failure::tell).err().unwrap_or(failure)),
            outcome => outcome.and(closed),
        }
    }
}

/// Adds to the error of an image that does not open a way to read it past the damage, if a trial shows that it works.
pub(crate) fn with_way_in(set: &NamedSet, error: Error) -> Error {
    if !error.kind().is_damage() || error.host().is_some() || error.advice().is_some() {
        return error;
    }
    let shown = quoted(&set.first().display().to_string());
    let devices = typed(set);
    error.advise(match way_in(set.clone()) {
        Some(WayIn::Read) => {
            format!("its files can be read: `creamery cp -a --ignore-errors{devices} {shown}:/ DIR`")
        }
        Some(WayIn::Rescue(words)) => {
            format!(
                "its files can be read with `creamery cp -a --ignore-errors --rescue {words}{devices} {shown}:/ DIR`"
            )
        }
        Some(WayIn::RootTree(root)) => {
            format!("its files can be read with `creamery restore -i -t {root}{devices} {shown} DIR`")
        }
        None => {
            "no other way to read it was found; `creamery help rescue` says what is left to try".to_owned()
        }
    })
}

/// The options that open `set`, as the user types them, each with a leading space.
fn typed(set: &NamedSet) -> String {
    let device = |path: &Path| format!(" --device {}", quoted(&path.display().to_string()));
    let devices: String = set.named().skip(1).map(device).collect();
    if set.is_degraded() { devices + " --degraded" } else { devices }
}

/// Advice on how to read the rest of a damaged image.
fn past_damage(image: &str, within: &str) -> String {
    format!("copy the intact parts with `creamery cp -a --ignore-errors{within} {}:/ DIR`", quoted(image))
}

/// Quotes a name as one word for a shell.
pub(crate) fn quoted(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./@:+,=%".contains(letter);
    // A leading dash would begin an option.
    let name = if name.starts_with('-') { format!("./{name}") } else { name.to_owned() };
    if name.chars().all(is_plain) { name } else { format!("'{}'", name.replace('\'', r"'\''")) }
}

/// Turns `/path: why` from the library into `IMAGE:/path: why`.
pub(crate) fn in_image(image: &str, error: Error) -> Error {
    let text = error.to_string();
    if error.is_on_host() || text.contains(image) {
        return error;
    }
    if text.starts_with('/') {
        // The library's message begins with the path; no space follows the colon between image and path.
        return Error::with_source(error.kind(), String::new(), InImage(image.to_owned(), error));
    }
    error.context(image)
}

/// The library's error about a path, with the image in front of it.
#[derive(Debug)]
struct InImage(String, Error);

impl std::fmt::Display for InImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.0, self.1)
    }
}

impl std::error::Error for InImage {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.1)
    }
}

/// Prints warnings about the partition table in which an image was found, if no filesystem is opened.
pub(crate) fn warn_of_table(image: &Path) {
    partitions::notes(image).iter().for_each(|note| warn_of(image, note));
}

/// Prints a warning about an image.
pub(crate) fn warn_of(image: &Path, note: &str) {
    let shown = image.display().to_string();
    warn(&if note.contains(&shown) { note.to_owned() } else { format!("{shown}: {note}") });
}
