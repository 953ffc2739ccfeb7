//! Work on names: empty files, by several threads at once.

use anyhow::{Result, ensure};

use crate::side::Side;
use crate::times::{Times, in_threads};

/// The kinds of work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NamesWorkload {
    /// Each thread fills directories of its own, one per round, with empty files (the pattern of fs_mark).
    Create,
    /// Each thread asks for every file of its directories once, in a scattered order.
    Lookup,
    /// A second `Lookup` of the same files.
    LookupWarm,
    /// Each thread lists its directories.
    Readdir,
    /// Each thread removes the files of its directories.
    Unlink,
    /// Threads create, rename, ask and remove in directories that all share.
    Mixed,
}

/// The size of the workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamesScale {
    pub(crate) threads: usize,
    /// Files of one thread in one round.
    pub(crate) files: usize,
    pub(crate) rounds: usize,
}

/// A thread's directory of one round.
fn dir(thread: usize, round: usize) -> String {
    format!("thread-{thread}-round-{round}")
}

/// A name of 40 bytes, the length of fs_mark's names.
fn name(thread: usize, round: usize, file: usize) -> String {
    format!("{}/{file:08x}-a-name-of-forty-bytes-as-usual~~", dir(thread, round))
}

impl NamesWorkload {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "create" => Self::Create,
            "lookup" => Self::Lookup,
            "lookup-warm" => Self::LookupWarm,
            "readdir" => Self::Readdir,
            "unlink" => Self::Unlink,
            "mixed" => Self::Mixed,
            _ => return None,
        })
    }

    /// Runs the workload and measures it.
    pub(crate) fn run(self, side: &dyn Side, scale: NamesScale) -> Result<Times> {
        match self {
            Self::Create => {
                for thread in 0..scale.threads {
                    for round in 0..scale.rounds {
                        side.make_dir(&dir(thread, round))?;
                    }
                }
            }
            Self::Mixed => side.make_dir("shared")?,
            Self::LookupWarm => {
                in_threads(scale.threads, &|thread| self.work(side, scale, thread))?;
            }
            Self::Lookup | Self::Readdir | Self::Unlink => {}
        }
        Times::measure(side, scale.threads, &|thread| self.work(side, scale, thread))
    }

    /// One thread's part; returns the number of its operations.
    fn work(self, side: &dyn Side, scale: NamesScale, thread: usize) -> Result<usize> {
        let mut operations = 0;
        for round in 0..scale.rounds {
            match self {
                Self::Readdir => {
                    let names = side.list(&dir(thread, round))?;
                    ensure!(names >= scale.files, "{names} names of {}", scale.files);
                    operations += names;
                    continue;
                }
                Self::Create | Self::Lookup | Self::LookupWarm | Self::Unlink | Self::Mixed => {}
            }
            for index in 0..scale.files {
                match self {
                    Self::Create => side.create(&name(thread, round, index))?,
                    // A stride that is prime to any smaller number of files visits each once.
                    Self::Lookup | Self::LookupWarm => {
                        let scattered = index.wrapping_mul(7_368_787) % scale.files;
                        ensure!(side.stat(&name(thread, round, scattered))? > 0);
                    }
                    Self::Unlink => side.unlink(&name(thread, round, index))?,
                    Self::Mixed => mixed(side, thread, round, index)?,
                    Self::Readdir => {}
                }
            }
            operations += scale.files * if matches!(self, Self::Mixed) { 4 } else { 1 };
        }
        Ok(operations)
    }
}

/// Create, stat, rename, remove the one before: every operation in the directory that all threads share.
fn mixed(side: &dyn Side, thread: usize, round: usize, index: usize) -> Result<()> {
    let path = |what: &str, index: usize| format!("shared/{what}-{thread}-{round}-{index:08}");
    side.create(&path("new", index))?;
    ensure!(side.stat(&path("new", index))? > 0);
    side.rename(&path("new", index), &path("old", index))?;
    match index.checked_sub(1) {
        Some(before) => side.unlink(&path("old", before)),
        None => side.stat(&path("old", index)).map(drop),
    }
}
