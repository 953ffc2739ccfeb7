//! The files of the last scrub of a filesystem: one for its status, one for its findings, one for the limits of its devices, and one that a
//! scrub locks for as long as it runs.
//!
//! Their names contain the filesystem's UUID and the place of its first device: copies of an image have its UUID, too, and each has its own
//! status.
//!
//! # Invariants
//! - SCRUB-2: one process at a time writes the status of a filesystem: the holder of the lock (flock(2)), which ends with the process.
//!   Shown by `one_scrub_runs_at_a_time_and_ends_with_its_owner`.
//! - SCRUB-3: a status is whole: a new one is written beside the old one, and then replaces it.
//! - SCRUB-6: a file with the mark of a scrub ends that scrub, and no signal does: a process id may belong to another process, or to
//!   another PID namespace. Shown by `a_scrub_of_another_pid_namespace_ends_and_no_process_of_this_one`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind as IoKind, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::{DevId, Error, ErrorKind, Result, Uuid};
use creamery_txn::Engine;
use creamery_volume::MemberState;
use rustix::fs::{Access, FlockOperation, access, flock};

use super::mark::{Mark, runner_in};
use super::small_files::{LOOKS, NO_SURPRISE, is_held, is_locked_within, lock_file, nap, read};
use super::{Finding, Findings, Status, findings};

/// The number of tries for a lock whose owner may wait for a disk.
const LOOKS_AT_LIMITS: u32 = 2000;
/// Bytes of the file that names the scrub that is to end: its mark, and spaces.
const MARK_LEN: usize = 256;
const MARK_MAX: u64 = MARK_LEN as u64;
/// Maximum bytes of a status with the maximum number of devices.
const STATUS_MAX: u64 = 64 << 20;
/// Maximum bytes of the limits of that many devices.
const LIMITS_MAX: u64 = 1 << 20;
/// The names of files that are replaced by a temporary file beside them.
const REPLACED: [&str; 5] = ["status", "findings", "limits", "cancel", "output"];

/// The files of one filesystem in a directory.
///
/// ```
/// use creamery_base::Uuid;
/// use creamery_maint::scrub::{Status, StatusFile};
/// let dir = tempfile::tempdir()?;
/// let file = StatusFile::new(dir.path(), Uuid::nil(), [1, 2, 0]);
/// assert!(file.read()?.is_none());
/// let running = file.begin()?;
/// running.write(&Status { fsid: Uuid::nil(), devices: Vec::new() })?;
/// assert!(file.read()?.is_some() && file.runner()?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatusFile {
    dir: PathBuf,
    fsid: Uuid,
    key: String,
}

/// A running scrub. It ends on drop.
///
/// ```no_run
/// # fn example(file: &creamery_maint::scrub::StatusFile, status: &creamery_maint::scrub::Status) -> creamery_base::Result<()> {
/// let running = file.begin()?;
/// running.write(status)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Running {
    file: StatusFile,
    locked: File,
    mark: Mark,
}

/// The process that scrubs a filesystem.
///
/// ```no_run
/// # fn example(file: &creamery_maint::scrub::StatusFile) -> creamery_base::Result<()> {
/// if let Some(runner) = file.runner()? {
///     runner.cancel()?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Runner {
    file: StatusFile,
    /// `None` until it has written its mark, and when it ends.
    mark: Option<Mark>,
    mount: Option<PathBuf>,
    lock: File,
}

impl StatusFile {
    /// The files in `dir` of the filesystem `fsid`, whose first device has its bytes at `place` of the host
    /// ([`DeviceId::numbers`](creamery_device::DeviceId::numbers)). Makes no file yet.
    #[must_use]
    pub fn new(dir: &Path, fsid: Uuid, place: [u64; 3]) -> Self {
        let [space, number, start] = place;
        Self { dir: dir.to_owned(), fsid, key: format!("{fsid}.{space:x}.{number:x}.{start:x}") }
    }

    /// The files in `dir` of an open filesystem; `None` if all of its devices are missing. The devices of its seed belong to another
    /// filesystem.
    #[must_use]
    pub fn of_engine(dir: &Path, engine: &Engine) -> Option<Self> {
        let volume = engine.volume();
        let ids: Vec<DevId> = engine.devices().into_iter().map(|device| device.id).collect();
        let own = ids.iter().filter(|id| volume.member_state(**id) != MemberState::Seed);
        let first = own.chain(&ids).find_map(|id| volume.device(*id))?;
        Some(Self::new(dir, volume.fsid(), first.id().numbers()))
    }

    /// The UUID of the filesystem.
    #[must_use]
    pub const fn filesystem(&self) -> Uuid {
        self.fsid
    }

    /// The path of the status.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.of("status")
    }

    /// The path of the findings of the last scrub, with all its parts if it was resumed. The file exists if there are findings.
    #[must_use]
    pub fn findings(&self) -> PathBuf {
        self.of("findings")
    }

    /// The findings of the last scrub.
    ///
    /// # Errors
    /// The file cannot be read, or is invalid ([`Findings::parse`]).
    pub fn read_findings(&self) -> Result<Findings> {
        let path = self.findings();
        self.check_dir()?;
        let Some(text) = read(&path, findings::TEXT_MAX)? else { return Ok(Findings::default()) };
        let about = |error: Error| {
            error.context(format_args!("findings of scrub {}", path.display())).advise("remove the file")
        };
        Findings::parse(&text).map_err(about)
    }

    fn of(&self, kind: &str) -> PathBuf {
        self.dir.join(format!("scrub.{kind}.{}", self.key))
    }

    /// The last scrub; `None` if there was none.
    ///
    /// # Errors
    /// It cannot be read, or is invalid ([`Status::parse`]).
    pub fn read(&self) -> Result<Option<Status>> {
        let path = self.path();
        self.check_dir()?;
        let Some(text) = read(&path, STATUS_MAX)? else { return Ok(None) };
        let about = |error: Error| {
            error.context(format_args!("status of scrub {}", path.display())).advise("remove the file")
        };
        Status::parse(&text, self.fsid).map(Some).map_err(about)
    }

    /// Begins a scrub of this process.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`]: a scrub runs. Others: the directory cannot be made or written to.
    pub fn begin(&self) -> Result<Running> {
        self.begin_in(None)
    }

    /// Begins a scrub; `mount` is the mount of this process if it is a server.
    ///
    /// # Errors
    /// Those of [`begin`](Self::begin).
    pub fn begin_in(&self, mount: Option<&Path>) -> Result<Running> {
        let about = |error: std::io::Error| Error::from(error).context(self.dir.display());
        self.make_dir()?;
        // Existing files may be writable although no new ones can be made beside them.
        access(&self.dir, Access::WRITE_OK).map_err(|error| about(error.into()))?;
        let mut locked = lock_file(&self.of("running")).map_err(about)?;
        if !is_locked_within(&locked, LOOKS) {
            let pid = runner_in(&mut locked).and_then(|(mark, _)| mark.pid_here());
            let runner = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
            let what = format!("a scrub of filesystem {} runs{runner}", self.fsid);
            let advice = "`creamery scrub status` shows how far it is, `creamery scrub cancel` ends it";
            return Err(Error::new(ErrorKind::Busy, what).advise(advice));
        }
        locked.set_len(0).map_err(about)?;
        let mark = Mark::new();
        let mount = mount.map_or(&b""[..], |mount| mount.as_os_str().as_bytes());
        let text = [format!("{mark}\n").as_bytes(), mount].concat();
        locked.write_all(&text).map_err(about)?;
        self.remove_abandoned();
        // `cancel` then overwrites this file, and needs no space. A directory without this much space has none for a status.
        let _ = self.replace("cancel", &[b' '; MARK_LEN]);
        Ok(Running { file: self.clone(), locked, mark })
    }

    /// The process that scrubs the filesystem, if there is one.
    ///
    /// # Errors
    /// The lock or the file cannot be read.
    pub fn runner(&self) -> Result<Option<Runner>> {
        let path = self.of("running");
        let about = |error: std::io::Error| Error::from(error).context(path.display());
        self.check_dir()?;
        let mut lock = match OpenOptions::new().read(true).custom_flags(NO_SURPRISE).open(&path) {
            Err(error) if error.kind() == IoKind::NotFound => return Ok(None),
            lock => lock.map_err(about)?,
        };
        if !is_held(&lock).map_err(about)? {
            return Ok(None);
        }
        let file = self.clone();
        let (mark, mount) = runner_in(&mut lock).unzip();
        Ok(Some(Runner { file, mark, mount: mount.flatten(), lock }))
    }

    /// The last scrub, and the process that scrubs, as of one moment: a scrub that ends or begins in between appears neither as running nor
    /// as interrupted by mistake.
    ///
    /// # Errors
    /// Those of [`read`](Self::read) and [`runner`](Self::runner).
    pub fn read_with_runner(&self) -> Result<(Option<Status>, Option<Runner>)> {
        self.read_at_one_moment(&mut || ())
    }

    /// Reads the status and the runner as of one moment. Calls `between` between two reads.
    fn read_at_one_moment(&self, between: &mut dyn FnMut()) -> Result<(Option<Status>, Option<Runner>)> {
        let mark = |runner: &Option<Runner>| runner.as_ref().map(|runner| runner.mark.clone());
        let mut before = self.runner()?;
        for _ in 0..LOOKS {
            between();
            let status = self.read()?;
            between();
            let runner = self.runner()?;
            // Without a runner a whole scrub may have taken place between the two reads.
            if mark(&before) == mark(&runner) && (runner.is_some() || status == self.read()?) {
                return Ok((status, runner));
            }
            before = runner;
        }
        Ok((self.read()?, before))
    }

    /// The limits of devices, bytes a second.
    ///
    /// # Errors
    /// They cannot be read, or are invalid.
    pub fn limits(&self) -> Result<BTreeMap<DevId, u64>> {
        let path = self.of("limits");
        self.check_dir()?;
        let Some(text) = read(&path, LIMITS_MAX)? else { return Ok(BTreeMap::new()) };
        let limit = |line: &str| {
            let (dev, limit) = line.split_once(':')?;
            Some((DevId::new(dev.parse().ok()?), limit.parse().ok()?))
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let limits = text.lines().map(limit).collect::<Option<_>>();
        limits.ok_or_else(|| {
            let what = format!("limits of scrub {}", path.display());
            let advice = "remove the file, and set limits anew with `creamery scrub limit`";
            Error::new(ErrorKind::InvalidData, what).advise(advice)
        })
    }

    /// Stores limits of some devices, bytes a second, and returns those of all. 0 removes a limit. A running scrub follows the limits.
    /// Several processes do this one after the other.
    ///
    /// # Errors
    /// They cannot be read or written. [`ErrorKind::Busy`]: another process holds the lock for long.
    pub fn set_limits(&self, changes: &BTreeMap<DevId, u64>) -> Result<BTreeMap<DevId, u64>> {
        self.make_dir()?;
        let path = self.of("limiting");
        let lock = lock_file(&path).map_err(|error| Error::from(error).context(path.display()))?;
        if !is_locked_within(&lock, LOOKS_AT_LIMITS) {
            let what = "the limits of the scrub are in use by another process";
            return Err(Error::new(ErrorKind::Busy, what).advise("try again"));
        }
        let mut limits = self.limits()?;
        limits.extend(changes);
        limits.retain(|_, limit| *limit > 0);
        let mut text = String::new();
        for (dev, limit) in &limits {
            let _ = writeln!(text, "{dev}:{limit}");
        }
        self.replace("limits", text.as_bytes()).map(|()| limits)
    }

    /// Makes the directory, with access for this user only.
    fn make_dir(&self) -> Result<()> {
        let about = |error: std::io::Error| Error::from(error).context(self.dir.display());
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(about)?;
        self.check_dir()
    }

    /// Refuses a directory into which other users may write: its files are neither trusted nor written.
    fn check_dir(&self) -> Result<()> {
        let meta = match std::fs::metadata(&self.dir) {
            Err(error) if error.kind() == IoKind::NotFound => return Ok(()),
            meta => meta.map_err(|error| Error::from(error).context(self.dir.display()))?,
        };
        let own = rustix::process::geteuid().as_raw();
        if meta.is_dir() && meta.uid() == own && meta.mode() & 0o022 == 0 {
            return Ok(());
        }
        let what = format!(
            "{}: expected a private directory of user {own}, found owner {} and mode {:o}",
            self.dir.display(),
            meta.uid(),
            meta.mode() & 0o7777
        );
        Err(Error::new(ErrorKind::PermissionDenied, what).advise("set XDG_STATE_HOME to another directory"))
    }

    /// Makes the empty output file for a scrub process in the background.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_output(&self) -> Result<File> {
        self.make_dir()?;
        self.replace("output", &[])?;
        let path = self.of("output");
        let options = OpenOptions::new().append(true).custom_flags(NO_SURPRISE).to_owned();
        options.open(&path).map_err(|error| Error::from(error).context(path.display()))
    }

    /// Asks the scrub with this mark to end, also if another one was asked meanwhile.
    fn ask_to_end(&self, mark: &Mark) -> Result<()> {
        let path = self.of("cancel");
        let mut mark = mark.to_string().into_bytes();
        mark.resize(MARK_LEN, b' ');
        if read(&path, MARK_MAX).ok().flatten().as_ref() == Some(&mark) {
            return Ok(());
        }
        // Overwrites the existing file, which takes no space; a mark that is half written matches no scrub.
        let over = || {
            let file = OpenOptions::new().write(true).custom_flags(NO_SURPRISE).open(&path)?;
            file.write_all_at(&mark, 0)?;
            file.set_len(MARK_LEN as u64)?;
            file.sync_data()
        };
        over().or_else(|_: std::io::Error| self.replace("cancel", &mark))
    }

    fn replace(&self, kind: &str, text: &[u8]) -> Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (path, new) = (self.of(kind), self.of(&format!("{kind}-{}-{number}", std::process::id())));
        let write = || {
            // A leftover of a process with the same id is in the way.
            let _ = std::fs::remove_file(&new);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            // A scrub that begins removes files that no process has locked.
            let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
            file.write_all(text)?;
            file.sync_all()?;
            std::fs::rename(&new, &path)
        };
        let is_removed = |error: &std::io::Error| error.kind() == IoKind::NotFound;
        write().or_else(|error| if is_removed(&error) { write() } else { Err(error) }).map_err(|error| {
            let _ = std::fs::remove_file(&new);
            Error::from(error).context(path.display())
        })
    }

    /// Removes leftovers of processes that died while they wrote.
    fn remove_abandoned(&self) {
        let Ok(entries) = std::fs::read_dir(&self.dir) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_str().and_then(|name| self.is_temporary(name)).is_none() {
                continue;
            }
            let path = entry.path();
            let file = OpenOptions::new().read(true).custom_flags(NO_SURPRISE).open(&path);
            if file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()) {
                let _ = std::fs::remove_file(&path);
            }
        }
    }

    /// Whether a name is that of a temporary file of this scrub.
    fn is_temporary(&self, name: &str) -> Option<()> {
        let middle = name.strip_prefix("scrub.")?.strip_suffix(&self.key)?.strip_suffix('.')?;
        let mut parts = middle.split('-');
        let (kind, pid, number) = (parts.next()?, parts.next()?, parts.next()?);
        let is_ours = REPLACED.contains(&kind) && parts.next().is_none();
        (is_ours && pid.parse::<u32>().is_ok() && number.parse::<u64>().is_ok()).then_some(())
    }
}

impl Running {
    /// Writes the status, and replaces the last one (SCRUB-3).
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, status: &Status) -> Result<()> {
        self.file.replace("status", status.to_text().as_bytes())
    }

    /// Writes the initial status, and the findings that it keeps of the last one: those first, as no status may be beside findings of
    /// another scrub (SCRUB-7). If the status cannot be written, the last findings are restored.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn begin_with(&self, status: &Status, findings: &Findings) -> Result<()> {
        let last = self.file.read_findings().unwrap_or_default();
        self.write_findings(findings)?;
        self.write(status).inspect_err(|_| {
            let _ = self.write_findings(&last);
        })
    }

    /// Writes all findings, and replaces the earlier ones. Without findings there is no file.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write_findings(&self, findings: &Findings) -> Result<()> {
        if !findings.is_empty() {
            return self.file.replace("findings", findings.to_text().as_bytes());
        }
        let path = self.file.findings();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != IoKind::NotFound => Err(Error::from(error).context(path.display())),
            _ => Ok(()),
        }
    }

    /// Appends findings to the file.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn add_findings(&self, findings: &[Finding]) -> Result<()> {
        if findings.is_empty() {
            return Ok(());
        }
        let path = self.file.findings();
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(NO_SURPRISE);
        let write = || {
            let mut file = options.open(&path)?;
            let mut text = String::new();
            if file.metadata()?.len() == 0 {
                let _ = writeln!(text, "{}", findings::HEAD);
            }
            findings.iter().for_each(|finding| {
                let _ = writeln!(text, "{finding}");
            });
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(|error: std::io::Error| Error::from(error).context(path.display()))
    }

    /// Whether a request to end it has come ([`Runner::cancel`]).
    #[must_use]
    pub fn is_asked_to_end(&self) -> bool {
        let asked = read(&self.file.of("cancel"), MARK_MAX).ok().flatten();
        asked.is_some_and(|asked| asked.trim_ascii_end() == self.mark.to_string().as_bytes())
    }

    /// The files of the scrub.
    #[must_use]
    pub const fn file(&self) -> &StatusFile {
        &self.file
    }
}

impl Drop for Running {
    /// Clears the mark, as the process id may be reused.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.file.of("cancel"));
        let _ = self.locked.set_len(0);
    }
}

impl Runner {
    /// The process id; `None` if it is one of another PID namespace. Shown by
    /// `a_scrub_of_another_pid_namespace_ends_and_no_process_of_this_one`.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.mark.as_ref()?.pid_here()
    }

    /// The mount that the process serves, if it is a server.
    #[must_use]
    pub fn mount(&self) -> Option<&Path> {
        self.mount.as_deref()
    }

    /// Ends the scrub after the batches in flight, and waits for that.
    ///
    /// # Errors
    /// It is the server of a mount. The file for the request cannot be written.
    pub fn cancel(mut self) -> Result<()> {
        let Self { file, mark, mount, lock } = &mut self;
        let about = |error: std::io::Error| Error::from(error).context(file.path().display());
        while is_held(lock).map_err(about)? {
            let found = lock.seek(SeekFrom::Start(0)).ok().and_then(|_| runner_in(lock));
            if let Some((now, its_mount)) = found {
                let mark = mark.get_or_insert_with(|| {
                    *mount = its_mount;
                    now.clone()
                });
                if now != *mark {
                    break;
                }
                if let Some(mount) = mount {
                    let what = format!("it is scrubbed at mount point {}", mount.display());
                    return Err(
                        Error::new(ErrorKind::Busy, what).advise("give the mount point instead of the image")
                    );
                }
                file.ask_to_end(mark)?;
            }
            nap();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn one_scrub_runs_at_a_time_and_ends_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let file = StatusFile::new(dir.path(), Uuid::nil(), [1, 2, 0]);
        let running = file.begin().unwrap();
        assert_eq!(file.begin().unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(file.runner().unwrap().unwrap().pid(), Some(std::process::id()));
        let copy = StatusFile::new(dir.path(), Uuid::nil(), [1, 3, 0]);
        drop(copy.begin().unwrap());
        drop(running);
        assert!(file.runner().unwrap().is_none());
        drop(file.begin().unwrap());
    }

    #[test]
    fn a_status_of_another_filesystem_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = [1, 2].map(|number| Uuid::from_bytes([number; 16]));
        let (mine, its) =
            (StatusFile::new(dir.path(), one, [1, 2, 0]), StatusFile::new(dir.path(), other, [1, 2, 0]));
        let line = format!("scrub status:1\n{other}:1|finished:1\n");
        std::fs::write(mine.path(), &line).unwrap();
        let error = mine.read().unwrap_err().to_string();
        assert!(error.contains(&other.to_string()) && error.contains("scrub.status"), "{error}");
        std::fs::write(its.path(), line).unwrap();
        its.read().unwrap().unwrap();
    }

    #[test]
    fn who_wants_a_scrub_to_end_needs_no_room_for_that() {
        let dir = tempfile::tempdir().unwrap();
        let file = StatusFile::new(dir.path(), Uuid::nil(), [1, 2, 0]);
        let running = file.begin().unwrap();
        let before = std::fs::metadata(file.of("cancel")).unwrap();
        assert!(!running.is_asked_to_end());
        file.ask_to_end(&Mark::parse("1 pid:[1] 7").unwrap()).unwrap();
        assert!(!running.is_asked_to_end(), "another one is meant");
        file.ask_to_end(&running.mark).unwrap();
        let after = std::fs::metadata(file.of("cancel")).unwrap();
        assert!(running.is_asked_to_end());
        assert_eq!((before.ino(), before.len()), (after.ino(), after.len()), "it is the same file");
        drop(running);
        assert!(!file.of("cancel").exists());
    }

    #[test]
    fn a_scrub_of_another_pid_namespace_ends_and_no_process_of_this_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = StatusFile::new(dir.path(), Uuid::nil(), [1, 2, 0]);
        let mut stranger = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut running = file.begin().unwrap();
        running.mark = Mark::parse(&format!("{} pid:[1] 7", stranger.id())).unwrap();
        std::fs::write(file.of("running"), format!("{}\n", running.mark)).unwrap();
        let runner = file.runner().unwrap().unwrap();
        assert_eq!(runner.pid(), None);
        std::thread::scope(|threads| {
            let cancelling = threads.spawn(|| runner.cancel());
            while !running.is_asked_to_end() {
                std::thread::yield_now();
            }
            drop(running);
            cancelling.join().unwrap().unwrap();
        });
        assert!(stranger.try_wait().unwrap().is_none(), "the process that has its number was ended");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        assert!(!file.begin().unwrap().is_asked_to_end(), "the next scrub is another one");
    }

    #[test]
    fn a_scrub_ends_whose_request_to_end_another_one_took_away() {
        let dir = tempfile::tempdir().unwrap();
        let file = StatusFile::new(dir.path(), Uuid::nil(), [1, 2, 0]);
        let running = file.begin().unwrap();
        let runner = file.runner().unwrap().unwrap();
        std::thread::scope(|threads| {
            let cancelling = threads.spawn(|| runner.cancel());
            for _ in 0..3 {
                while !running.is_asked_to_end() {
                    std::thread::yield_now();
                }
                file.replace("cancel", b"1 pid:[1] 7").unwrap();
            }
            drop(running);
            cancelling.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_lock_without_a_mark_is_a_scrub_that_begins_or_ends() {
        let dir = tempfile::tempdir().unwrap();
        let file = StatusFile::new(dir.path(), Uuid::nil(), [1, 2, 0]);
        let mut lock = lock_file(&file.of("running")).unwrap();
        assert!(is_locked_within(&lock, 1));
        let runner = file.runner().unwrap().unwrap();
        assert_eq!((runner.pid(), runner.mount()), (None, None));
        std::thread::scope(|threads| {
            let cancelling = threads.spawn(|| runner.cancel());
            let mark = Mark::new();
            lock.write_all(format!("{mark}\n").as_bytes()).unwrap();
            let running = Running { file: file.clone(), locked: lock, mark };
            while !running.is_asked_to_end() {
                std::thread::yield_now();
            }
            drop(running);
            cancelling.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_scrub_that_begins_or_ends_between_two_looks_is_not_interrupted() {
        // The read before which it begins, and the number of reads after which it ends.
        for (begins, ends) in (0..6).flat_map(|begins| (0..6).map(move |ends| (begins, begins + ends))) {
            let dir = tempfile::tempdir().unwrap();
            let file = StatusFile::new(dir.path(), Uuid::nil(), [1, 2, 0]);
            let status = |ended: &str| {
                let text = format!("scrub status:1\n{}:1|finished:{ended}\n", Uuid::nil());
                Status::parse(text.as_bytes(), Uuid::nil()).unwrap()
            };
            let (mut running, mut looks) = (None, 0);
            let mut between = || {
                if looks == begins {
                    running.insert(file.begin().unwrap()).write(&status("0")).unwrap();
                }
                if looks == ends {
                    running.take().unwrap().write(&status("1")).unwrap();
                }
                looks += 1;
            };
            let (last, runner) = file.read_at_one_moment(&mut between).unwrap();
            let is_open = last.is_some_and(|status| status.devices[0].ended.is_none());
            assert!(!is_open || runner.is_some(), "it begins at {begins} and ends at {ends}");
        }
    }

    #[test]
    fn what_a_process_left_that_died_is_removed_and_what_one_writes_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = StatusFile::new(dir.path(), Uuid::nil(), [1, 2, 0]);
        let copy = StatusFile::new(dir.path(), Uuid::nil(), [1, 3, 0]);
        let left: Vec<_> = REPLACED.map(|kind| file.of(&format!("{kind}-4000000-7"))).into();
        let stays = [
            file.of("status-4000000-8"),
            copy.of("status-4000000-7"),
            file.of("status-4000000"),
            file.path(),
        ];
        left.iter().chain(&stays).for_each(|path| std::fs::write(path, "").unwrap());
        let written = File::open(&stays[0]).unwrap();
        assert!(is_locked_within(&written, 1));
        let _running = file.begin().unwrap();
        assert!(left.iter().all(|path| !path.exists()));
        assert!(stays.iter().all(|path| path.exists()));
    }

    #[test]
    fn of_limits_that_are_set_at_once_none_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let file = StatusFile::new(dir.path(), Uuid::nil(), [1, 2, 0]);
        std::thread::scope(|threads| {
            for id in 1..=8 {
                let file = &file;
                threads.spawn(move || {
                    loop {
                        match file.set_limits(&[(DevId::new(id), id << 20)].into()) {
                            Err(error) if error.kind() == ErrorKind::Busy => {}
                            set => break set.unwrap(),
                        }
                    }
                });
            }
        });
        assert_eq!(file.limits().unwrap().len(), 8);
    }

    #[test]
    fn a_file_that_is_too_long_is_refused_and_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = StatusFile::new(dir.path(), Uuid::nil(), [1, 2, 0]);
        for path in [file.path(), file.findings(), file.of("limits")] {
            File::create(path).unwrap().set_len(1 << 40).unwrap();
        }
        let errors = [
            file.read().unwrap_err(),
            file.read_findings().map(drop).unwrap_err(),
            file.limits().map(drop).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            assert!(error.to_string().contains("exceeds"), "{error}");
        }
    }

    #[test]
    fn limits_are_kept_and_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = StatusFile::new(dir.path(), Uuid::nil(), [1, 2, 0]);
        assert!(file.limits().unwrap().is_empty());
        let limits: BTreeMap<_, _> = [(DevId::new(1), 1 << 20), (DevId::new(2), 0)].into();
        assert_eq!(file.set_limits(&limits).unwrap(), [(DevId::new(1), 1 << 20)].into());
        assert_eq!(file.limits().unwrap(), [(DevId::new(1), 1 << 20)].into());
        file.set_limits(&[(DevId::new(1), 0)].into()).unwrap();
        assert!(file.limits().unwrap().is_empty());
        std::fs::write(file.of("limits"), "1:a\n").unwrap();
        file.limits().unwrap_err();
    }
}
