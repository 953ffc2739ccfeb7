//! Work on a tree of files, by one thread: copied in, listed, copied out, deleted.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::side::Side;
use crate::times::Times;

/// The name of the tree on the side.
const TREE: &str = "tree";

/// The kinds of work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TreeWorkload {
    /// Copies from the host, with all attributes.
    CopyIn,
    /// Reads the attributes of everything.
    Walk,
    /// Copies to the host, with all attributes.
    CopyOut,
    /// Removes everything.
    Remove,
}

/// The tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// Its source on the host, or its target there.
    pub(crate) host: Option<PathBuf>,
    /// The number of its regular files.
    pub(crate) files: usize,
}

impl TreeWorkload {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "copy-in" => Self::CopyIn,
            "walk" => Self::Walk,
            "copy-out" => Self::CopyOut,
            "remove" => Self::Remove,
            _ => return None,
        })
    }

    /// Runs the workload and measures it; a file is an operation.
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
