//! `creamery find`.

mod words;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use creamery::{Filesystem, WalkEntry};

use self::words::{Question, read};
use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::json::{Array, FileJson};
use crate::output::{Output, writing};
use crate::view::ViewArgs;

/// Look for files in an image.
///
/// Prints the paths of the files at IMAGE:/PATH and below for which the tests hold. The tests
/// are those of find(1): all have to hold, -o means or, ! negates, and ( ) groups:
///   -name GLOB, -iname GLOB   the name; the second without regard to case
///   -path GLOB                the whole path
///   -type LETTERS             f, d, l, p, s, c or b, or several with commas between
///   -size [+-]N[cwbkMG]       its size in units of 512 bytes (b), or others, rounded up
///   -perm MODE, -MODE, /MODE  these bits, at least these, any of these
///   -uid, -gid, -links [+-]N  owner, group, how many names it has
///   -user NAME, -group NAME   the same by number, or by name in the image
///   -newer PATH               changed after this file of the image
///   -empty                    a file without a byte, a directory without an entry
/// -maxdepth N and -mindepth N bound how deep it looks. -print0 puts a zero byte behind each
/// path instead of a line's end, --json prints every attribute.
///
/// Examples:
///   creamery find disk.img:/etc -name '*.conf' -newer /etc/hostname
///   creamery find disk.img -type f -perm /6000 --json
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, override_usage = "creamery find [OPTIONS] <IMAGE:/PATH>... [TEST]...")]
pub(crate) struct FindArgs {
    #[command(flatten)]
    view: ViewArgs,

    /// Print one JSON array.
    #[arg(long)]
    json: bool,

    /// The starting points, then the tests.
    #[arg(value_name = "IMAGE:/PATH", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// How matches are printed.
enum MatchPrinter<'a> {
    /// Each path, followed by this byte.
    Paths(&'a mut Output, &'static [u8; 1]),
    Json(Array<'a, Output>),
}

/// The output for one match.
enum Line {
    Path(PathBuf),
    Json(Box<FileJson>),
}

impl MatchPrinter<'_> {
    fn line(&self, entry: &WalkEntry, fs: &Filesystem) -> Result<Line, creamery::Error> {
        match self {
            Self::Paths(..) => Ok(Line::Path(entry.path().to_owned())),
            Self::Json(_) => Ok(Line::Json(Box::new(as_json(entry, fs)?))),
        }
    }

    fn print(&mut self, line: &Line) -> std::io::Result<()> {
        match (self, line) {
            (Self::Paths(out, end), Line::Path(path)) => {
                out.path(path).and_then(|()| out.write_all(&end[..]))
            }
            (Self::Json(array), Line::Json(json)) => array.push(&**json),
            _ => unreachable!("a printer's own lines"),
        }
    }
}

pub(crate) fn run(args: &FindArgs) -> Result<(), Failure> {
    // A word that begins the expression is no place.
    let is_expression = |word: &OsString| {
        let bytes = word.as_encoded_bytes();
        bytes.starts_with(b"-") || matches!(bytes, b"!" | b"(" | b")")
    };
    let end = args.words.iter().position(is_expression).unwrap_or(args.words.len());
    let (places, words) = args.words.split_at(end);
    if places.is_empty() {
        return Err(Failure::usage("find", "expected IMAGE:/PATH before the tests"));
    }
    let mut images = Images::new("find", &args.view);
    let mut out = Output::new();
    let outcome = find(args, &mut images, places, words, &mut out);
    out.finish().map_err(|error| Failure::new("find", error)).and(outcome)
}

fn find(
    args: &FindArgs,
    images: &mut Images<'_>,
    places: &[OsString],
    words: &[OsString],
    out: &mut Output,
) -> Result<(), Failure> {
    let told = |error| Failure::new("find", writing(error));
    // The meaning of the words can depend on the image; their syntax does not.
    let question = read(words, None)?;
    let json = args.json || question.json;
    if json && question.zero {
        return Err(Failure::usage("find", "-print0 cannot be used with --json"));
    }
    let mut printer = match json {
        true => MatchPrinter::Json(Array::begin(out).map_err(told)?),
        false => MatchPrinter::Paths(out, if question.zero { b"\0" } else { b"\n" }),
    };
    let outcome = with_all(places, |text| {
        let place = images.place(text)?;
        let failed = images.failed(&place.image);
        let fs = images.open(&place.image, Purpose::Read)?;
        let question = read(words, Some((fs, &failed)))?;
        // The walk goes on after an unreadable entry.
        let mut first = None;
        for entry in fs.walk_unfollowed(&place.path).map_err(&failed)?.at_most(question.depth_max) {
            let found = entry.and_then(|entry| {
                let wanted = is_wanted(&question, &entry)?.then_some(&entry);
                wanted.map(|entry| printer.line(entry, fs)).transpose()
            });
            match found {
                Ok(None) => {}
                Ok(Some(line)) => printer.print(&line).map_err(told)?,
                Err(error) => drop(first.get_or_insert(failed(error).tell())),
            }
        }
        first.map_or(Ok(()), Err)
    });
    match printer {
        MatchPrinter::Json(array) => array.end().map_err(told).and(outcome),
        MatchPrinter::Paths(..) => outcome,
    }
}

fn is_wanted(question: &Question, entry: &WalkEntry) -> Result<bool, creamery::Error> {
    Ok(entry.depth() >= question.depth_min && question.test.holds(entry, &entry.metadata()?)?)
}

fn as_json(entry: &WalkEntry, fs: &Filesystem) -> Result<FileJson, creamery::Error> {
    let meta = entry.metadata()?;
    let target = if meta.is_symlink() { Some(fs.read_link(entry.path())?) } else { None };
    Ok(FileJson::new(entry.path(), &meta, target.as_deref()))
}
