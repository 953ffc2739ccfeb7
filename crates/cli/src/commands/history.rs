//! `creamery history`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use creamery::history::{Commit, SearchProgress, history};
use serde::Serialize;

use crate::failure::Failure;
use crate::images::{warn_of, with_way_in};
use crate::json::Array;
use crate::output::{Output, writing};
use crate::progress::{ProgressArgs, ShownProgress};
use crate::time::Utc;
use crate::view::DeviceArgs;

const COMMAND: &str = "history";

/// List the earlier commits that can still be read.
///
/// A commit overwrites nothing of the one before: its blocks stay until their space is used
/// again. One line each, the newest first: the generation, the time of the newest change of
/// a subvolume, and what is left:
///   whole           each tree block can be read
///   2 blocks gone   so many tree blocks cannot be read any more
///   discarded       the missing blocks are all zeros: the device discarded them
/// Only reading a file shows whether its data is still there. Commands that read show a commit
/// with --generation N. All tree blocks are read.
///
/// Examples:
///   creamery history disk.img
///   creamery ls --generation 1042 disk.img:/home
///   creamery cp -a --generation 1042 disk.img:/home ./home
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct HistoryArgs {
    /// The image or device, or a partition of one (disk.raw@2).
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// Print one JSON array.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    progress: ProgressArgs,

    #[command(flatten)]
    set: DeviceArgs,
}

#[derive(Serialize)]
struct CommitJson {
    generation: u64,
    time: Option<String>,
    state: &'static str,
    blocks_gone: u64,
    current: bool,
    root: u64,
    level: u8,
}

impl From<&Commit> for CommitJson {
    fn from(commit: &Commit) -> Self {
        Self {
            generation: commit.generation.get(),
            time: commit.time.map(|time| format!("{:#}", Utc(time))),
            state: commit.state.name(),
            blocks_gone: commit.state.gone(),
            current: commit.is_current,
            root: commit.root.get(),
            level: commit.level,
        }
    }
}

/// Shows the progress of a search.
pub(crate) struct Searched(ShownProgress);

impl Searched {
    pub(crate) fn new(command: &'static str, progress: ProgressArgs) -> Self {
        Self(ShownProgress::unbounded(command, progress))
    }

    pub(crate) fn end(&self, done: impl FnOnce() -> String) {
        self.0.end_with(done);
    }
}

impl SearchProgress for Searched {
    fn at(&self, done: u64, of: Option<u64>) {
        self.0.at(|| match of {
            Some(of) => format!("looked at {done} of {of} places of tree blocks"),
            None => format!("read {done} tree blocks"),
        });
    }
}

pub(crate) fn run(args: &HistoryArgs) -> Result<(), Failure> {
    let failed = |error| Failure::new(COMMAND, error);
    let searched = Searched::new(COMMAND, args.progress);
    let found = history(args.set.of(&args.image), &searched);
    searched.end(|| "looked for commits".to_owned());
    let found = found.map_err(|error| failed(with_way_in(&args.set.of(&args.image), error)))?;
    found.notes.iter().for_each(|note| warn_of(&args.image, note));
    let mut out = Output::new();
    let printed = match args.json {
        true => as_json(&mut out, &found.commits),
        false => as_lines(&mut out, &found.commits),
    };
    printed.map_err(writing).and_then(|()| out.finish()).map_err(failed)
}

fn as_json(out: &mut Output, commits: &[Commit]) -> std::io::Result<()> {
    let mut array = Array::begin(out)?;
    commits.iter().try_for_each(|commit| array.push(&CommitJson::from(commit)))?;
    array.end()
}

fn as_lines(out: &mut Output, commits: &[Commit]) -> std::io::Result<()> {
    let width = commits.first().map_or(0, |commit| commit.generation.to_string().len());
    commits.iter().try_for_each(|commit| {
        let Commit { generation, state, is_current, .. } = commit;
        let time = commit.time.map_or_else(|| format!("{:<19}", "-"), |time| Utc(time).to_string());
        let current = if *is_current { ", the current one" } else { "" };
        writeln!(out, "{generation:>width$} {time} {state}{current}")
    })
}
