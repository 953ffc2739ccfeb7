//! Information about the server of a live mount and its filesystem, as JSON.

use serde::{Deserialize, Serialize};

/// Information about a server and its filesystem; numbers of the filesystem are those of the last commit.
///
/// ```
/// let facts: creamery_mount::LiveFacts = serde_json::from_str(r#"{"process": 4711}"#).unwrap();
/// assert_eq!((facts.process, facts.subvolume), (4711, 0));
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveFacts {
    /// The process that serves the mount.
    pub process: u32,
    /// The number of the subvolume that is mounted.
    pub subvolume: u64,
    /// The path of that subvolume from the top level, without a leading slash; `None` for callers that are neither root nor the mounter.
    pub subvolume_path: Option<Vec<u8>>,
    /// The UUID of the filesystem.
    pub uuid: String,
    /// The UUID in its tree blocks.
    pub metadata_uuid: String,
    /// The generation of the last commit.
    pub generation: u64,
    /// Whether an error has ended all writing to it; `None` if the server does not report that.
    pub aborted: Option<bool>,
    /// Bytes in use by data and tree blocks, each copy once.
    pub bytes_used: u64,
    /// Bytes of a tree block.
    pub node_size: u32,
    /// Bytes of a data block.
    pub sector_size: u32,
    /// The checksum of tree blocks and data.
    pub checksum: String,
    /// The features on disk, by the names that Linux has for them.
    pub features: Vec<String>,
}
