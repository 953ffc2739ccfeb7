//! Child processes with a time limit, whose failure reads like a sentence.
//!
//! Output goes to anonymous files and not to pipes: a child that leaves a daemon behind (as `creamery mount`
//! does) would keep a pipe open and the reader waiting for ever.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Access, MemfdFlags, access, memfd_create};
pub use rustix::process::Signal;
use rustix::process::{Pid, PidfdFlags, kill_process, pidfd_open};

use crate::cpu::cpu_of;
use crate::{HANG, until};

const SHOWN_BYTES_MAX: usize = 4_000;

/// Sends a signal to a process: from here, for a shell that sends it is late.
///
/// # Errors
/// There is no such process, or it is somebody else's.
pub fn signal(signal: Signal, process: u32) -> Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).context("no number of a process")?;
    kill_process(pid, signal).with_context(|| format!("{signal:?} to process {process}"))
}

/// A command to be run to its end.
///
/// ```
/// use creamery_testkit::Run;
/// let finished = Run::new("echo").arg("hello").ok().unwrap();
/// assert_eq!(finished.stdout_text(), "hello\n");
/// ```
pub struct Run {
    command: Command,
    shown: Vec<OsString>,
    input: Option<Vec<u8>>,
    limit: Duration,
    again_while_busy: bool,
}

impl Run {
    /// A command that starts `program`, found through PATH (with the folders of the superuser added).
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref();
        // The standard library starts a program without a copy of all page tables of this process (of gigabytes, where a test keeps
        // images in memory) only if it does not have to look for it in a PATH that is being set.
        let mut command = Command::new(found(program).as_deref().unwrap_or(Path::new(program)));
        command.arg0(program).env("PATH", search_path()).env("LC_ALL", "C");
        let shown = vec![program.to_owned()];
        Self { command, shown, input: None, limit: HANG, again_while_busy: false }
    }

    /// One argument more.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.shown.push(arg.as_ref().to_owned());
        self.command.arg(arg);
        self
    }

    /// Several arguments more.
    #[must_use]
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(self, args: I) -> Self {
        args.into_iter().fold(self, |run, arg| run.arg(arg))
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts it in `dir`.
    #[must_use]
    pub fn within(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Feeds it `input`.
    #[must_use]
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// Kills it after `limit`: for benches, which run longer than what counts as a hang.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it again for a moment while it finds somebody busy there. For every unmount: a test on another thread that is just
    /// starting a program has, between fork and exec, copies of all files that this process has open.
    ///
    /// ```no_run
    /// # fn end(dir: &std::path::Path) -> anyhow::Result<()> {
    /// creamery_testkit::Run::new("umount").arg(dir).again_while_busy().ok().map(drop)
    /// # }
    /// ```
    #[must_use]
    pub fn again_while_busy(mut self) -> Self {
        self.again_while_busy = true;
        self
    }

    /// Runs it; a failure of the program is not an error here, see [`Finished::code`].
    ///
    /// # Errors
    /// When it cannot be started, or is killed at the time limit.
    pub fn output(mut self) -> Result<Finished> {
        let mut finished = self.once()?;
        until("the end of others' work", || {
            let again = self.again_while_busy && finished.is_busy() || finished.met_a_vanishing_device();
            if again {
                finished = self.once()?;
            }
            Ok(!again)
        })
        .with_context(|| format!("running `{}` again and again", self.line()))?;
        Ok(finished)
    }

    fn once(&mut self) -> Result<Finished> {
        let line = self.line();
        let mut stdout = memory_file("stdout")?;
        let mut stderr = memory_file("stderr")?;
        self.command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        match &self.input {
            None => self.command.stdin(Stdio::null()),
            Some(input) => {
                let mut file = memory_file("stdin")?;
                file.write_all(input)?;
                file.rewind()?;
                self.command.stdin(file)
            }
        };
        let start = Instant::now();
        let mut child = self.command.spawn().with_context(|| format!("starting {line}"))?;
        let in_time = wait_until(&mut child, self.limit)?;
        // Until somebody has waited for it, what it took can be asked for.
        let cpu = cpu_of(child.id())?;
        let status = child.wait().with_context(|| format!("waiting for {line}"))?;
        let finished = Finished {
            line,
            code: status.code(),
            stdout: read_back(&mut stdout)?,
            stderr: read_back(&mut stderr)?,
            elapsed: start.elapsed(),
            cpu,
        };
        if !in_time {
            bail!("still running after {} s, killed: {finished}", self.limit.as_secs());
        }
        Ok(finished)
    }

    /// Runs it and insists on exit status 0.
    ///
    /// # Errors
    /// When it cannot be run, or fails: then with what it printed.
    pub fn ok(self) -> Result<Finished> {
        let finished = self.output()?;
        if finished.code != Some(0) {
            bail!("{finished}");
        }
        Ok(finished)
    }

    fn line(&self) -> String {
        self.shown.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }
}

/// What a command left.
pub struct Finished {
    line: String,
    /// Its exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it complained about.
    pub stderr: Vec<u8>,
    /// How long it took.
    pub elapsed: Duration,
    /// CPU time of it and of the children that it waited for, in hundredths of a second. Other work on the machine changes that little.
    pub cpu: Duration,
}

impl Finished {
    /// Standard output as text.
    #[must_use]
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    #[must_use]
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Whether btrfs-progs, which ask all loop devices what is mounted, came upon one that another test was just giving back.
    fn met_a_vanishing_device(&self) -> bool {
        self.code != Some(0) && self.stderr_text().contains("cannot check mount status")
    }

    /// Whether an unmount failed because somebody uses what is mounted.
    fn is_busy(&self) -> bool {
        let said = self.stderr_text();
        self.code != Some(0) && ["busy", "in use", "files are open"].iter().any(|words| said.contains(words))
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "`{}` ended with status {code}", self.line)?,
            None => write!(f, "`{}` was ended by a signal", self.line)?,
        }
        for (name, bytes) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !bytes.is_empty() {
                write!(f, "\n  {name}: {}", shortened(bytes))?;
            }
        }
        Ok(())
    }
}

/// The beginning and the end: the first complaint is often the telling one.
fn shortened(bytes: &[u8]) -> String {
    let text = |part: &[u8]| String::from_utf8_lossy(part).trim_end().to_owned();
    if bytes.len() <= SHOWN_BYTES_MAX {
        return text(bytes);
    }
    let half = SHOWN_BYTES_MAX / 2;
    let (head, tail) = (&bytes[..half], &bytes[bytes.len() - half..]);
    format!("{}\n  ... {} bytes left out ...\n{}", text(head), bytes.len() - 2 * half, text(tail))
}

/// The file that a name without a folder stands for.
fn found(program: &OsStr) -> Option<PathBuf> {
    let is_name = !program.as_encoded_bytes().contains(&b'/');
    let is_program = |place: &PathBuf| place.is_file() && access(place, Access::EXEC_OK).is_ok();
    let path = search_path();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|place| is_name && is_program(place))
}

fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin");
    path
}

fn memory_file(name: &str) -> Result<File> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC).context("making a file in memory")?;
    Ok(File::from(fd))
}

fn read_back(file: &mut File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Waits for the child's end; kills it and answers `false` when the limit passes first.
fn wait_until(child: &mut Child, limit: Duration) -> Result<bool> {
    let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) else { return Ok(true) };
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("watching a child process")?;
    let start = Instant::now();
    loop {
        let left = limit.saturating_sub(start.elapsed());
        if left.is_zero() {
            child.kill().context("killing a child process")?;
            poll(&mut [PollFd::new(&pidfd.as_fd(), PollFlags::IN)], None)
                .context("waiting for a killed process")?;
            return Ok(false);
        }
        let timeout = left.try_into().context("a time limit that is too long")?;
        match poll(&mut [PollFd::new(&pidfd.as_fd(), PollFlags::IN)], Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error).context("waiting for a child process"),
        }
    }
}
