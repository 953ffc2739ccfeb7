//! Disks of virtual machines on a mount whose server is killed: what qemu-io was told to be durable is on them, by our mount and by Linux'.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{
    FuseMount, Judge, LoopMount, Random, Run, Signal, btrfs_check, daemon, rounds, seed_of, signal, until,
};

use crate::direct::qemu::{ASKED, DISKS, Disk, EDGES, LENGTHS, PLACE, PLACES};
use crate::support::{MOUNTED, mkfs_empty};

const CASE: &str = "direct/qemu-io-with-a-killed-server";
/// More writes to a disk than any round waits for.
const WRITES: u64 = 2_000;
/// The server is killed when so many writes to all disks together were answered at most: each place is written twice until then.
const ENOUGH: u64 = DISKS.len() as u64 * 2 * PLACES;

pub(crate) fn cases() -> Vec<Case> {
    let tools = ["qemu-io", "qemu-img", "stdbuf"].map(Judge::Tool);
    vec![Case::new(CASE, &[&MOUNTED[..], &tools].concat(), killed_and_recovered)]
}

fn killed_and_recovered(bench: &Bench) -> Result<()> {
    let mut random = Random::new(seed_of(CASE));
    let (image, fuse) = (bench.scratch.file("disk.img"), bench.scratch.file("fuse"));
    let copy = bench.scratch.file("copy.img");
    for round in 0..rounds(2, 30) {
        mkfs_empty(bench.creamery(), &["-f"], "512M", &image)?;
        let mount = FuseMount::mount(bench.creamery(), &image, &fuse, "")?;
        let mut writers = Vec::new();
        for (number, disk) in DISKS.iter().enumerate() {
            writers.push(DiskWriter::start(bench, mount.dir(), disk, ASKED[number / 2 % 2])?);
        }
        let enough = 1 + random.below(ENOUGH);
        until("enough writes to be answered", || {
            let answered = writers.iter_mut().map(DiskWriter::answered_by_now).sum::<Result<u64>>()?;
            Ok(answered >= enough)
        })?;
        signal(Signal::KILL, daemon(&image)?)?;
        for writer in &mut writers {
            ensure!(!writer.child.wait()?.success(), "qemu-io did not notice");
        }
        drop(mount);
        let judge = |dir: &Path| writers.iter().try_for_each(|writer| writer.judge(dir));
        Run::new("cp").arg("--sparse=always").arg(&image).arg(&copy).ok()?;
        let linux = LoopMount::mount(&copy, &bench.scratch.file("kernel"), "")?;
        judge(linux.dir()).with_context(|| format!("round {round}, on Linux' mount"))?;
        linux.unmount()?;
        btrfs_check(&copy)?;
        let mount = FuseMount::mount(bench.creamery(), &image, &fuse, "")?;
        judge(mount.dir()).with_context(|| format!("round {round}, on our mount"))?;
        mount.unmount()?;
        btrfs_check(&image)?;
    }
    Ok(())
}

/// One that writes to a disk of its own, one place after the other, and again.
struct DiskWriter {
    disk: &'static Disk,
    name: String,
    child: Child,
    answers: PathBuf,
}

impl DiskWriter {
    /// Each of its writes is to be durable when it is answered (`-f`).
    fn start(bench: &Bench, mount: &Path, disk: &'static Disk, asked: &str) -> Result<Self> {
        let name = format!("{asked}-{}.{}", disk.nocow, disk.format);
        disk.create(&mount.join(&name))?;
        // A disk of which no write was answered is there, too.
        bench.creamery().run(["sync"]).arg(mount).ok()?;
        let answers = bench.scratch.file(&format!("{name}.answers"));
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "qemu-io", "-t", "none", "-n", "-i", asked, "-f", disk.format]);
        for write in 0..WRITES {
            let (at, len) = range(write % PLACES);
            command.args(["-c", &format!("write -f -P {} {at} {len}", pattern(write))]);
        }
        command.arg(mount.join(&name)).stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.stdout(File::create(&answers)?).spawn()?;
        Ok(Self { disk, name, child, answers })
    }

    /// How many of its writes were answered. It is still at work.
    fn answered_by_now(&mut self) -> Result<u64> {
        if let Some(ended) = self.child.try_wait()? {
            bail!("qemu-io ended by itself, {ended}: {}", std::fs::read_to_string(&self.answers)?);
        }
        self.answered()
    }

    fn answered(&self) -> Result<u64> {
        let answers = std::fs::read_to_string(&self.answers)?;
        Ok(answers.split_inclusive('\n').filter(|line| line.starts_with("wrote ")).count() as u64)
    }

    /// Each place has what was last written there, but for the one that was on its way.
    fn judge(&self, mount: &Path) -> Result<()> {
        let (path, answered, format) = (mount.join(&self.name), self.answered()?, self.disk.format);
        let mut run = Run::new("qemu-io").args(["-r", "-f", format]);
        for place in (0..PLACES).filter(|place| *place != answered % PLACES) {
            let (at, len) = range(place);
            let last = (0..answered).rev().find(|write| write % PLACES == place);
            run = run.args(["-c", &format!("read -P {} {at} {len}", last.map_or(0, pattern))]);
        }
        run.arg(&path).ok().with_context(|| format!("{} behind {answered} writes", self.name))?;
        if format == "qcow2" {
            let checked = Run::new("qemu-img").args(["check", "-q", "-f", format]).arg(&path).output()?;
            // 3: clusters that nobody uses, which a disk that was not closed may have.
            ensure!(matches!(checked.code, Some(0 | 3)), "{checked}");
        }
        Ok(())
    }
}

/// What a write has, never zeros.
fn pattern(write: u64) -> u64 {
    1 + write % 251
}

/// Where of a place is written.
fn range(place: u64) -> (u64, u64) {
    let pick = |from: &[u64]| from[usize::try_from(place).expect("small") % from.len()];
    (place * PLACE + pick(&EDGES), pick(&LENGTHS))
}
