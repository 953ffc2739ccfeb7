//! `bench fs_mark`: empty files through the mount, with the program of that name, beside the kernel's Btrfs, other
//! filesystems in userspace, and servers that answer at once. Every side is fresh for every run; sides take turns, medians.
//!
//! Back of the envelope: fs_mark waits for three requests a file (it makes the directory each time, which the kernel answers
//! after looking it up; then a lookup and a create), and nobody waits for the release. A round trip over `/dev/fuse` takes
//! 15 to 45 us with its switches between processes, and the work of a create is under 10 us. So the transport is most
//! of it: the mark is a server of ours that does no work, and the mark of that one is the same server over libfuse.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::{CpuMeter, Judge, Judges, LoopDevice, Program, Run, Scratch, btrfs_check};

use super::library::{RELEASE, empty_image};
use super::measure::median;
use super::options::{BesideOptions, options};
use super::report::publish;
use super::server::{Server, build_null, server_threads};
use creamery_workspace::{build_program, root, target};

const IMAGE_BYTES: u64 = 4 << 30;
const LIMIT: Duration = Duration::from_secs(300);
/// Programs that must be there, and the Debian packages that bring them.
const PROGRAMS: [(&str, &str); 6] = [
    ("fs_mark", "fsmark"),
    ("ntfs-3g", "ntfs-3g"),
    ("fuse2fs", "fuse2fs"),
    ("mkfs.ext4", "e2fsprogs"),
    ("pkg-config", "pkg-config"),
    ("cc", "gcc"),
];

/// What serves the directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FsMarkServer {
    Creamery,
    Null,
    LibfuseNull,
    Kernel,
    Ntfs3g,
    Fuse2fs,
}

const SIDES: [(FsMarkServer, &str); 6] = [
    (FsMarkServer::Creamery, "`creamery mount`"),
    (FsMarkServer::Null, "null server, ours"),
    (FsMarkServer::LibfuseNull, "null server, libfuse"),
    (FsMarkServer::Kernel, "kernel Btrfs"),
    (FsMarkServer::Ntfs3g, "ntfs-3g"),
    (FsMarkServer::Fuse2fs, "fuse2fs"),
];

impl FsMarkServer {
    /// It takes a tenth of the files: at a thousand a second nobody would wait for more.
    const fn share(self, files: u64) -> u64 {
        match self {
            Self::Fuse2fs => files.div_ceil(10),
            _ => files,
        }
    }
}

/// What one run of fs_mark took.
#[derive(Clone, Copy)]
struct FsMarkTaken {
    /// Files per second.
    rate: f64,
    /// CPU time for a file, in microseconds: of fs_mark, the server and the kernel's threads.
    cpu: f64,
}

/// One side, for each number of threads.
struct Rates {
    side: FsMarkServer,
    name: &'static str,
    by_threads: [Vec<FsMarkTaken>; THREADS.len()],
}

const THREADS: [usize; 2] = [1, 2];

impl Rates {
    fn median(&self, threads: usize, of: fn(&FsMarkTaken) -> f64) -> f64 {
        median(&self.by_threads[threads].iter().map(of).collect::<Vec<_>>())
    }

    fn rate(&self, threads: usize) -> f64 {
        self.median(threads, |taken| taken.rate)
    }
}

/// `cargo xtask bench fs_mark`.
pub(crate) fn fs_mark(words: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 20_000, bytes: 0, runs: 3, dry: false }, words)?;
    insist_on_programs()?;
    build_program()?;
    build_null(&RELEASE)?;
    let place = FsMarkStage::new(options.files)?;
    let mut all: Vec<Rates> =
        SIDES.map(|(side, name)| Rates { side, name, by_threads: Default::default() }).into();
    for round in 1..=options.runs {
        for (column, threads) in THREADS.into_iter().enumerate() {
            for rates in &mut all {
                let taken = place.measure(rates.side, threads)?;
                println!(
                    "  run {round}, {threads} threads, {}: {:.0} files a second",
                    rates.name, taken.rate
                );
                rates.by_threads[column].push(taken);
            }
        }
    }
    let text = format!(
        "{}\n`cargo xtask bench fs_mark --files {} --runs {}`: `fs_mark -S 0 -s 0 -k`, {} files of each thread (a tenth of it for fuse2fs) in a directory of its own, names of 40 bytes, images on one tmpfs, the kernel's on a loop device, sides alternating, medians of {}; `btrfs check` accepted each image of ours. CPU time is fs_mark's, the server's and that of the kernel's threads.",
        table(&all),
        options.files,
        options.runs,
        options.files,
        options.runs
    );
    publish("bench fs_mark", &text, options.dry)?;
    let two = |wanted| all.iter().find(|rates| rates.side == wanted).map_or(f64::NAN, |rates| rates.rate(1));
    println!("null server over libfuse's {:.2}", two(FsMarkServer::Null) / two(FsMarkServer::LibfuseNull));
    println!("ratio {:.2}", two(FsMarkServer::Creamery) / two(FsMarkServer::Null));
    Ok(())
}

fn insist_on_programs() -> Result<()> {
    let needed = [Judge::Root, Judge::Fuse, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    if let Some(missing) = needed.into_iter().find(|judge| Judges::here().missing(*judge).is_some()) {
        bail!("bench fs_mark mounts filesystems side by side: {missing} is missing");
    }
    let lacks = |tool| Judges::here().missing(Judge::Tool(tool)).is_some();
    let mut packages: Vec<&str> =
        PROGRAMS.into_iter().filter(|(tool, _)| lacks(tool)).map(|(_, package)| package).collect();
    let has_libfuse = || Run::new("pkg-config").args(["--exists", "fuse3"]).output();
    if !has_libfuse().is_ok_and(|finished| finished.code == Some(0)) {
        packages.push("libfuse3-dev");
    }
    ensure!(packages.is_empty(), "programs are missing: apt-get install {}", packages.join(" "));
    Ok(())
}

struct FsMarkStage {
    scratch: Scratch,
    creamery: Program,
    libfuse_null: PathBuf,
    /// Threads of both null servers: as many as the mount has.
    server_threads: String,
    files: u64,
}

impl FsMarkStage {
    fn new(files: u64) -> Result<Self> {
        let scratch = Scratch::new("bench-fs_mark")?;
        let flags = Run::new("pkg-config").args(["--cflags", "--libs", "fuse3"]).ok()?.stdout_text();
        let libfuse_null = scratch.file("libfuse-null");
        let source = root().join("crates/bench/libfuse_null.c");
        Run::new("cc")
            .args(["-O2", "-o"])
            .arg(&libfuse_null)
            .arg(source)
            .args(flags.split_whitespace())
            .ok()?;
        Ok(Self {
            scratch,
            creamery: Program::find()?,
            libfuse_null,
            server_threads: server_threads(),
            files,
        })
    }

    /// One run on a fresh filesystem.
    fn measure(&self, side: FsMarkServer, threads: usize) -> Result<FsMarkTaken> {
        let dir = self.scratch.dir("mount")?;
        let mark = |servers: &[u32]| self.mark(&dir, threads, side.share(self.files), servers);
        let taken = match side {
            FsMarkServer::Creamery => self.on_creamery(&dir, &mark),
            FsMarkServer::Kernel => self.on_kernel(&dir, &mark),
            FsMarkServer::Null => {
                let mut command = Command::new(target().join("release/examples/null"));
                on_server(command.arg("--threads").arg(&self.server_threads).arg(&dir), &dir, &mark)
            }
            FsMarkServer::LibfuseNull => {
                let mut command = Command::new(&self.libfuse_null);
                on_server(command.arg(&self.server_threads).arg(&dir), &dir, &mark)
            }
            FsMarkServer::Ntfs3g => {
                self.on_driver(&["mkntfs", "-q", "-Q", "-F"], &["ntfs-3g", "-o", "no_detach"], &dir, &mark)
            }
            FsMarkServer::Fuse2fs => {
                self.on_driver(&["mkfs.ext4", "-q", "-F"], &["fuse2fs", "-f"], &dir, &mark)
            }
        };
        taken.with_context(|| format!("{side:?} with {threads} threads"))
    }

    fn image(&self) -> Result<PathBuf> {
        let image = self.scratch.file("names.img");
        empty_image(&image, IMAGE_BYTES).map(|()| image)
    }

    /// A figure counts only if the image is right.
    fn on_creamery(&self, dir: &Path, mark: Mark<'_>) -> Result<FsMarkTaken> {
        let image = self.image()?;
        self.creamery.run(["mkfs", "-q", "-f", "-m", "single"]).arg(&image).ok()?;
        let mut command = Command::new(self.creamery.path());
        let taken = on_server(command.args(["mount", "--foreground"]).arg(&image).arg(dir), dir, mark)?;
        btrfs_check(&image)?;
        Ok(taken)
    }

    fn on_kernel(&self, dir: &Path, mark: Mark<'_>) -> Result<FsMarkTaken> {
        let image = self.image()?;
        Run::new("mkfs.btrfs").args(["-q", "-f", "-m", "single", "-d", "single"]).arg(&image).ok()?;
        let device = LoopDevice::attach(&image, false)?;
        Run::new("mount").args(["-t", "btrfs", "-o", "ssd"]).arg(device.path()).arg(dir).ok()?;
        let taken = mark(&[]);
        Run::new("umount").arg(dir).limit(LIMIT).ok()?;
        device.detach()?;
        taken
    }

    fn on_driver(&self, mkfs: &[&str], driver: &[&str], dir: &Path, mark: Mark<'_>) -> Result<FsMarkTaken> {
        let image = self.image()?;
        Run::new(mkfs[0]).args(&mkfs[1..]).arg(&image).ok()?;
        on_server(Command::new(driver[0]).args(&driver[1..]).arg(&image).arg(dir), dir, mark)
    }

    fn mark(&self, dir: &Path, threads: usize, files: u64, servers: &[u32]) -> Result<FsMarkTaken> {
        let mut fs_mark = Run::new("fs_mark").args(["-S", "0", "-s", "0", "-k", "-L", "1"]).limit(LIMIT);
        fs_mark = fs_mark.arg("-n").arg(files.to_string()).arg("-t").arg(threads.to_string());
        for thread in 0..threads {
            let own = format!("thread-{thread}");
            std::fs::create_dir(dir.join(&own))?;
            fs_mark = fs_mark.arg("-d").arg(own); // it takes no path of 40 bytes or more
        }
        let cpu = CpuMeter::start(servers)?;
        let said = fs_mark.within(dir).arg("-l").arg(self.scratch.file("fs_log")).ok()?.stdout_text();
        let cpu = cpu.elapsed()?.as_secs_f64() * 1e6 / (files * threads as u64) as f64;
        let rate = rate_of(&said).with_context(|| format!("no rate in what fs_mark says:\n{said}"))?;
        Ok(FsMarkTaken { rate, cpu })
    }
}

/// What is measured on a mount with these servers.
type Mark<'m> = &'m dyn Fn(&[u32]) -> Result<FsMarkTaken>;

fn on_server(command: &mut Command, dir: &Path, mark: Mark<'_>) -> Result<FsMarkTaken> {
    let server = Server::start(command, dir)?;
    let taken = mark(&[server.id()]);
    server.end()?;
    taken
}

/// The fourth column of the last line: FSUse%, Count, Size, Files/sec, App Overhead.
fn rate_of(said: &str) -> Option<f64> {
    let row = said.lines().rev().find(|line| !line.trim().is_empty())?;
    row.split_whitespace().nth(3)?.parse().ok().filter(|rate| *rate > 0.0)
}

fn table(all: &[Rates]) -> String {
    let null = all.iter().find(|rates| rates.side == FsMarkServer::Null);
    let mut text = String::from(
        "| side | 1 thread, files/s | 2 threads | of the null server, 1 thread | 2 threads | CPU time a file, 1 thread | 2 threads |\n|---|---|---|---|---|---|---|\n",
    );
    for rates in all {
        let of_null = |column| rates.rate(column) / null.map_or(f64::NAN, |null| null.rate(column));
        let cpu = |column| rates.median(column, |taken| taken.cpu);
        text += &format!(
            "| {} | {:.0} | {:.0} | {:.2} | {:.2} | {:.1} us | {:.1} us |\n",
            rates.name,
            rates.rate(0),
            rates.rate(1),
            of_null(0),
            of_null(1),
            cpu(0),
            cpu(1)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{FsMarkServer, FsMarkTaken, Rates, rate_of, table};

    #[test]
    fn the_rate_is_read_from_the_last_row() {
        let said = "#\tVersion 3.3, 2 thread(s)\n\nFSUse%        Count         Size    Files/sec     App Overhead\n     0        20000            0       9667.4          2735570\n\n";
        assert_eq!(rate_of(said), Some(9667.4));
        assert_eq!(rate_of("fs_mark: no such directory\n"), None);
        assert_eq!(rate_of(""), None);
    }

    #[test]
    fn every_side_is_told_as_a_part_of_the_null_server() {
        let taken = |rate: f64| FsMarkTaken { rate, cpu: 2000.0 / rate };
        let rates = |side, name, one: f64, two: f64| Rates {
            side,
            name,
            by_threads: [[one, 1.0, 1e9].map(taken).into(), [two; 3].map(taken).into()],
        };
        let text = table(&[
            rates(FsMarkServer::Creamery, "a", 50.0, 80.0),
            rates(FsMarkServer::Null, "b", 100.0, 100.0),
        ]);
        let rows = "| a | 50 | 80 | 0.50 | 0.80 | 40.0 us | 25.0 us |\n| b | 100 | 100 | 1.00 | 1.00 | 20.0 us | 20.0 us |\n";
        assert!(text.ends_with(rows), "{text}");
    }
}
