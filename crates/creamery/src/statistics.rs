//! Counters of an open filesystem, from [`Filesystem::statistics`](crate::Filesystem::statistics).

pub use creamery_fs::{
    BackgroundStatistics, BlockCacheStatistics, Bucket, CommitStatistics, CompressionStatistics,
    ContentionStatistics, DirectStatistics, Distribution, FsyncStatistics, LockStatistics, LogStatistics,
    MemoryReport, NocowStatistics, NowaitStatistics, PendingStatistics, QuotaStatistics, SeekStatistics,
    Statistics, TreeStatistics, VolumeStatistics, WritebackStatistics,
};
