//! Where paths in an image begin, and how who writes opens it.

use std::path::PathBuf;

use clap::Args;

/// Which subvolume a path begins in, and of which commit.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct ViewArgs {
    /// Paths begin in this subvolume [default: the default subvolume].
    #[arg(long, value_name = "PATH", conflicts_with = "subvolid")]
    pub(crate) subvol: Option<PathBuf>,

    /// The same by number; 5 is the top level.
    #[arg(long, value_name = "ID")]
    pub(crate) subvolid: Option<u64>,

    /// Where the root tree is damaged, read what an earlier commit left, by the newest backup in the superblock that leads to one.
    #[arg(long)]
    pub(crate) usebackuproot: bool,
}

/// The same for those who write.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub(crate) view: ViewArgs,

    /// Write from a copy of the superblock when the first one is damaged; what was synced after the last commit is lost then.
    #[arg(long)]
    pub(crate) usesupercopy: bool,
}
