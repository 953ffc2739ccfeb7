//! `creamery property`: properties of files, subvolumes and filesystems, as in btrfs-progs.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::{Args, Subcommand, ValueEnum};
use creamery::{Error, ErrorKind, Filesystem};
use creamery_mount::LiveBtrfs;
use serde::Serialize;

use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::json::{Array, text_of};
use crate::live::{is_block_device, live_btrfs};
use crate::output::{Output, writing};
use crate::view::{ViewArgs, WriteArgs, refuse_on_mount};

/// The extended attribute that holds the compression.
const COMPRESSION: &str = "btrfs.compression";

/// Get, set and list properties of files, subvolumes and filesystems.
#[derive(Subcommand, Debug)]
pub(crate) enum PropertyCommand {
    Get(GetArgs),
    List(PropertyListArgs),
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
    #[value(alias = "d")]
    Device,
}

#[derive(Args, Debug)]
struct Object {
    /// The type of the object, if the path is ambiguous.
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<Kind>,

    /// The file, directory or subvolume: on a live mount, or in an image, of which IMAGE alone is the root.
    #[arg(value_name = "IMAGE:/PATH|PATH")]
    place: OsString,
}

/// Print one property, or all.
///
/// A path can be on a live mount of Linux' own Btrfs, too.
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

/// List the properties of an object.
///
/// Examples:
///   creamery property list disk.img:/home
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct PropertyListArgs {
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
/// A received subvolume is not made writable without --force: incremental sends rely on it.
/// Take a snapshot of it instead. A path can be on a live mount of Linux' own Btrfs, too.
///
/// Examples:
///   creamery property set disk.img:/backup ro true
///   creamery property set /mnt/backup ro true
///   creamery property set /mnt/logs compression zstd:3
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    object: Object,

    /// Make even a received subvolume writable, and clear its received UUID.
    #[arg(short = 'f', long)]
    force: bool,

    /// The property.
    name: Property,

    /// Its value; an empty one removes compression.
    value: OsString,

    #[command(flatten)]
    write: WriteArgs,
}

#[derive(Serialize)]
struct PropertyRow {
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

    /// Whether objects of this kind have the property.
    const fn is_of_kind(self, kind: Kind) -> bool {
        match self {
            Self::Ro => matches!(kind, Kind::Subvol),
            Self::Label => matches!(kind, Kind::Filesystem | Kind::Device),
            Self::Compression => matches!(kind, Kind::Inode),
        }
    }

    const fn what(self) -> &'static str {
        match self {
            Self::Ro => "read-only status of a subvolume",
            Self::Label => "label of the filesystem",
            Self::Compression => "compression algorithm for the file or directory",
        }
    }

    /// Whether the object at `path` has the property.
    fn is_of(self, fs: &Filesystem, path: &Path, kind: Option<Kind>) -> Result<bool, Error> {
        let meta = fs.symlink_metadata(path)?;
        let is_subvolume = || fs.subvolumes().id_at(path).ok();
        let fits = match self {
            Self::Ro => is_subvolume().is_some(),
            Self::Label => is_subvolume() == Some(fs.subvolumes().opened()),
            Self::Compression => meta.is_file() || meta.is_dir(),
        };
        Ok(fits && kind.is_none_or(|kind| self.is_of_kind(kind)))
    }

    /// Whether the object on a live mount has the property; only files and directories can be named there.
    fn is_of_live(self, live: &LiveBtrfs, kind: Option<Kind>) -> Result<bool, Error> {
        let fits = match self {
            Self::Ro => live.read_only()?.is_some(),
            // With `-t filesystem` any directory of the filesystem will do.
            Self::Label => live.is_directory()? && (kind.is_some() || live.is_mount_point()?),
            Self::Compression => true,
        };
        Ok(fits && kind.is_none_or(|kind| self.is_of_kind(kind)))
    }

    /// The value on a mount; `None` if it was never set.
    fn get_live(self, live: &LiveBtrfs) -> Result<Option<Vec<u8>>, Error> {
        match self {
            Self::Ro => Ok(live.read_only()?.map(|read_only| read_only.to_string().into_bytes())),
            Self::Label => live.label().map(Some),
            Self::Compression => live.compression(),
        }
    }

    /// The value; `None` if it was never set.
    fn get(self, fs: &Filesystem, path: &Path) -> Result<Option<Vec<u8>>, Error> {
        match self {
            Self::Ro => {
                let info = fs.subvolumes().info(fs.subvolumes().id_at(path)?)?;
                Ok(Some(info.is_read_only().to_string().into_bytes()))
            }
            Self::Label => Ok(Some(fs.volume().label())),
            Self::Compression => match fs.xattr(path, COMPRESSION) {
                Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(None),
                other => other.map(Some),
            },
        }
    }
}

impl SetArgs {
    fn set_live(&self, live: &LiveBtrfs) -> Result<(), Error> {
        let value = self.value.as_bytes();
        match self.name {
            Property::Ro => match read_only_of(value)? {
                false if self.force => live.set_writable_by_force(),
                read_only => live.set_read_only(read_only),
            },
            Property::Label => live.set_label(value),
            Property::Compression => live.set_compression(value),
        }
    }

    fn set(&self, fs: &Filesystem, path: &Path) -> Result<(), Error> {
        let value = self.value.as_bytes();
        match self.name {
            Property::Ro => {
                let read_only = read_only_of(value)?;
                let id = fs.subvolumes().id_at(path)?;
                let is = fs.subvolumes().info(id)?;
                match read_only || is.received_uuid.is_none() {
                    false if self.force => fs.subvolumes().set_writable_by_force(id),
                    false if is.is_read_only() => {
                        let text = "incremental sends rely on this received subvolume: take a snapshot of it, or use -f";
                        Err(Error::invalid(format!("{}: {text}", path.display())))
                    }
                    _ if read_only => fs.subvolumes().set_read_only(id),
                    _ => fs.subvolumes().set_writable(id),
                }
            }
            Property::Label => fs.volume().set_label(value),
            Property::Compression if value.is_empty() => match fs.remove_xattr(path, COMPRESSION) {
                Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(()),
                other => other,
            },
            Property::Compression => fs.set_xattr(path, COMPRESSION, value),
        }
    }
}

fn read_only_of(value: &[u8]) -> Result<bool, Error> {
    match value {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(Error::invalid(format!("expected true or false, found '{}'", value.escape_ascii()))),
    }
}

/// Refuses a property that the object does not have.
fn check(has_it: bool, property: Property, path: &Path) -> Result<(), Error> {
    if has_it {
        return Ok(());
    }
    Err(Error::invalid(format!("{} has no property {}", path.display(), property.name())))
}

impl Object {
    /// The live mount of the operand and the kind of object there, or `None` for an image. A device is a device with or without `-t`.
    fn live(&self, command: &'static str) -> Result<Option<(LiveBtrfs, Option<Kind>)>, Failure> {
        let path = Path::new(&self.place);
        if is_block_device(path) {
            let failed = |error| Failure::new(command, error);
            let found = LiveBtrfs::of_device(path).map_err(failed)?;
            found.as_ref().map_or(Ok(()), |_| refuse_on_mount(path)).map_err(failed)?;
            return Ok(found.map(|(live, _)| (live, self.kind.or(Some(Kind::Device)))));
        }
        Ok(live_btrfs(command, &self.place)?.map(|live| (live, self.kind)))
    }

    /// Refuses a device that `-t` calls something else: it does not have the properties of its filesystem.
    fn check_kind(&self, kind: Option<Kind>) -> Result<(), Error> {
        let path = Path::new(&self.place);
        if kind != Some(Kind::Device) && is_block_device(path) {
            return Err(Error::invalid(format!("{}: a block device, expected -t device", path.display())));
        }
        Ok(())
    }
}

fn get(args: &GetArgs) -> Result<(), Failure> {
    const COMMAND: &str = "property get";
    let mut images = Images::new(COMMAND, &args.view);
    let found = match args.object.live(COMMAND)? {
        Some((live, kind)) => {
            let found = args.object.check_kind(kind).and_then(|()| get_live(&live, args, kind));
            found.map_err(|error| Failure::new(COMMAND, error))?
        }
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

fn get_live(live: &LiveBtrfs, args: &GetArgs, kind: Option<Kind>) -> Result<Vec<(Property, Vec<u8>)>, Error> {
    let mut found = Vec::new();
    for property in Property::ALL.into_iter().filter(|one| args.name.is_none_or(|name| name == *one)) {
        let has_it = property.is_of_live(live, kind)?;
        // With `-t` the kind decides which properties the object has.
        if args.name.is_some() || kind.is_some_and(|kind| property.is_of_kind(kind)) {
            check(has_it, property, live.path())?;
        }
        if has_it {
            found.extend(property.get_live(live)?.map(|value| (property, value)));
        }
    }
    Ok(found)
}

fn get_in_image(images: &mut Images<'_>, args: &GetArgs) -> Result<Vec<(Property, Vec<u8>)>, Failure> {
    let place = images.place(&args.object.place)?;
    let failed = images.failed(&place.image);
    let fs = images.open(&place.image, Purpose::Read)?;
    let find = || -> Result<Vec<(Property, Vec<u8>)>, Error> {
        let mut found = Vec::new();
        if let Some(one) = args.name {
            check(one.is_of(fs, &place.path, args.object.kind)?, one, &place.path)?;
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

fn list(args: &PropertyListArgs) -> Result<(), Failure> {
    const COMMAND: &str = "property list";
    let mut images = Images::new(COMMAND, &args.view);
    let found = match args.object.live(COMMAND)? {
        Some((live, kind)) => {
            // With `-t` the list has the properties of that kind.
            let found = list_of(|property| match kind {
                Some(kind) => Ok(property.is_of_kind(kind)),
                None => property.is_of_live(&live, None),
            });
            found.map_err(|error| Failure::new(COMMAND, error))?
        }
        None => list_in_image(&mut images, args)?,
    };
    print(COMMAND, |out| {
        if args.json {
            return as_json(out, found.iter().map(|property| (*property, None)));
        }
        found.iter().try_for_each(|property| writeln!(out, "{:<20}{}", property.name(), property.what()))
    })
}

fn list_in_image(images: &mut Images<'_>, args: &PropertyListArgs) -> Result<Vec<Property>, Failure> {
    let place = images.place(&args.object.place)?;
    let failed = images.failed(&place.image);
    let fs = images.open(&place.image, Purpose::Read)?;
    list_of(|property| match args.object.kind {
        Some(kind) => fs.symlink_metadata(&place.path).map(|_| property.is_of_kind(kind)),
        None => property.is_of(fs, &place.path, None),
    })
    .map_err(failed)
}

/// The properties for which `is_of` holds.
fn list_of(is_of: impl Fn(Property) -> Result<bool, Error>) -> Result<Vec<Property>, Error> {
    let mut found = Vec::new();
    for property in Property::ALL {
        if is_of(property)? {
            found.push(property);
        }
    }
    Ok(found)
}

fn set(args: &SetArgs) -> Result<(), Failure> {
    const COMMAND: &str = "property set";
    if let Some((live, kind)) = args.object.live(COMMAND)? {
        let has_it = args.object.check_kind(kind).and_then(|()| args.name.is_of_live(&live, kind));
        let set = has_it.and_then(|has_it| check(has_it, args.name, live.path()));
        let set = set.and_then(|()| args.set_live(&live));
        return set.map_err(|error| Failure::new(COMMAND, error));
    }
    let mut images = Images::to_write(COMMAND, &args.write);
    let place = images.place(&args.object.place)?;
    let failed = images.failed(&place.image);
    let outcome = images.open(&place.image, Purpose::Write).and_then(|fs| {
        let path = &place.path;
        let checked = args.name.is_of(fs, path, args.object.kind);
        let checked = checked.and_then(|has_it| check(has_it, args.name, path));
        checked.and_then(|()| args.set(fs, path)).map_err(failed)
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
        array.push(&PropertyRow { name: property.name(), value, value_bytes })?;
    }
    array.end()
}

fn print(command: &'static str, print: impl FnOnce(&mut Output) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = Output::new();
    let printed = print(&mut out).map_err(writing);
    printed.and_then(|()| out.finish()).map_err(|error| Failure::new(command, error))
}
