//! `creamery inspect-internal logical-resolve`, `inode-resolve`, `subvolid-resolve` and `rootid`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use creamery::Error;
use creamery::extents::{DataUser, ExtentPart};
use creamery::id::{Logical, ObjectId, TreeId};
use creamery_mount::LiveBtrfs;
use serde::Serialize;

use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::json::{Array, text_of};
use crate::live::live_btrfs;
use crate::output::{Output, writing};
use crate::view::{RescueArgs, ViewArgs};

/// Print the paths of an inode.
///
/// In an image they begin at the top level; on a live mount PATH stands in front of them, as
/// btrfs-progs prints them. A live mount can be one of Linux' own Btrfs, for root.
///
/// Examples:
///   creamery inspect-internal inode-resolve 257 disk.img:/home
///   creamery inspect-internal inode-resolve 257 /mnt/home
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct InodeResolveArgs {
    /// The inode.
    inode: u64,

    /// Anything in its subvolume; IMAGE alone is the default subvolume. On a live mount, the subvolume's root.
    #[arg(value_name = "IMAGE:/PATH|PATH")]
    place: OsString,

    /// Ignored: nothing is left out.
    #[arg(short = 'v', hide = true)]
    verbose: bool,

    /// One JSON array.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArgs,
}

/// Print the files that refer to the data at a logical address.
///
/// For an image it reads the last commit. On a live mount (also of Linux' own Btrfs, for root) it
/// prints the path of each file on that mount, which begins with PATH if the file is below
/// that, or the inode of a file in a subvolume that lies elsewhere.
///
/// Examples:
///   creamery inspect-internal logical-resolve 13631488 disk.img
///   creamery inspect-internal logical-resolve -P 13631488 /mnt
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct LogicalResolveArgs {
    /// The address, bytes.
    logical: u64,

    /// The image, or a directory of a live mount.
    #[arg(value_name = "IMAGE|PATH")]
    place: OsString,

    /// Inodes, offsets and subvolumes instead of paths.
    #[arg(short = 'P')]
    inodes: bool,

    /// Files that refer to any part of the extent, not to that byte alone.
    #[arg(short = 'o')]
    ignore_offset: bool,

    /// Ignored: an answer has room for all.
    #[arg(short = 's', value_name = "SIZE", hide = true)]
    size: Option<u64>,

    /// Ignored: nothing is left out.
    #[arg(short = 'v', hide = true)]
    verbose: bool,

    /// One JSON array.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    rescue: RescueArgs,
}

/// Print the path of a subvolume from the top level on.
#[derive(Args, Debug)]
pub(crate) struct SubvolidResolveArgs {
    /// The subvolume.
    id: u64,

    /// The image, or a directory of a live mount.
    #[arg(value_name = "IMAGE|PATH")]
    place: OsString,

    /// One JSON array.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    rescue: RescueArgs,
}

/// Print the number of the subvolume that a file or directory is in.
///
/// Examples:
///   creamery inspect-internal rootid disk.img:/home
///   creamery inspect-internal rootid /mnt/home
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct RootidArgs {
    /// Anything in it, in an image or on a live mount, also of Linux' own Btrfs.
    #[arg(value_name = "IMAGE:/PATH|PATH")]
    place: OsString,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArgs,
}

#[derive(Serialize)]
struct UserJson {
    inode: u64,
    offset: u64,
    subvolume: u64,
}

#[derive(Serialize)]
struct PathJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

#[derive(Serialize)]
struct RootidJson {
    subvolume: u64,
}

impl PathJson {
    fn new(path: &Path) -> Self {
        let (path, path_bytes) = text_of(path.as_os_str().as_bytes());
        Self { path, path_bytes }
    }
}

/// The name of a file in the output.
enum Named {
    Path(PathBuf),
    /// A file without a path on the mount: the user of the data, and the subvolume's path.
    Elsewhere(DataUser, PathBuf),
}

pub(crate) fn logical(args: &LogicalResolveArgs) -> Result<(), Failure> {
    const COMMAND: &str = "inspect-internal logical-resolve";
    let view = args.rescue.view();
    let mut images = Images::new(COMMAND, &view);
    let part = if args.ignore_offset { ExtentPart::Whole } else { ExtentPart::Byte };
    if let Some(live) = live_btrfs(COMMAND, &args.place)? {
        let failed = |error| Failure::new(COMMAND, error);
        live.check_directory().map_err(failed)?;
        let users = live.resolve_logical(args.logical, part).map_err(failed).map_err(Failure::of_number)?;
        let users: Vec<_> = users.into_iter().map(DataUser::from).collect();
        if args.inodes {
            return print_users(COMMAND, &users, args.json);
        }
        return print_named(COMMAND, &named(&live, &users).map_err(failed)?, args.json);
    }
    let place = images.place(&args.place)?;
    let failed = images.failed(&place.image);
    let fs = images.open_at(&place, Purpose::Read)?;
    let users =
        fs.extents().users(Logical::new(args.logical), part).map_err(&failed).map_err(Failure::of_number)?;
    if args.inodes {
        return print_users(COMMAND, &users, args.json);
    }
    let mut paths = Vec::new();
    for user in &users {
        let top = fs.subvolumes().path(user.subvolume).map_err(&failed)?;
        let below = fs.subvolumes().inode_paths(user.subvolume, user.ino).map_err(&failed)?;
        paths.extend(below.iter().map(|below| Path::new("/").join(&top).join(below)));
    }
    print_paths(COMMAND, paths, args.json)
}

/// The paths of files on a mount.
fn named(live: &LiveBtrfs, users: &[DataUser]) -> Result<Vec<Named>, Error> {
    let asked =
        live.path().canonicalize().map_err(|error| Error::from(error).context(live.path().display()))?;
    // Paths below the operand's directory begin with the words of the operand.
    let shown =
        |whole: PathBuf| whole.strip_prefix(&asked).map(|below| behind(live.path(), below)).unwrap_or(whole);
    let mut found = Vec::new();
    for user in users {
        match live.place_of_subvolume(user.subvolume)? {
            Some(top) => {
                let below = live.inode_paths_in(user.subvolume, user.ino.get())?.into_iter();
                found.extend(below.map(|below| Named::Path(shown(top.join(below)))));
            }
            None => found.push(Named::Elsewhere(*user, live.subvolume_path(user.subvolume)?)),
        }
    }
    Ok(found)
}

fn print_users(command: &'static str, users: &[DataUser], json: bool) -> Result<(), Failure> {
    print(command, |out| {
        if !json {
            return users.iter().try_for_each(|DataUser { subvolume, ino, offset }| {
                writeln!(out, "inode {} offset {offset} root {}", ino.get(), subvolume.get())
            });
        }
        let mut array = Array::begin(out)?;
        for DataUser { subvolume, ino, offset } in users {
            array.push(&UserJson { inode: ino.get(), offset: *offset, subvolume: subvolume.get() })?;
        }
        array.end()
    })
}

pub(crate) fn inode(args: &InodeResolveArgs) -> Result<(), Failure> {
    const COMMAND: &str = "inspect-internal inode-resolve";
    let mut images = Images::new(COMMAND, &args.view);
    if let Some(live) = live_btrfs(COMMAND, &args.place)? {
        let paths = live
            .check_directory()
            .and_then(|()| live.inode_paths(args.inode))
            .map_err(|error| Failure::new(COMMAND, error));
        let paths = paths.map_err(Failure::of_number)?.into_iter().map(|below| behind(live.path(), &below));
        return print_paths(COMMAND, paths.collect(), args.json);
    }
    let place = images.place(&args.place)?;
    let failed = images.failed(&place.image);
    let fs = images.open(&place.image, Purpose::Read)?;
    let subvolume = fs.metadata(&place.path).map_err(&failed)?.subvolume();
    let paths = fs
        .subvolumes()
        .inode_paths(subvolume, ObjectId::new(args.inode))
        .map_err(&failed)
        .map_err(Failure::of_number)?;
    let top = fs.subvolumes().path(subvolume).map_err(&failed)?;
    print_paths(COMMAND, paths.iter().map(|below| Path::new("/").join(&top).join(below)).collect(), args.json)
}

/// Joins two paths as btrfs-progs does: always with a slash.
fn behind(path: &Path, below: &Path) -> PathBuf {
    let mut whole = path.as_os_str().to_owned();
    whole.push("/");
    whole.push(below);
    whole.into()
}

pub(crate) fn subvolid(args: &SubvolidResolveArgs) -> Result<(), Failure> {
    const COMMAND: &str = "inspect-internal subvolid-resolve";
    let view = args.rescue.view();
    let mut images = Images::new(COMMAND, &view);
    let id = TreeId::new(args.id);
    let path = match live_btrfs(COMMAND, &args.place)? {
        Some(live) => {
            let path = live.check_directory().and_then(|()| live.subvolume_path(id));
            path.map_err(|error| Failure::new(COMMAND, error))
        }
        None => {
            let place = images.place(&args.place)?;
            let failed = images.failed(&place.image);
            images.open_at(&place, Purpose::Read)?.subvolumes().path(id).map_err(failed)
        }
    };
    print_paths(COMMAND, vec![path.map_err(Failure::of_number)?], args.json)
}

pub(crate) fn rootid(args: &RootidArgs) -> Result<(), Failure> {
    const COMMAND: &str = "inspect-internal rootid";
    let mut images = Images::new(COMMAND, &args.view);
    let subvolume = match live_btrfs(COMMAND, &args.place)? {
        Some(live) => live.subvolume().map_err(|error| Failure::new(COMMAND, error))?,
        None => {
            let place = images.place(&args.place)?;
            let failed = images.failed(&place.image);
            images.open(&place.image, Purpose::Read)?.metadata(&place.path).map_err(failed)?.subvolume()
        }
    };
    print(COMMAND, |out| {
        if !args.json {
            return writeln!(out, "{subvolume}");
        }
        serde_json::to_writer_pretty(&mut *out, &RootidJson { subvolume: subvolume.get() })?;
        writeln!(out)
    })
}

fn print_paths(command: &'static str, paths: Vec<PathBuf>, json: bool) -> Result<(), Failure> {
    let named: Vec<_> = paths.into_iter().map(Named::Path).collect();
    print_named(command, &named, json)
}

fn print_named(command: &'static str, named: &[Named], json: bool) -> Result<(), Failure> {
    print(command, |out| {
        if !json {
            return named.iter().try_for_each(|named| one_line(out, named));
        }
        let mut array = Array::begin(out)?;
        for named in named {
            match named {
                Named::Path(path) => array.push(&PathJson::new(path))?,
                Named::Elsewhere(DataUser { subvolume, ino, offset }, _) => {
                    array.push(&UserJson {
                        inode: ino.get(),
                        offset: *offset,
                        subvolume: subvolume.get(),
                    })?;
                }
            }
        }
        array.end()
    })
}

fn one_line(out: &mut Output, named: &Named) -> io::Result<()> {
    match named {
        Named::Path(path) => out.path(path)?,
        Named::Elsewhere(user, subvolume) => {
            write!(out, "inode {} subvol ", user.ino)?;
            out.path(if subvolume.as_os_str().is_empty() { Path::new("/") } else { subvolume })?;
            write!(out, " could not be accessed: not mounted")?;
        }
    }
    writeln!(out)
}

fn print(command: &'static str, print: impl FnOnce(&mut Output) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = Output::new();
    let printed = print(&mut out).map_err(writing);
    printed.and_then(|()| out.finish()).map_err(|error| Failure::new(command, error))
}
