//! CPU time that work takes, wherever it is done.
//!
//! A filesystem in the kernel works in the caller's system calls and, later, in threads of the kernel's own; a filesystem in
//! userspace works in its server. So what an operation costs is the sum of: the working process with the children that it has waited
//! for, the servers that it names, and the threads of the kernel that serve files: its work queues (Btrfs' workers and those of loop
//! devices run there), `btrfs-*`, `loop*`, and the handlers of soft interrupts. All by the scheduler's clock; children and servers in
//! hundredths of a second. What an interrupt takes from an idle processor nobody is charged for.
//!
//! Work queues are everybody's: while others keep the machine's disks busy, their share counts, too. Other processes never do.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};

/// The flag of the kernel's own threads among those of `/proc/PID/stat`.
const KERNEL_THREAD: u64 = 0x0020_0000;
const SERVE_FILES: [&str; 4] = ["kworker/", "btrfs-", "loop", "ksoftirqd/"];

/// CPU time from now on.
///
/// ```
/// use creamery_testkit::CpuMeter;
/// if let Ok(meter) = CpuMeter::start(&[]) {
///     let before = meter.elapsed().unwrap();
///     assert!(meter.elapsed().unwrap() >= before);
/// }
/// ```
#[derive(Debug)]
pub struct CpuMeter {
    servers: Vec<u32>,
    processes_before: Duration,
    kernel_before: BTreeMap<u32, Duration>,
}

impl CpuMeter {
    /// Begins to count this process, its children, and the processes `servers`.
    ///
    /// # Errors
    /// When the kernel's threads are out of sight, as in a container with processes of its own, or a server is gone.
    pub fn start(servers: &[u32]) -> Result<Self> {
        // What is read last here is read first at the end: reading costs something itself.
        let kernel_before = kernel_threads()?;
        ensure!(!kernel_before.is_empty(), "the kernel's threads cannot be seen from here");
        Ok(Self { servers: servers.to_vec(), processes_before: processes(servers)?, kernel_before })
    }

    /// What was taken since.
    ///
    /// # Errors
    /// When a server is gone.
    pub fn elapsed(&self) -> Result<Duration> {
        let processes = processes(&self.servers)?.saturating_sub(self.processes_before);
        // A thread that ended meanwhile takes its last moments along; those of work queues live for minutes after their work.
        let kernel = kernel_threads()?.into_iter().map(|(thread, now)| {
            now.saturating_sub(self.kernel_before.get(&thread).copied().unwrap_or_default())
        });
        Ok(processes + kernel.sum::<Duration>())
    }
}

/// What this process took so far.
fn own() -> Result<Duration> {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Ok(Duration::new(time.tv_sec.try_into()?, time.tv_nsec.try_into()?))
}

/// What this process, its children and `servers` took so far.
fn processes(servers: &[u32]) -> Result<Duration> {
    let children = Stat::of("self")?.waited_for;
    servers.iter().try_fold(own()? + children, |sum, server| Ok(sum + Stat::of(&server.to_string())?.taken))
}

/// CPU time that a process took so far, with the children that it has waited for, in hundredths of a second.
///
/// ```
/// creamery_testkit::cpu_of(std::process::id()).unwrap();
/// ```
///
/// # Errors
/// When there is no such process.
pub fn cpu_of(process: u32) -> Result<Duration> {
    let stat = Stat::of(&process.to_string())?;
    Ok(stat.taken + stat.waited_for)
}

/// CPU time that the calling thread took so far.
///
/// ```
/// assert!(creamery_testkit::cpu_of_this_thread() > std::time::Duration::ZERO);
/// ```
#[must_use]
pub fn cpu_of_this_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |part: i64| part.try_into().expect("a time that was taken");
    Duration::new(time.tv_sec.try_into().expect("a time that was taken"), part(time.tv_nsec))
}

/// What each of the kernel's threads that serve files took so far.
fn kernel_threads() -> Result<BTreeMap<u32, Duration>> {
    let mut taken = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("listing /proc")? {
        let name = entry?.file_name();
        let Some(name) = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) else {
            continue;
        };
        // One that is gone by now serves nobody.
        let Ok(stat) = Stat::of(name) else { continue };
        if stat.is_kernel_thread && SERVE_FILES.iter().any(|served| stat.name.starts_with(served)) {
            let Ok(text) = fs::read_to_string(format!("/proc/{name}/schedstat")) else { continue };
            let nanos = text.split_whitespace().next().and_then(|word| word.parse().ok());
            taken.insert(name.parse()?, Duration::from_nanos(nanos.context("no time in schedstat")?));
        }
    }
    Ok(taken)
}

/// A process, as `/proc/PID/stat` shows it.
#[derive(Debug, PartialEq)]
struct Stat {
    name: String,
    is_kernel_thread: bool,
    taken: Duration,
    /// By children that have ended.
    waited_for: Duration,
}

impl Stat {
    fn of(process: &str) -> Result<Self> {
        let file = format!("/proc/{process}/stat");
        let text = fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
        Self::parse(&text, rustix::param::clock_ticks_per_second()).with_context(|| format!("{file}: {text}"))
    }

    fn parse(text: &str, ticks_per_second: u64) -> Option<Self> {
        let (_, rest) = text.split_once('(')?;
        let (name, fields) = rest.rsplit_once(") ")?; // a name may contain anything
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // Counted from 0 at the state, which is the third in proc(5).
        let number = |field: usize| fields.get(field)?.parse::<u64>().ok();
        let time = |ticks: u64| Duration::from_millis(ticks * 1000 / ticks_per_second.max(1));
        Some(Self {
            name: name.to_owned(),
            is_kernel_thread: number(6)? & KERNEL_THREAD != 0,
            taken: time(number(11)? + number(12)?),
            waited_for: time(number(13)? + number(14)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{CpuMeter, Stat, own, processes};

    /// Some hundredths of a second.
    const BUSY: &str = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";

    #[test]
    fn a_line_of_stat_is_read_whatever_the_name() {
        let line = "17 (a) b (c)) S 2 0 0 0 -1 2129984 0 0 0 0 150 50 7 3 20 0 1 0 36 0 0";
        let stat = Stat::parse(line, 100).unwrap();
        let wanted = Stat {
            name: "a) b (c)".to_owned(),
            is_kernel_thread: true,
            taken: Duration::from_secs(2),
            waited_for: Duration::from_millis(100),
        };
        assert_eq!(stat, wanted);
        assert_eq!(Stat::parse("17 (cut off) S 2 0", 100), None);
    }

    #[test]
    fn children_that_were_waited_for_and_servers_count() {
        let mut child = Command::new("sh").args(["-c", BUSY]).spawn().unwrap();
        assert!(child.wait().unwrap().success());
        let (own, children) = (own().unwrap(), Stat::of("self").unwrap().waited_for);
        assert!(children > Duration::ZERO);
        assert!(processes(&[]).unwrap() >= own + children);

        let mut server = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let meter = CpuMeter::start(&[server.id()]);
        if let Ok(meter) = meter {
            crate::wait_until("the server's work", || meter.elapsed().unwrap() >= Duration::from_millis(50));
        } else {
            println!("skipped: kernel threads missing");
        }
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(CpuMeter::start(&[server.id()]).is_err(), "a server that is gone counts as idle");
    }
}
