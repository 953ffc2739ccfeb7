//! `--report FILE`: the losses of a copy, as JSON.
//!
//! Losses are written as they come, so any number of them needs no memory.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use creamery::partitions::ImageName;
use creamery::{Error, ErrorKind};
use serde::Serialize;

use super::blocks::Blocks;
use super::count::Counts;
use crate::json::text_of;

/// The beginning of every report.
const BEGIN: &[u8; 12] = b"{\"command\": ";

/// A report that is being written.
pub(super) struct LossReport {
    path: PathBuf,
    out: BufWriter<File>,
    is_first: bool,
    /// The first write error. The copy goes on.
    failed: Option<io::Error>,
}

/// A loss in one file.
#[derive(Serialize)]
pub(super) struct LossJson {
    image: String,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    lost: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    why: String,
}

impl LossJson {
    pub(super) fn new(image: &str, path: &[u8], lost: &'static str, why: &Error) -> Self {
        let (path, path_bytes) = text_of(path);
        Self {
            image: image.to_owned(),
            path,
            path_bytes,
            lost,
            bytes: None,
            offset: None,
            why: why.to_string(),
        }
    }

    /// Adds the number of lost bytes and their offset, if they are known.
    pub(super) const fn of(mut self, bytes: Option<u64>, offset: Option<u64>) -> Self {
        (self.bytes, self.offset) = (bytes, offset);
        self
    }
}

#[derive(Serialize)]
struct BlockJson<'a> {
    image: &'a str,
    kind: &'static str,
    logical: u64,
    files: u64,
    why: &'a str,
}

#[derive(Serialize)]
struct EndJson<'a> {
    damaged_blocks: Vec<BlockJson<'a>>,
    damaged_blocks_not_listed: u64,
    #[serde(flatten)]
    counts: &'a Counts,
    earlier_commits: &'a [String],
    /// The failure that ended the command early.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_by: Option<&'a str>,
}

/// Whether both are one file, or will be.
fn is_one(path: &Path, target: &Path) -> bool {
    let identity =
        |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino(), meta.is_file()));
    path == target || identity(path).is_some_and(|it| it.2 && Some(it) == identity(target))
}

impl LossReport {
    /// Begins a report at `path`, and replaces an earlier report. A path that is no file, a pipe or a terminal, is written to.
    /// Errors: another file is there, possibly the source or target; it is the name of a missing partition; errors of the host.
    pub(super) fn begin(command: &str, path: &Path, target: Option<&Path>) -> Result<Self, Error> {
        if target.is_some_and(|target| is_one(path, target)) {
            return Err(Error::invalid("the report has the name of the copy").on_host(path));
        }
        let told = |error: io::Error| Error::from(error).on_host(path);
        ImageName::refuse_part(path).map_err(|error| error.on_host(path))?;
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        if file.as_ref().is_err_and(|_| std::fs::metadata(path).is_ok_and(|meta| !meta.is_file())) {
            // A path that can only be written.
            file = File::options().write(true).open(path);
        }
        let file = file.map_err(told)?;
        if file.metadata().map_err(told)?.is_file() {
            let mut first = [0; BEGIN.len()];
            let count = file.read_at(&mut first, 0).map_err(told)?;
            if count > 0 && first != *BEGIN {
                let what = "not overwritten, it is not a report";
                return Err(Error::new(ErrorKind::AlreadyExists, what)
                    .on_host(path)
                    .advise("name another file"));
            }
            file.set_len(0).map_err(told)?;
        }
        let mut out = BufWriter::new(file);
        let failed = out.write_all(BEGIN).and_then(|()| write!(out, "\"{command}\", \"losses\": [")).err();
        Ok(Self { path: path.to_owned(), out, is_first: true, failed })
    }

    pub(super) fn add(&mut self, loss: &LossJson) {
        let before = if std::mem::take(&mut self.is_first) { "\n" } else { ",\n" };
        self.write(|out| {
            out.write_all(before.as_bytes())?;
            serde_json::to_writer(out, loss).map_err(io::Error::from)
        });
    }

    /// Ends the report. Errors: it could not be written.
    pub(super) fn end(
        mut self,
        blocks: &Blocks,
        counts: &Counts,
        earlier: &[String],
        ended_by: Option<&str>,
    ) -> Result<(), Error> {
        let damaged_blocks = blocks.iter().map(|(image, block, met)| BlockJson {
            image,
            kind: if matches!(block, creamery::error::DamagedBlock::Tree(_)) { "tree" } else { "data" },
            logical: block.logical().get(),
            files: met.files,
            why: &met.why,
        });
        let end = EndJson {
            damaged_blocks: damaged_blocks.collect(),
            damaged_blocks_not_listed: blocks.others(),
            counts,
            earlier_commits: earlier,
            ended_by,
        };
        self.write(|out| {
            let rest = serde_json::to_string(&end).map_err(io::Error::from)?;
            // The object's own brace is open already.
            writeln!(out, "\n], {}", rest.strip_prefix('{').unwrap_or(&rest))?;
            out.flush()
        });
        self.failed.map_or(Ok(()), |error| Err(Error::from(error).on_host(&self.path)))
    }

    fn write(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        if self.failed.is_none() {
            self.failed = write(&mut self.out).err();
        }
    }
}
