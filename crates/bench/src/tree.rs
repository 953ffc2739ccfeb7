//! Work on a tree of files, by one thread: copied in, listed, copied out, deleted.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::side::Side;
use crate::times::Times;

/// The tree's name on the side.
const TREE: &str = "tree";

/// The kinds of work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Workload {
    /// From the host, with all attributes.
    CopyIn,
    /// The attributes of everything.
    Walk,
    /// To the host, with all attributes.
    CopyOut,
    /// All of it.
    Remove,
}

/// Which tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// Where it comes from on the host, or goes to.
    pub(crate) host: Option<PathBuf>,
    /// How many regular files it has.
    pub(crate) files: usize,
}

impl Workload {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "copy-in" => Self::CopyIn,
            "walk" => Self::Walk,
            "copy-out" => Self::CopyOut,
            "remove" => Self::Remove,
            _ => return None,
        })
    }

    /// Does it and measures; a file is an operation.
    pub(crate) fn run(self, side: &dyn Side, tree: &Tree) -> Result<Times> {
        let host = || tree.host.as_deref().context("--host DIR is missing");
        Times::measure(side, 1, &|_| {
            match self {
                Self::CopyIn => side.copy_in(host()?, TREE)?,
                Self::CopyOut => side.copy_out(TREE, host()?)?,
                Self::Remove => side.remove_tree(TREE)?,
                Self::Walk => {
                    let files = side.walk(TREE)?;
                    ensure!(files == tree.files, "{files} files of {}", tree.files);
                }
            }
            Ok(tree.files)
        })
    }
}
