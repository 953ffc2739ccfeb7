//! A filesystem as one page, or as a picture.
//!
//! The page stands alone: no script, no network, no font except the reader's own, and no address in it except that of SVG's namespace. It
//! shows the disk map (chunks in the order of the devices' bytes, coloured by kind and fill, damage marked, the disk around a partition),
//! the space by directory, the subvolumes, the properties of the filesystem, and the findings of a check.
//!
//! # One pass
//! One count ([`crate::extents::Extents::disk_usage`]) gives the space of pictures and subvolumes. Names that are
//! too small for a picture are not kept (`treemap`). The check reads the trees once more, and no data.
//!
//! # Damage
//! Readable parts are drawn, and errors are listed. To make a page of an image that opens only past damage, use the same values of
//! `--rescue` as for any other command.
//!
//! # Hostile names
//! Names from the disk are shown as [`Escaped`] shows them, and all text goes through one function (`svg::xml`) on its way into the page.

mod disk_map;
mod page;
mod subvolume_tree;
mod svg;
mod treemap;

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Escaped, HumanSize, Result, TreeId};
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_volume::NamedSet;

use self::disk_map::{DiskMap, Frame, FramePart};
use self::subvolume_tree::SubvolumeTree;
use self::treemap::{Gathered, TreemapNode};
use crate::check::{self, CheckOptions};
use crate::extents::FileUsage;
use crate::host_path::write_whole_file;
use crate::partitions::{self, ImageName};
use crate::progress::{NoProgress, Progress};
use crate::{Filesystem, ImageOptions};

/// Pixels of a picture.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 620.0;
/// A file or directory is shown by name from this fraction of all space: one in 2000.
const SHARE_SHOWN: u64 = 2_000;
/// Errors that are listed.
const TROUBLES_MAX: usize = 1_000;

/// The data of a report on a filesystem, as a page or as pictures.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// use creamery::{Image, report::{Overview, PictureKind}};
/// use creamery::progress::NoProgress;
/// let overview = Overview::of(&image, Image::options(), &NoProgress)?;
/// assert!(overview.html().starts_with("<!doctype html>"));
/// assert!(overview.svg(PictureKind::Map).starts_with("<svg "));
/// # Ok::<(), creamery::Error>(())
/// ```
pub struct Overview {
    name: String,
    map: DiskMap,
    space: TreemapNode,
    subvolumes: SubvolumeTree,
    facts: Vec<(&'static str, String)>,
    /// `None` for an earlier commit: a check reads the last one.
    findings: Option<Result<check::Report>>,
    /// Notes about the filesystem.
    notes: Vec<String>,
    /// Errors of the count.
    troubles: Vec<String>,
    more_troubles: u64,
}

/// The kind of a picture.
///
/// ```
/// assert_ne!(creamery::report::PictureKind::Map, creamery::report::PictureKind::Treemap);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PictureKind {
    /// Chunks in the order of the devices' bytes.
    Map,
    /// Space by directory.
    Treemap,
}

impl Overview {
    /// Reads the filesystem in `image`, with `options`; paths begin at the top level.
    ///
    /// # Errors
    /// The image does not open; `progress` cancels.
    pub fn of(image: impl Into<NamedSet>, options: ImageOptions, progress: &dyn Progress) -> Result<Self> {
        let named = image.into();
        let set = options.set(named.clone());
        let image = set.first();
        let is_last = options.shown_generation().is_none();
        let fs = options.subvolume_id(TreeId::FS).even_with_lost_root().open(named)?;
        let name = Escaped(image.as_os_str().as_encoded_bytes()).to_string();
        let mut overview = Self::drawn(name, &fs, frame(image), progress)?;
        let findings =
            is_last.then(|| check::check_set(set.clone(), &CheckOptions::default(), &check::NoProgress));
        overview.add_findings(findings);
        Ok(overview)
    }

    /// Reads a device that is open already, without a check. For tests of this project; not part of the stability promise.
    ///
    /// # Errors
    /// Those of [`Overview::of`].
    #[doc(hidden)]
    pub fn of_device(device: Arc<dyn BlockDevice>, options: ImageOptions) -> Result<Self> {
        let fs = options.subvolume_id(TreeId::FS).even_with_lost_root().open_device(device)?;
        Self::drawn("image".to_owned(), &fs, None, &NoProgress)
    }

    /// Collects the data of `fs`.
    fn drawn(name: String, fs: &Filesystem, frame: Option<Frame>, progress: &dyn Progress) -> Result<Self> {
        let map = DiskMap::of(fs, frame);
        let mut gathered = Gathered::new((fs.volume().bytes_used() / SHARE_SHOWN).max(1));
        let (mut troubles, mut more_troubles) = (Vec::new(), 0);
        let mut trouble = |error: Error| {
            if error.kind() == ErrorKind::Interrupted {
                return Err(error);
            }
            if troubles.len() < TROUBLES_MAX {
                troubles.push(error.to_string())
            } else {
                more_troubles += 1
            }
            Ok(())
        };
        let mut subvolumes = match fs.subvolumes().table() {
            Ok(table) => SubvolumeTree::new(table),
            Err(error) => {
                trouble(error.context("the subvolumes"))?;
                SubvolumeTree::new(Default::default())
            }
        };
        let counted = fs.disk_usage_past_damage(
            Path::new("/"),
            &mut |path, usage| {
                gathered.add(path, usage);
                subvolumes.count(path, usage);
                progress.entry(path.as_os_str().as_encoded_bytes(), 0);
                progress.go_on()
            },
            &mut trouble,
        );
        let whole = match counted {
            Ok(counted) => FileUsage { total: counted.total, exclusive: counted.exclusive },
            // The top level itself is lost. An error of `progress` still ends the call.
            Err(error) => trouble(error).map(|()| FileUsage::default())?,
        };
        Ok(Self {
            name,
            map,
            space: gathered.finish("/", whole),
            subvolumes,
            facts: facts(fs),
            findings: None,
            notes: fs.volume().notes(),
            troubles,
            more_troubles,
        })
    }

    /// Keeps the findings of a check, and marks their positions on the map.
    fn add_findings(&mut self, findings: Option<Result<check::Report>>) {
        for finding in findings.iter().flatten().flat_map(|report| &report.findings) {
            match &finding.place.sector {
                Some(sector) => match (sector.devid, sector.device_offset) {
                    (Some(id), Some(offset)) => self.map.mark(id, offset),
                    _ => self.map.mark_logical(sector.logical),
                },
                None => finding.place.block.into_iter().for_each(|block| self.map.mark_logical(block)),
            }
        }
        self.findings = findings;
    }

    /// Notes about the filesystem, one sentence each, like ignored damage. The page shows them, too.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The number of files and directories that could not be read. The page lists them.
    #[must_use]
    pub const fn unread(&self) -> u64 {
        // A list is shorter than the largest integer.
        self.troubles.len() as u64 + self.more_troubles
    }

    /// Writes the page, or one picture, to a file of the host. An existing file is replaced; a pipe or a device is written to.
    ///
    /// # Errors
    /// `AlreadyExists`: the file holds a Btrfs filesystem or partitions. The name means a partition that does not exist. The host's.
    pub fn save(&self, picture: Option<PictureKind>, to: impl AsRef<Path>) -> Result<()> {
        let text = picture.map_or_else(|| self.html(), |picture| self.svg(picture));
        write_whole_file(to.as_ref(), false, &NoProgress, &|mut file| {
            file.write_all(text.as_bytes()).map_err(|error| Error::from(error).on_host(to.as_ref()))
        })
        .map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => error.advise("name another file"),
            _ => error,
        })
    }

    /// Returns one picture, as an SVG file.
    #[must_use]
    pub fn svg(&self, kind: PictureKind) -> String {
        match kind {
            PictureKind::Map => self.map.picture(WIDTH),
            PictureKind::Treemap => self.space.picture(WIDTH, HEIGHT),
        }
    }
}

/// The disk around an image that is a partition.
fn frame(image: &Path) -> Option<Frame> {
    let name = ImageName::find(image).ok()?;
    let file = name.file().to_owned();
    let disk = partitions::list(&file).ok().filter(|_| file != image)?;
    let ours = FileDevice::open(image, Access::ReadOnlyForced).ok()?.start_in_file();
    let of = |listed: &partitions::Listed| {
        let partition = &listed.partition;
        let is_ours = ours == partition.start;
        let number = || partition.number.to_string();
        let name = match partition.name.as_str() {
            "" => number(),
            name => Escaped(name.as_bytes()).to_string(),
        };
        FramePart { start: partition.start, len: partition.len, name, told: partition.to_string(), is_ours }
    };
    Some(Frame { len: disk.len, partitions: disk.partitions.iter().map(of).collect() })
}

fn facts(fs: &Filesystem) -> Vec<(&'static str, String)> {
    let label = Escaped(&fs.volume().label()).to_string();
    let owner = fs
        .metadata("/")
        .map(|root| format!("{}:{}, mode {:o}", root.uid(), root.gid(), root.permissions().mode()));
    let sizes: u64 = fs.volume().devices().iter().map(|device| device.total_bytes).sum();
    let devices = match fs.volume().devices().len() {
        1 => String::new(),
        more => format!(" on {more} devices"),
    };
    vec![
        ("label", if label.is_empty() { "none".to_owned() } else { label }),
        ("UUID", fs.volume().uuid().to_string()),
        ("generation", fs.volume().generation().to_string()),
        ("size", format!("{}{devices}", HumanSize(sizes))),
        ("used", HumanSize(fs.volume().bytes_used()).to_string()),
        (
            "tree blocks",
            format!("{} bytes, checksum {}", fs.volume().node_size(), fs.volume().checksum_type()),
        ),
        ("features", fs.volume().features().join(", ")),
        ("root directory", owner.unwrap_or_else(|error| error.to_string())),
    ]
}
