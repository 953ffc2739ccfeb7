//! `creamery chmod`, `creamery chown` and `creamery touch`.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use creamery::attributes::{AttributeChange, ModeChange, Owner, Time};
use creamery::{Error, ErrorKind, Filesystem, OpenOptions};

use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::path_in_image::{End, PathInImage};
use crate::time::{parse_stamp, parse_time};
use crate::view::{LongHelp, WriteArgs};

/// Change permission bits of files in an image.
///
/// MODE is octal, or a list as in chmod(1): u+s, go-w, a=rX, g=u. Without u, g, o and a, the
/// bits of the umask stay. With a number of less than five digits a directory keeps its
/// set-user-ID and set-group-ID bits.
///
/// Examples:
///   creamery chmod 4755 disk.img:/usr/bin/su
///   creamery chmod -R u=rwX,go=rX disk.img:/srv
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ChmodArgs {
    /// The mode.
    #[arg(allow_hyphen_values = true)]
    mode: ModeChange,

    /// The files; a symbolic link is followed.
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    places: Vec<OsString>,

    /// Change directories recursively; skip symbolic links in them.
    #[arg(short = 'R', long)]
    recursive: bool,

    #[command(flatten)]
    write: WriteArgs,
}

/// The umask of the process.
fn umask() -> u32 {
    let none = rustix::fs::Mode::empty();
    // umask(2) can only be read by setting it. No other thread makes files now.
    let found = rustix::process::umask(none);
    rustix::process::umask(found);
    found.as_raw_mode()
}

pub(crate) fn chmod(args: &ChmodArgs) -> Result<(), Failure> {
    let change =
        AttributeChange { mode: Some(args.mode.clone()), umask: umask(), ..AttributeChange::default() };
    let mut images = Images::to_write("chmod", &args.write);
    let outcome = with_all(&args.places, |text| {
        let place = images.place(text)?;
        let failed = images.failed(&place.image);
        let fs = images.open(&place.image, Purpose::Write)?;
        if args.recursive {
            change_all(fs, &place, &change, failed)
        } else {
            change.apply(fs, &place.path).map_err(failed)
        }
    });
    images.finish(outcome)
}

/// Changes everything in a directory, and goes on after an error: each error is printed.
fn change_all(
    fs: &Filesystem,
    place: &PathInImage,
    change: &AttributeChange,
    failed: impl Fn(Error) -> Failure,
) -> Result<(), Failure> {
    let mut first = None;
    let done = change.apply_to_all(fs, &place.path, |error| {
        first.get_or_insert(failed(error).tell());
    });
    done.map_err(&failed)?;
    first.map_or(Ok(()), Err)
}

/// Change owner and group of files in an image.
///
/// OWNER is USER, USER:GROUP, USER: (with the group that the user logs in with) or :GROUP.
/// Each is a number, or a name in the image's own /etc/passwd and /etc/group; the names of
/// the host are not used. As on Linux, a file loses its set-user-ID and set-group-ID bits
/// and its capabilities; a directory keeps them.
///
/// Examples:
///   creamery chown 1000:1000 disk.img:/home/ada
///   creamery chown -R www-data: disk.img:/var/www
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub(crate) struct ChownArgs {
    /// The owner.
    owner: String,

    /// The files; a symbolic link is followed, unless -h or -R is given.
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    places: Vec<OsString>,

    /// Change directories recursively, and symbolic links in them themselves.
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Change a symbolic link itself.
    #[arg(short = 'h', long)]
    no_dereference: bool,

    #[command(flatten)]
    help: LongHelp,

    #[command(flatten)]
    write: WriteArgs,
}

pub(crate) fn chown(args: &ChownArgs) -> Result<(), Failure> {
    let mut images = Images::to_write("chown", &args.write);
    let outcome = with_all(&args.places, |text| {
        let place = images.place(text)?;
        let failed = images.failed(&place.image);
        let fs = images.open(&place.image, Purpose::Write)?;
        let owner = Owner::parse(&args.owner, fs).map_err(|error| match error.kind() {
            ErrorKind::NotFound => failed(error).advise("use a numeric ID"),
            _ => failed(error),
        })?;
        let change = AttributeChange { uid: owner.uid, gid: owner.gid, ..AttributeChange::default() };
        if args.recursive {
            change_all(fs, &place, &change, failed)
        } else {
            change_one(fs, &place.path, &change, args.no_dereference).map_err(failed)
        }
    });
    images.finish(outcome)
}

/// Change the times of files in an image; missing files are created, empty.
///
/// Without -d, -t and -r the time is now. A DATE is @SECONDS since 1970, optionally with a
/// fraction, or a date such as 2026-11-25T18:00:00Z. A DATE without an offset and a STAMP are
/// in UTC: an image has no time zone.
///
/// Examples:
///   creamery touch disk.img:/etc/fstab
///   creamery touch -d @1700000000.5 disk.img:/srv/page
///   creamery touch -h -r ./page disk.img:/srv/link
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub(crate) struct TouchArgs {
    /// The files.
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    places: Vec<OsString>,

    /// Change the access time; without -m only that.
    #[arg(short = 'a')]
    access: bool,

    /// Change the modification time; without -a only that.
    #[arg(short = 'm')]
    modification: bool,

    /// Do not create files.
    #[arg(short = 'c', long)]
    no_create: bool,

    /// Use this time.
    #[arg(short = 'd', long, value_parser = parse_time, allow_hyphen_values = true, group = "time")]
    date: Option<creamery::attributes::Timespec>,

    /// Use this time: [[CC]YY]MMDDhhmm[.ss].
    #[arg(short = 't', value_name = "STAMP", group = "time")]
    stamp: Option<String>,

    /// Use the times of this file, in an image or on the host.
    #[arg(short = 'r', long, value_name = "[IMAGE:/]PATH", group = "time")]
    reference: Option<OsString>,

    /// Change a symbolic link itself; create no files.
    #[arg(short = 'h', long)]
    no_dereference: bool,

    #[command(flatten)]
    help: LongHelp,

    #[command(flatten)]
    write: WriteArgs,
}

pub(crate) fn touch(args: &TouchArgs) -> Result<(), Failure> {
    let mut images = Images::to_write("touch", &args.write);
    let outcome = touch_all(args, &mut images);
    images.finish(outcome)
}

fn touch_all(args: &TouchArgs, images: &mut Images<'_>) -> Result<(), Failure> {
    // The place to write is opened first, for writing; the reference file may be in the same image.
    for text in &args.places {
        let place = images.place(text)?;
        images.open(&place.image, Purpose::Write)?;
    }
    let (atime, mtime) = times(args, images)?;
    let both = args.access == args.modification;
    let change = AttributeChange {
        atime: Some(atime).filter(|_| both || args.access),
        mtime: Some(mtime).filter(|_| both || args.modification),
        ..AttributeChange::default()
    };
    with_all(&args.places, |text| {
        let place = PathInImage::parse(text);
        let failed = images.failed(&place.image);
        let fs = images.get(&place.image);
        touch_one(fs, &place, &change, args).map_err(failed)
    })
}

/// Changes a file. A symbolic link is changed itself, not its target.
fn change_one(
    fs: &Filesystem,
    path: &Path,
    change: &AttributeChange,
    no_dereference: bool,
) -> Result<(), Error> {
    if no_dereference { change.apply_to_symlink(fs, path) } else { change.apply(fs, path) }
}

fn touch_one(
    fs: &Filesystem,
    place: &PathInImage,
    change: &AttributeChange,
    args: &TouchArgs,
) -> Result<(), Error> {
    let path = &place.path;
    match change_one(fs, path, change, args.no_dereference) {
        Err(error) if error.kind() == ErrorKind::NotFound && args.no_create => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound && !args.no_dereference => {
            OpenOptions::new().write(true).create(true).open(fs, path)?;
            change.apply(fs, path)
        }
        outcome => outcome,
    }
}

/// The new access and modification time.
fn times(args: &TouchArgs, images: &mut Images<'_>) -> Result<(Time, Time), Failure> {
    let same = |time| (Time::At(time), Time::At(time));
    if let Some(date) = args.date {
        return Ok(same(date));
    }
    if let Some(stamp) = &args.stamp {
        let now = std::time::SystemTime::now();
        return parse_stamp(stamp, now).map(same).map_err(|what| Failure::usage("touch", &what));
    }
    let Some(reference) = &args.reference else { return Ok((Time::Now, Time::Now)) };
    match End::parse(reference) {
        End::Image(place) => {
            let failed = images.failed(&place.image);
            let fs = images.open(&place.image, Purpose::Read)?;
            let meta = match args.no_dereference {
                true => fs.symlink_metadata(&place.path),
                false => fs.metadata(&place.path),
            };
            let meta = meta.map_err(failed)?;
            Ok((Time::At(meta.atime()), Time::At(meta.mtime())))
        }
        End::Host(path) => {
            use std::os::unix::fs::MetadataExt;
            let meta = match args.no_dereference {
                true => std::fs::symlink_metadata(&path),
                false => std::fs::metadata(&path),
            };
            let meta = meta.map_err(|error| Failure::new("touch", Error::from(error).on_host(&path)))?;
            let time = |sec, nsec: i64| {
                Time::At(creamery::attributes::Timespec { sec, nsec: u32::try_from(nsec).unwrap_or(0) })
            };
            Ok((time(meta.atime(), meta.atime_nsec()), time(meta.mtime(), meta.mtime_nsec())))
        }
    }
}
