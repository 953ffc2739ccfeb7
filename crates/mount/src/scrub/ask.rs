//! The asker's end: the work of `creamery scrub` on a live mount.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use creamery_base::{DevId, Logical, ObjectId, Physical, Result, TreeId, Uuid};
use creamery_maint::scrub::{Finding, FindingKind, Outcome, Status};

use super::files::FileText;
use super::{OrderKind, SCRUB, ScrubAnswer, ScrubOrder, status_of};
use crate::control::new_key;
use crate::subvolumes::Live;

/// A finding of the scrub of a mount.
///
/// ```
/// fn show(found: &creamery_mount::LiveFinding) {
///     println!("{}", found.finding);
///     found.files.iter().for_each(|file| println!("  {:?}", file.path));
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveFinding {
    /// The finding.
    pub finding: Finding,
    /// Places of files that it affects, a few at most.
    pub files: Vec<LiveFindingFile>,
    /// The number of further places.
    pub more_files: u64,
}

/// A place of a file that a finding affects.
///
/// ```
/// fn show(file: &creamery_mount::LiveFindingFile) {
///     println!("inode {} of subvolume {}, byte {}", file.inode, file.subvolume, file.byte);
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LiveFindingFile {
    /// The subvolume of the file.
    pub subvolume: TreeId,
    /// The inode of the file.
    pub inode: ObjectId,
    /// Offset in the file, bytes.
    pub byte: u64,
    /// The path of the file in the filesystem; `None` if it is unknown.
    pub path: Option<Vec<u8>>,
}

/// The state of the scrub of a live mount.
///
/// ```no_run
/// use creamery_mount::{Live, LiveScrub};
/// let mount = Live::at("/mnt".as_ref())?.expect("a mount of an image");
/// LiveScrub::start(&mount, false, None)?;
/// println!("{}", if LiveScrub::status(&mount)?.is_running { "running" } else { "ended" });
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveScrub {
    /// The filesystem's UUID.
    pub uuid: Uuid,
    /// The status of the running or last scrub; `None` if there was none.
    pub status: Option<Status>,
    /// Whether a scrub runs.
    pub is_running: bool,
    /// The findings, as many as are kept.
    pub findings: Vec<LiveFinding>,
    /// The number of findings that did not fit.
    pub left_out: u64,
    /// The file with all findings and their files; `None` if there are none, or they are not kept.
    pub findings_file: Option<PathBuf>,
    /// The reason why its status is not kept.
    pub status_failure: Option<String>,
    /// The reason why limits are unknown.
    pub limits_failure: Option<String>,
    /// The reason why nothing can be repaired through the mount, if there is one.
    pub hindrance: Option<String>,
    /// Devices, their paths, and their limits if they have one, bytes per second.
    pub limits: Vec<(DevId, PathBuf, Option<u64>)>,
}

impl LiveScrub {
    /// Returns the state of the scrub of a mount.
    /// Errors: permission denied, for all but root and the mounter; the server died, or does not know scrubs.
    pub fn status(mount: &Live) -> Result<Self> {
        Self::order(mount, &ScrubOrder::default())
    }

    /// Starts a scrub. It writes nothing if it `reads_only`, and reads each device no faster than `limit` bytes per second.
    /// Errors: those of [`status`](Self::status); a scrub runs; the mount is read-only.
    pub fn start(mount: &Live, reads_only: bool, limit: Option<u64>) -> Result<Self> {
        let order = ScrubOrder {
            wish: OrderKind::Start,
            reads_only,
            limit: limit.unwrap_or(0),
            ..ScrubOrder::default()
        };
        Self::order(mount, &order)
    }

    /// Resumes the last scrub.
    /// Errors: those of [`start`](Self::start); not found: there is nothing to resume.
    pub fn resume(mount: &Live, reads_only: bool, limit: Option<u64>) -> Result<Self> {
        let order = ScrubOrder {
            wish: OrderKind::Resume,
            reads_only,
            limit: limit.unwrap_or(0),
            ..ScrubOrder::default()
        };
        Self::order(mount, &order)
    }

    /// Ends the scrub after its current reads.
    /// Errors: those of [`status`](Self::status).
    pub fn cancel(mount: &Live) -> Result<Self> {
        Self::order(mount, &ScrubOrder { wish: OrderKind::Cancel, ..ScrubOrder::default() })
    }

    /// Stores the limit of a device, or of all devices, bytes per second; 0 means no limit.
    /// Errors: those of [`status`](Self::status); no such device.
    pub fn set_limit(mount: &Live, device: Option<u64>, limit: u64) -> Result<Self> {
        Self::order(mount, &ScrubOrder { wish: OrderKind::Limit, device, limit, ..ScrubOrder::default() })
    }

    fn order(mount: &Live, order: &ScrubOrder) -> Result<Self> {
        let answer: ScrubAnswer = mount.channel().ask_with::<SCRUB, _>(new_key(), order)?;
        match answer.failure {
            Some(failure) => Err(answer.why.error(failure)),
            None => Self::of(answer),
        }
    }

    fn of(answer: ScrubAnswer) -> Result<Self> {
        let ScrubAnswer {
            uuid,
            status,
            is_running,
            findings,
            left_out,
            findings_file,
            status_failure,
            limits_failure,
            hindrance,
            limits,
            ..
        } = answer;
        let finding = |found: super::FoundText| {
            let at = Physical { dev: DevId::new(found.device), offset: found.offset };
            let finding = Finding {
                what: *FindingKind::ALL.get(usize::from(found.what))?,
                at,
                logical: found.logical.map(Logical::new),
                why: found.why,
                outcome: *Outcome::ALL.get(usize::from(found.outcome))?,
            };
            let file = |file: FileText| LiveFindingFile {
                subvolume: TreeId::new(file.subvolume),
                inode: ObjectId::new(file.inode),
                byte: file.byte,
                path: file.path,
            };
            let files = found.files.into_iter().map(file).collect();
            Some(LiveFinding { finding, files, more_files: found.more_files })
        };
        let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
        let limit = |(dev, device, limit): (u64, Vec<u8>, u64)| {
            (DevId::new(dev), path(device), Some(limit).filter(|limit| *limit > 0))
        };
        Ok(Self {
            status: status.map(|text| status_of(&text, &uuid)).transpose()?,
            uuid: uuid.parse().unwrap_or_default(),
            is_running,
            findings: findings.into_iter().filter_map(finding).collect(),
            left_out,
            findings_file: findings_file.map(path),
            status_failure,
            limits_failure,
            hindrance,
            limits: limits.into_iter().map(limit).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_no_text_is_answered() {
        let path = b"/dev/\xff\n".to_vec();
        let answer = ScrubAnswer {
            uuid: Uuid::nil().to_string(),
            findings_file: Some(path.clone()),
            limits: vec![(1, path.clone(), 7)],
            ..ScrubAnswer::default()
        };
        let text = serde_json::to_vec(&answer).unwrap();
        let live = LiveScrub::of(serde_json::from_slice(&text).unwrap()).unwrap();
        let path = PathBuf::from(OsString::from_vec(path));
        assert_eq!(live.findings_file.as_ref(), Some(&path));
        assert_eq!(live.limits, [(DevId::new(1), path, Some(7))]);
    }
}
