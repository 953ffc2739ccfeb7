//! `creamery property`: what btrfs-progs calls properties of files, subvolumes and filesystems.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::{Args, Subcommand, ValueEnum};
use creamery::{Error, ErrorKind, Filesystem};
use serde::Serialize;

use super::subvolume::target::{OnMount, failed_at};
use super::subvolume::told::Told;
use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::json::{Array, text_of};
use crate::output::{Output, writing};
use crate::view::{ViewArgs, WriteArgs};

/// Where compression is written down.
const COMPRESSION: &str = "btrfs.compression";

/// Get, set and list properties of files, subvolumes and filesystems.
#[derive(Subcommand, Debug)]
pub(crate) enum PropertyCommand {
    Get(GetArgs),
    List(ListArgs),
    Set(SetArgs),
}

/// A property.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Property {
    /// Whether a subvolume is read-only: true or false.
    Ro,
    /// The label of the filesystem, at its root.
    Label,
    /// How new data of a file is compressed, or of new files in a directory.
    Compression,
}

/// What a path is taken for.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    #[value(alias = "i")]
    Inode,
    #[value(alias = "s")]
    Subvol,
    #[value(alias = "f")]
    Filesystem,
}

#[derive(Args, Debug)]
struct Object {
    /// What the path stands for, where it can be more than one thing.
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<Kind>,

    /// The file, directory or subvolume; IMAGE alone is its root.
    #[arg(value_name = "IMAGE:/PATH")]
    place: OsString,
}

/// Print one property, or all. On a live mount there is `ro` alone.
///
/// Examples:
///   creamery property get disk.img:/backup ro
///   creamery property get /mnt/backup ro
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    object: Object,

    /// Only this property.
    name: Option<Property>,

    /// One JSON array.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArgs,
}

/// Print which properties there are. On a live mount there is `ro` alone.
///
/// Examples:
///   creamery property list disk.img:/home
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    object: Object,

    /// One JSON array.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArgs,
}

/// Set a property.
///
/// A subvolume that was received is not made writable: what is sent later relies on it.
/// Take a snapshot of it instead. On a live mount there is `ro` alone.
///
/// Examples:
///   creamery property set disk.img:/backup ro true
///   creamery property set /mnt/backup ro true
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    object: Object,

    /// The property.
    name: Property,

    /// Its value; an empty one takes compression away.
    value: OsString,

    #[command(flatten)]
    write: WriteArgs,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_bytes: Option<String>,
}

pub(crate) fn run(command: &PropertyCommand) -> Result<(), Failure> {
    match command {
        PropertyCommand::Get(args) => get(args),
        PropertyCommand::List(args) => list(args),
        PropertyCommand::Set(args) => set(args),
    }
}

impl Property {
    const ALL: [Self; 3] = [Self::Ro, Self::Label, Self::Compression];

    const fn name(self) -> &'static str {
        match self {
            Self::Ro => "ro",
            Self::Label => "label",
            Self::Compression => "compression",
        }
    }

    const fn what(self) -> &'static str {
        match self {
            Self::Ro => "read-only status of a subvolume",
            Self::Label => "label of the filesystem",
            Self::Compression => "compression algorithm for the file or directory",
        }
    }

    /// Why it is neither told nor set where something on a live mount is named.
    fn is_not_live(self, command: &'static str, path: &Path) -> Failure {
        let text = format!("{}: the {} on a live mount", path.display(), self.what());
        let advice =
            "name it in the image when that is not mounted, as IMAGE:/PATH; on a mount there is `ro` alone";
        Failure::new(command, Error::unsupported(text)).advise(advice)
    }

    /// Whether what is at `path` has it.
    fn is_of(self, fs: &Filesystem, path: &Path, kind: Option<Kind>) -> Result<bool, Error> {
        let meta = fs.symlink_metadata(path)?;
        let wanted = match self {
            Self::Ro => Kind::Subvol,
            Self::Label => Kind::Filesystem,
            Self::Compression => Kind::Inode,
        };
        let is_subvolume = || fs.subvolume_at(path).ok();
        let fits = match self {
            Self::Ro => is_subvolume().is_some(),
            Self::Label => is_subvolume() == Some(fs.root_subvolume()),
            Self::Compression => meta.is_file() || meta.is_dir(),
        };
        Ok(fits && kind.is_none_or(|kind| kind == wanted))
    }

    /// Its value; none when nothing was chosen.
    fn get(self, fs: &Filesystem, path: &Path) -> Result<Option<Vec<u8>>, Error> {
        match self {
            Self::Ro => {
                let info = fs.subvolume_info(fs.subvolume_at(path)?)?;
                Ok(Some(info.is_read_only().to_string().into_bytes()))
            }
            Self::Label => Ok(Some(fs.label())),
            Self::Compression => match fs.xattr(path, COMPRESSION) {
                Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(None),
                other => other.map(Some),
            },
        }
    }

    fn set(self, fs: &Filesystem, path: &Path, value: &[u8]) -> Result<(), Error> {
        match self {
            Self::Ro => {
                let read_only = read_only_of(value)?;
                let id = fs.subvolume_at(path)?;
                if !read_only && fs.subvolume_info(id)?.received_uuid.is_some() {
                    let text = format!("{}: it was received; take a snapshot of it", path.display());
                    return Err(Error::new(ErrorKind::PermissionDenied, text));
                }
                fs.set_subvolume_read_only(id, read_only)
            }
            Self::Label => fs.set_label(value),
            Self::Compression if value.is_empty() => match fs.remove_xattr(path, COMPRESSION) {
                Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(()),
                other => other,
            },
            Self::Compression => fs.set_xattr(path, COMPRESSION, value),
        }
    }
}

fn read_only_of(value: &[u8]) -> Result<bool, Error> {
    match value {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(Error::invalid(format!("'{}' is neither true nor false", value.escape_ascii()))),
    }
}

fn check(property: Property, fs: &Filesystem, path: &Path, kind: Option<Kind>) -> Result<(), Error> {
    if property.is_of(fs, path, kind)? {
        return Ok(());
    }
    Err(Error::invalid(format!("{}: there is no property {} of it", path.display(), property.name())))
}

fn get(args: &GetArgs) -> Result<(), Failure> {
    const COMMAND: &str = "property get";
    let mut images = Images::new(COMMAND, &args.view);
    let found = match OnMount::of(COMMAND, &args.object.place)? {
        Some(on_mount) => get_live(on_mount, args.name)?,
        None => get_in_image(&mut images, args)?,
    };
    print(COMMAND, |out| {
        if args.json {
            return as_json(out, found.iter().map(|(property, value)| (*property, Some(&value[..]))));
        }
        for (property, value) in &found {
            write!(out, "{}=", property.name())?;
            out.path(Path::new(std::ffi::OsStr::from_bytes(value)))?;
            out.write_all(b"\n")?;
        }
        Ok(())
    })
}

/// What a live mount tells: whether a subvolume is read-only.
fn get_live(on_mount: OnMount, name: Option<Property>) -> Result<Vec<(Property, Vec<u8>)>, Failure> {
    const COMMAND: &str = "property get";
    if let Some(other @ (Property::Label | Property::Compression)) = name {
        return Err(other.is_not_live(COMMAND, &on_mount.path));
    }
    let path = on_mount.path.clone();
    match ro_of_live(COMMAND, on_mount)? {
        None if name.is_some() => {
            let text = format!("{}: not the root of a subvolume", path.display());
            Err(Failure::new(COMMAND, Error::invalid(text)))
        }
        found => Ok(found.into_iter().map(|value| (Property::Ro, value)).collect()),
    }
}

/// The value of `ro` of a subvolume's root on a live mount; none of all else.
fn ro_of_live(command: &'static str, on_mount: OnMount) -> Result<Option<Vec<u8>>, Failure> {
    if !on_mount.is_dir {
        return Ok(None);
    }
    let Told { table, here, is_root } = Told::of_mount(command, on_mount)?;
    let found = table.get(here).filter(|_| is_root);
    Ok(found.map(|found| found.info.is_read_only().to_string().into_bytes()))
}

fn get_in_image(images: &mut Images<'_>, args: &GetArgs) -> Result<Vec<(Property, Vec<u8>)>, Failure> {
    let place = images.place(&args.object.place)?;
    let failed = images.failed(&place.image);
    let fs = images.open(&place.image, Purpose::Read)?;
    let find = || -> Result<Vec<(Property, Vec<u8>)>, Error> {
        let mut found = Vec::new();
        if let Some(one) = args.name {
            check(one, fs, &place.path, args.object.kind)?;
        }
        for property in Property::ALL {
            let is_asked = args.name.is_none_or(|name| name == property);
            if is_asked && property.is_of(fs, &place.path, args.object.kind)? {
                found.extend(property.get(fs, &place.path)?.map(|value| (property, value)));
            }
        }
        Ok(found)
    };
    find().map_err(failed)
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    const COMMAND: &str = "property list";
    let mut images = Images::new(COMMAND, &args.view);
    let found = match OnMount::of(COMMAND, &args.object.place)? {
        Some(on_mount) => ro_of_live(COMMAND, on_mount)?.map(|_| Property::Ro).into_iter().collect(),
        None => list_in_image(&mut images, args)?,
    };
    print(COMMAND, |out| {
        if args.json {
            return as_json(out, found.iter().map(|property| (*property, None)));
        }
        found.iter().try_for_each(|property| writeln!(out, "{:<20}{}", property.name(), property.what()))
    })
}

fn list_in_image(images: &mut Images<'_>, args: &ListArgs) -> Result<Vec<Property>, Failure> {
    let place = images.place(&args.object.place)?;
    let failed = images.failed(&place.image);
    let fs = images.open(&place.image, Purpose::Read)?;
    let mut found = Vec::new();
    for property in Property::ALL {
        if property.is_of(fs, &place.path, args.object.kind).map_err(&failed)? {
            found.push(property);
        }
    }
    Ok(found)
}

fn set(args: &SetArgs) -> Result<(), Failure> {
    const COMMAND: &str = "property set";
    if let Some(on_mount) = OnMount::of(COMMAND, &args.object.place)? {
        if args.name != Property::Ro {
            return Err(args.name.is_not_live(COMMAND, &on_mount.path));
        }
        let (dir, path) = on_mount.directory(COMMAND)?;
        let set = read_only_of(args.value.as_bytes()).and_then(|value| dir.set_subvolume_read_only(value));
        return set.map_err(failed_at(COMMAND, &path));
    }
    let mut images = Images::to_write(COMMAND, &args.write);
    let place = images.place(&args.object.place)?;
    let failed = images.failed(&place.image);
    let outcome = images.open(&place.image, Purpose::Write).and_then(|fs| {
        let path = &place.path;
        let checked = check(args.name, fs, path, args.object.kind);
        checked.and_then(|()| args.name.set(fs, path, args.value.as_bytes())).map_err(failed)
    });
    images.finish(outcome)
}

fn as_json<'a>(
    out: &mut Output,
    found: impl Iterator<Item = (Property, Option<&'a [u8]>)>,
) -> io::Result<()> {
    let mut array = Array::begin(out)?;
    for (property, value) in found {
        let (value, value_bytes) =
            value.map(text_of).map_or((None, None), |(text, bytes)| (Some(text), bytes));
        array.push(&Row { name: property.name(), value, value_bytes })?;
    }
    array.end()
}

fn print(command: &'static str, print: impl FnOnce(&mut Output) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = Output::new();
    let printed = print(&mut out).map_err(writing);
    printed.and_then(|()| out.finish()).map_err(|error| Failure::new(command, error))
}
