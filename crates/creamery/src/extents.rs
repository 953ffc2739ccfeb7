//! Where the data of files lies, what shares it, and what vouches for it.

pub use creamery_codec::{VerityDigest, VerityHash};
pub use creamery_fs::{
    Deduped, Defragment, ExtentPart, Fallocate, Fiemap, FiemapBatch, FiemapExtent, FiemapFlags,
    FiemapRequest, FileUsage, NewExtent, Recompress, VerityInfo,
};

pub use crate::dedupe::DedupeReport;
pub use crate::disk_usage::DiskUsage;
pub use crate::resolve::DataUser;
