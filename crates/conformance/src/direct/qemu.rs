//! qemu-io, which drives disks of virtual machines past the kernel's cache: it says the same on a mount as on Linux' own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Random, Run, seed_of, share_or_whole};
use rustix::fs::IFlags;

use crate::support::{MOUNTED, judge_mount, mkfs_empty, stats};

/// The disk is written in places of this size: the size of a cluster of qcow2.
pub(crate) const PLACE: u64 = 64 << 10;
pub(crate) const PLACES: u64 = 128;
/// Requests that are in flight together.
const IN_FLIGHT: u64 = 16;
/// Where in its place a write begins, and how long it is. Each stays in its place.
pub(crate) const EDGES: [u64; 7] = [0, 1, 511, 512, 4095, 4096, 8191];
pub(crate) const LENGTHS: [u64; 8] = [1, 511, 512, 4096, 4097, 8192, 32_768, 50_000];

/// How the kernel is asked.
pub(crate) const ASKED: [&str; 2] = ["native", "io_uring"];

/// A kind of file.
pub(crate) struct Disk {
    pub(crate) format: &'static str,
    /// Whether qemu-img marks it to be overwritten in place.
    pub(crate) nocow: &'static str,
}

pub(crate) const DISKS: [Disk; 4] = [
    Disk { format: "raw", nocow: "off" },
    Disk { format: "raw", nocow: "on" },
    Disk { format: "qcow2", nocow: "off" },
    Disk { format: "qcow2", nocow: "on" },
];

pub(crate) fn cases() -> Vec<Case> {
    let judges = [&MOUNTED[..], &[Judge::Tool("qemu-io"), Judge::Tool("qemu-img")]].concat();
    vec![Case::new("direct/qemu-io-as-on-linux", &judges, as_on_linux)]
}

fn as_on_linux(bench: &Bench) -> Result<()> {
    let (image, other) = (bench.scratch.file("disk.img"), bench.scratch.file("other.img"));
    mkfs_empty(bench.creamery(), &[], "1G", &image)?;
    mkfs_empty(bench.creamery(), &[], "1G", &other)?;
    let ours = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let linux = LoopMount::mount(&other, &bench.scratch.file("kernel"), "")?;
    let mut random = Random::new(seed_of("direct/qemu-io-as-on-linux"));
    for disk in &DISKS {
        for asked in ASKED {
            let commands = commands(&mut random, share_or_whole(6, 60));
            let here = disk.work(ours.dir(), asked, &commands)?;
            let there = disk.work(linux.dir(), asked, &commands).context("on Linux' mount")?;
            let Disk { format, nocow } = disk;
            let context = || format!("{format}, nocow={nocow}, asked by {asked}");
            ensure!(here.said == there.said, "{}: {}", context(), differing(&here.said, &there.said));
            let compare = Run::new("qemu-img").args(["compare", "-q", "-f", format, "-F", format]);
            compare.arg(&here.path).arg(&there.path).ok().with_context(context)?;
        }
    }
    linux.unmount()?;
    let told = stats(bench, ours.dir())?;
    for figure in ["reads", "writes", "in_place_bytes", "to_new_space_bytes"] {
        let count = told["filesystem"]["direct"][figure].as_u64().context(figure)?;
        ensure!(count > 0, "{figure} of direct requests is 0");
    }
    judge_mount(bench, &image, ours)
}

/// Batches of writes that are in flight together, each read back; zeros and discards among them.
fn commands(random: &mut Random, batches: u64) -> Vec<String> {
    let mut commands = Vec::new();
    for _ in 0..batches {
        let first = random.below(PLACES - IN_FLIGHT);
        let mut reads = Vec::new();
        for place in first..first + IN_FLIGHT {
            let at = place * PLACE + pick(random, &EDGES);
            let len = pick(random, &LENGTHS);
            let durably = if random.below(4) == 0 { "-f " } else { "" };
            let (how, pattern) = match random.below(8) {
                0 => ("-z".to_owned(), 0),
                1 => ("-z -u".to_owned(), 0),
                _ => {
                    let pattern = 1 + random.below(255);
                    (format!("-P {pattern}"), pattern)
                }
            };
            commands.push(format!("aio_write {durably}{how} {at} {len}"));
            reads.push(format!("read -P {pattern} {at} {len}"));
        }
        commands.push("aio_flush".to_owned());
        commands.append(&mut reads);
        let (at, len) = (random.below(PLACES - 4) * PLACE, (1 + random.below(4)) * PLACE);
        commands.extend([format!("discard {at} {len}"), format!("read -P 0 {at} {len}"), "flush".to_owned()]);
    }
    commands.push("map".to_owned());
    commands
}

fn pick(random: &mut Random, from: &[u64]) -> u64 {
    from[usize::try_from(random.below(from.len() as u64)).expect("small")]
}

/// A disk that was worked on, and what was said of it.
struct Worked {
    path: PathBuf,
    said: Vec<String>,
}

impl Disk {
    /// A new disk that is empty.
    pub(crate) fn create(&self, path: &Path) -> Result<()> {
        let Self { format, nocow } = self;
        let create = Run::new("qemu-img").args(["create", "-q", "-f", format, "-o"]);
        create.arg(format!("nocow={nocow}")).arg(path).arg((PLACES * PLACE).to_string()).ok()?;
        let flags = rustix::fs::ioctl_getflags(std::fs::File::open(path)?)?;
        ensure!(flags.contains(IFlags::NOCOW) == (*nocow == "on"), "qemu-img has marked it with {flags:?}");
        Ok(())
    }

    fn work(&self, dir: &Path, asked: &str, commands: &[String]) -> Result<Worked> {
        let Self { format, nocow } = self;
        let path = dir.join(format!("{asked}-{nocow}.{format}"));
        self.create(&path)?;
        let run = Run::new("qemu-io").args(["-t", "none", "-n", "-d", "unmap", "-i", asked, "-f", format]);
        let run = commands.iter().fold(run, |run, command| run.args(["-c", command]));
        let said = run.arg(&path).ok()?.stdout_text();
        // How long it took, and which of those in flight ended first, is no answer.
        let mut said: Vec<String> =
            said.lines().filter(|line| !line.contains(" ops; ")).map(str::to_owned).collect();
        said.sort();
        // One line for each request, and the map.
        let requests = commands.iter().filter(|command| command.contains(' ')).count();
        ensure!(said.len() > requests, "it said too little of {requests} requests: {said:#?}");
        Ok(Worked { path, said })
    }
}

fn differing(here: &[String], there: &[String]) -> String {
    let only = |of: &[String], not: &[String]| -> Vec<String> {
        of.iter().filter(|line| !not.contains(line)).cloned().collect()
    };
    format!("only here {:#?}, only on Linux {:#?}", only(here, there), only(there, here))
}
