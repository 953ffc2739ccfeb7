//! `creamery ls`.

use std::collections::HashSet;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use creamery::{DirEntry, Error, FileType, Filesystem, Metadata};

use crate::args::LsArgs;
use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::json::{Array, FileJson};
use crate::output::{Output, writing};
use crate::path_in_image::PathInImage;
use crate::time::Utc;

/// Units of sizes for people; 64 bits need no more.
const UNITS: [&str; 8] = ["", "K", "M", "G", "T", "P", "E", "Z"];

/// Characters of a time.
const TIME_LEN: usize = 19;

/// One line of a listing.
struct LsRow {
    /// The name as it is printed.
    name: Vec<u8>,
    path: PathBuf,
    kind: FileType,
    form: LsForm,
}

enum LsForm {
    Short,
    Long(Details),
    /// The fields of the long form cannot be read.
    Lost,
}

struct Details {
    meta: Metadata,
    target: Option<PathBuf>,
}

/// Prints each error at once and lets the listing go on.
struct ErrorPrinter<'a> {
    failed: &'a dyn Fn(Error) -> Failure,
    first: Option<Failure>,
}

impl<'a> ErrorPrinter<'a> {
    const fn new(failed: &'a dyn Fn(Error) -> Failure) -> Self {
        Self { failed, first: None }
    }

    fn ok<T>(&mut self, read: Result<T, Error>) -> Option<T> {
        read.map_err(|error| {
            let failure = (self.failed)(error).tell();
            self.first.get_or_insert(failure);
        })
        .ok()
    }

    fn end(self) -> Result<(), Failure> {
        self.first.map_or(Ok(()), Err)
    }
}

pub(crate) fn run(args: &LsArgs) -> Result<(), Failure> {
    let mut images = Images::new("ls", &args.view);
    let mut out = Output::new();
    let list = if args.json { as_json } else { as_text };
    let outcome = list(args, &mut images, &mut out);
    out.finish().map_err(|error| Failure::new("ls", error)).and(outcome)
}

fn as_text(args: &LsArgs, images: &mut Images<'_>, out: &mut Output) -> Result<(), Failure> {
    let (places, count) = expanded(args, images);
    let several = count > 1 || args.recursive;
    let images_named: HashSet<&Path> = places.iter().flatten().map(|place| place.image.as_path()).collect();
    let is_one = images_named.len() < 2;
    let mut first = true;
    with_all(places, |place| {
        let place = place?;
        let failed = images.failed(&place.image);
        let fs = images.open(&place.image, Purpose::Read)?;
        let meta = fs.symlink_metadata(&place.path).map_err(&failed)?;
        let followed = fs.metadata(&place.path).is_ok_and(|meta| meta.is_dir());
        if args.directory || !followed {
            let name = place.path.as_os_str().as_bytes().to_vec();
            let mut told = ErrorPrinter::new(&failed);
            let row = row(fs, name, place.path.clone(), meta.file_type(), args.long, &mut told);
            print(out, &[row], args.human_readable).map_err(writing).map_err(&failed)?;
            first = false;
            return told.end();
        }
        let mut told = ErrorPrinter::new(&failed);
        let mut todo = vec![place.path.clone()];
        while let Some(dir) = todo.pop() {
            let mut rows = rows(fs, &dir, args.long, &mut told);
            if args.recursive {
                let below = rows.iter().rev().filter(|row| row.kind.is_dir());
                todo.extend(below.map(|row| row.path.clone()));
            }
            if args.all {
                rows.splice(..0, dots(fs, &dir, args.long, &mut told));
            }
            let whole = PathInImage { image: place.image.clone(), path: dir.clone() }.to_os_string();
            let title = if is_one { dir.as_os_str() } else { &whole };
            heading(out, several.then_some(Path::new(title)), first).map_err(writing).map_err(&failed)?;
            print(out, &rows, args.human_readable).map_err(writing).map_err(&failed)?;
            first = false;
        }
        told.end()
    })
}

/// The places that the operands' patterns match, and their number.
fn expanded(args: &LsArgs, images: &mut Images<'_>) -> (Vec<Result<PathInImage, Failure>>, usize) {
    let mut places = Vec::new();
    for text in &args.places {
        match images.expand(&PathInImage::parse(text), Purpose::Read) {
            Ok(found) => places.extend(found.into_iter().map(Ok)),
            Err(failure) => places.push(Err(failure)),
        }
    }
    let count = places.len();
    (places, count)
}

/// Prints the heading of a directory's entries, if there are several.
fn heading(out: &mut Output, path: Option<&Path>, first: bool) -> io::Result<()> {
    let Some(path) = path else { return Ok(()) };
    if !first {
        out.write_all(b"\n")?;
    }
    out.path(path)?;
    out.write_all(b":\n")
}

/// The rows for the directory and its parent; the root is its own parent.
fn dots(fs: &Filesystem, dir: &Path, long: bool, told: &mut ErrorPrinter<'_>) -> [LsRow; 2] {
    [".", ".."].map(|name| row(fs, name.into(), dir.join(name), FileType::Directory, long, told))
}

/// The readable entries of a directory, sorted by the bytes of their names.
fn sorted(fs: &Filesystem, dir: &Path, told: &mut ErrorPrinter<'_>) -> Vec<DirEntry> {
    let Some(read) = told.ok(fs.read_dir(dir)) else { return Vec::new() };
    let mut entries: Vec<_> = read.map_while(|entry| told.ok(entry)).collect();
    entries.sort_by(|a, b| a.file_name().as_bytes().cmp(b.file_name().as_bytes()));
    entries
}

fn rows(fs: &Filesystem, dir: &Path, long: bool, told: &mut ErrorPrinter<'_>) -> Vec<LsRow> {
    let entries = sorted(fs, dir, told).into_iter();
    entries
        .map(|entry| {
            let name = entry.file_name().as_bytes().to_vec();
            row(fs, name, entry.path(), entry.file_type(), long, told)
        })
        .collect()
}

fn row(
    fs: &Filesystem,
    name: Vec<u8>,
    path: PathBuf,
    kind: FileType,
    long: bool,
    told: &mut ErrorPrinter<'_>,
) -> LsRow {
    let form = match long.then(|| told.ok(details(fs, &path))) {
        None => LsForm::Short,
        Some(details) => details.map_or(LsForm::Lost, LsForm::Long),
    };
    LsRow { name, path, kind, form }
}

impl LsRow {
    const fn details(&self) -> Option<&Details> {
        if let LsForm::Long(details) = &self.form { Some(details) } else { None }
    }
}

fn details(fs: &Filesystem, path: &Path) -> Result<Details, Error> {
    let meta = fs.symlink_metadata(path)?;
    let target = if meta.is_symlink() { Some(fs.read_link(path)?) } else { None };
    Ok(Details { meta, target })
}

fn size(meta: &Metadata, human: bool) -> String {
    match meta.file_type() {
        FileType::CharDevice | FileType::BlockDevice => {
            let (major, minor) = meta.device();
            format!("{major}, {minor}")
        }
        _ if human => human_size(meta.len()),
        _ => meta.len().to_string(),
    }
}

/// Formats a size with two digits or more, rounded up, as ls(1) and df(1) do: 1023, 1.5K, 15K.
fn human_size(bytes: u64) -> String {
    let power = (bytes.max(1).ilog2() / 10) as usize;
    if power == 0 {
        return bytes.to_string();
    }
    let unit = 1_u128 << (power * 10);
    let tenths = (u128::from(bytes) * 10).div_ceil(unit);
    let whole = u128::from(bytes).div_ceil(unit);
    match (tenths, whole) {
        (..100, _) => format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[power]),
        (_, 1024) => format!("1.0{}", UNITS[power + 1]),
        _ => format!("{whole}{}", UNITS[power]),
    }
}

fn print(out: &mut Output, rows: &[LsRow], human: bool) -> io::Result<()> {
    let size = |meta: &Metadata| size(meta, human);
    let width = |text: &dyn Fn(&Metadata) -> String| {
        let lengths = rows.iter().filter_map(|row| Some(text(&row.details()?.meta).len()));
        lengths.max().unwrap_or(0)
    };
    let links = width(&|meta| meta.nlink().to_string());
    let (uids, gids) = (width(&|meta| meta.uid().to_string()), width(&|meta| meta.gid().to_string()));
    let sizes = width(&size);
    for row in rows {
        if let LsForm::Long(Details { meta, .. }) = &row.form {
            let (kind, permissions) = (meta.file_type().letter(), meta.permissions());
            let (nlink, uid, gid, size) = (meta.nlink(), meta.uid(), meta.gid(), size(meta));
            let time = Utc(meta.mtime());
            write!(
                out,
                "{kind}{permissions} {nlink:>links$} {uid:>uids$} {gid:>gids$} {size:>sizes$} {time} "
            )?;
        } else if let LsForm::Lost = row.form {
            // The format of coreutils.
            let (kind, unknown) = (row.kind.letter(), "?");
            write!(
                out,
                "{kind}????????? {unknown:>links$} {unknown:>uids$} {unknown:>gids$} {unknown:>sizes$} {unknown:>TIME_LEN$} "
            )?;
        }
        out.name(&row.name, row.kind)?;
        if let Some(target) = row.details().and_then(|details| details.target.as_ref()) {
            out.write_all(b" -> ")?;
            out.path(target)?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn as_json(args: &LsArgs, images: &mut Images<'_>, out: &mut Output) -> Result<(), Failure> {
    let told = |error| Failure::new("ls", writing(error));
    let mut array = Array::begin(out).map_err(told)?;
    let (places, _) = expanded(args, images);
    let outcome = with_all(places, |place| {
        let place = place?;
        let failed = images.failed(&place.image);
        let fs = images.open(&place.image, Purpose::Read)?;
        let is_dir = fs.metadata(&place.path).is_ok_and(|meta| meta.is_dir());
        let mut lost = ErrorPrinter::new(&failed);
        let mut push = |path: &Path, lost: &mut ErrorPrinter<'_>| -> Result<(), Failure> {
            let Some(Details { meta, target }) = lost.ok(details(fs, path)) else { return Ok(()) };
            array.push(&FileJson::new(path, &meta, target.as_deref())).map_err(told)
        };
        if args.directory || !is_dir {
            return push(&place.path, &mut lost).and(lost.end());
        }
        let mut todo = vec![place.path.clone()];
        while let Some(dir) = todo.pop() {
            let entries = sorted(fs, &dir, &mut lost);
            for entry in &entries {
                push(&entry.path(), &mut lost)?;
            }
            if args.recursive {
                let below = entries.iter().rev().filter(|entry| entry.file_type().is_dir());
                todo.extend(below.map(DirEntry::path));
            }
        }
        lost.end()
    });
    array.end().map_err(told).and(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_ls() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_239, "10K"),
            (10_241, "11K"),
            (1_048_575, "1.0M"),
            (1 << 40, "1.0T"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human_size(bytes), text, "{bytes}");
        }
    }
}
