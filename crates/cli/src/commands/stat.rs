//! `creamery stat`.

use std::io::{self, Write};
use std::path::Path;

use creamery::extents::{Overwrite, OverwriteCount, Overwrites, VerityInfo};
use creamery::{Error, File, FileType, Filesystem, Metadata};

use crate::args::StatArgs;
use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::json::{Array, FileJson};
use crate::output::{Output, writing};
use crate::path_in_image::PathInImage;
use crate::time::Utc;

/// All information about one file.
struct FileDetails {
    meta: Metadata,
    target: Option<std::path::PathBuf>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    verity: Option<VerityInfo>,
    overwrites: Option<Result<Overwrites, Error>>,
}

pub(crate) fn run(args: &StatArgs) -> Result<(), Failure> {
    let mut images = Images::new("stat", &args.view);
    let told = |error| Failure::new("stat", error);
    let mut found = Vec::new();
    let outcome = with_all(&args.places, |text| {
        let place = PathInImage::parse(text);
        let failed = images.failed(&place.image);
        let fs = images.open(&place.image, Purpose::Read)?;
        let facts = facts(fs, &place.path, args.dereference).map_err(failed)?;
        found.push((place, facts));
        Ok(())
    });
    let mut out = Output::new();
    let print = |out: &mut Output| -> io::Result<()> {
        if !args.json {
            return found.iter().try_for_each(|(place, facts)| as_text(out, &place.path, facts));
        }
        let mut array = Array::begin(out)?;
        for (place, FileDetails { meta, target, xattrs, verity, overwrites }) in &found {
            let told = FileJson::new(&place.path, meta, target.as_deref()).with_xattrs(xattrs);
            let overwrites = overwrites.as_ref().and_then(|overwrites| overwrites.as_ref().ok());
            array.push(&told.with_verity(verity.as_ref()).with_overwrites(overwrites))?;
        }
        array.end()
    };
    let printed = print(&mut out).map_err(writing).and_then(|()| out.finish());
    printed.map_err(told).and(outcome)
}

fn facts(fs: &Filesystem, path: &Path, follow: bool) -> Result<FileDetails, Error> {
    let meta = if follow { fs.metadata(path)? } else { fs.symlink_metadata(path)? };
    let target = if meta.is_symlink() { Some(fs.read_link(path)?) } else { None };
    let mut xattrs = Vec::new();
    for name in if follow { fs.xattrs(path)? } else { fs.symlink_xattrs(path)? } {
        let value = if follow { fs.xattr(path, &name)? } else { fs.symlink_xattr(path, &name)? };
        xattrs.push((name, value));
    }
    let file = if meta.is_file() { Some(fs.open(path)?) } else { None };
    let verity = file.as_ref().map(File::verity).transpose()?.flatten();
    // A damaged extent tree affects only one line; the others are printed.
    let overwrites = file.as_ref().map(File::overwrites);
    Ok(FileDetails { meta, target, xattrs, verity, overwrites })
}

fn as_text(out: &mut Output, path: &Path, facts: &FileDetails) -> io::Result<()> {
    let FileDetails { meta, target, xattrs, verity, overwrites } = facts;
    out.write_all(b"  File: ")?;
    out.path(path)?;
    if let Some(target) = target {
        out.write_all(b" -> ")?;
        out.path(target)?;
    }
    let kind = meta.file_type();
    writeln!(out, "\n  Type: {}", kind.name())?;
    if matches!(kind, FileType::CharDevice | FileType::BlockDevice) {
        let (major, minor) = meta.device();
        writeln!(out, "Device: {major}, {minor}")?;
    }
    writeln!(out, "  Size: {}  Allocated: {}", meta.len(), meta.allocated())?;
    writeln!(
        out,
        " Inode: {}  Subvolume: {}  Links: {}  Generation: {}",
        meta.ino().get(),
        meta.subvolume(),
        meta.nlink(),
        meta.generation().get()
    )?;
    let permissions = meta.permissions();
    let (letter, mode, uid, gid) = (kind.letter(), permissions.mode(), meta.uid(), meta.gid());
    writeln!(out, "Access: {mode:04o} ({letter}{permissions})  Uid: {uid}  Gid: {gid}")?;
    for (name, time) in [
        ("Access", meta.atime()),
        ("Modify", meta.mtime()),
        ("Change", meta.ctime()),
        (" Birth", meta.btime()),
    ] {
        writeln!(out, "{name}: {:#}", Utc(time))?;
    }
    if let Some(VerityInfo { hash, digest }) = verity {
        writeln!(out, "Verity: {hash}:{digest}")?;
    }
    match overwrites {
        Some(Ok(overwrites)) => written(out, overwrites)?,
        Some(Err(error)) => writeln!(out, "Writes: unknown: {error}")?,
        None => {}
    }
    for (name, value) in xattrs {
        writeln!(out, " Xattr: {} ({} bytes)", name.escape_ascii(), value.len())?;
    }
    Ok(())
}

/// Prints where overwrites of the file go: a line for each answer, with the bytes it applies to if that is not the whole file.
fn written(out: &mut Output, overwrites: &Overwrites) -> io::Result<()> {
    let all = overwrites.iter().count();
    for (overwrite, OverwriteCount { extents, bytes }) in overwrites.iter() {
        write!(out, "Writes: {}", words(overwrite))?;
        if all > 1 {
            let of = if overwrite == Overwrite::Hole { "holes" } else { "extents" };
            write!(out, ": {bytes} bytes, {extents} {of}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn words(overwrite: Overwrite) -> &'static str {
    match overwrite {
        Overwrite::InPlace => "in place",
        Overwrite::Prealloc => "in place the first time (preallocated)",
        Overwrite::CopyOnWrite => "to new space (copy on write: no nodatacow flag)",
        Overwrite::Checksums => "to new space (it has checksums)",
        Overwrite::Compressed => "to new space (compressed)",
        Overwrite::Shared => "to new space (shared with a snapshot or another file)",
        Overwrite::Inline => "to new space (inline)",
        Overwrite::Hole => "to new space (a hole)",
        Overwrite::GroupReadOnly => "to new space (its block group is read-only)",
        Overwrite::ReadOnly => "refused (read-only)",
        other => other.name(),
    }
}
