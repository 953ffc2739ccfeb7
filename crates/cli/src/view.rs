//! Where paths in an image begin.

use std::path::PathBuf;

use clap::Args;

/// Which subvolume a path begins in.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct ViewArgs {
    /// Paths begin in this subvolume [default: the default subvolume].
    #[arg(long, value_name = "PATH", conflicts_with = "subvolid")]
    pub(crate) subvol: Option<PathBuf>,

    /// The same by number; 5 is the top level.
    #[arg(long, value_name = "ID")]
    pub(crate) subvolid: Option<u64>,
}
