//! `cargo xtask fsstress --checkout DIR [--rounds N]`: the fsstress of a checkout of fstests, built, on a mount that one scrub after another goes
//! over; some are cancelled and gone on with. In every third round the server is killed in the midst of all that, and a mount
//! reads its log. Then nothing is bad: a scrub of the image says so, `btrfs check` with all data, and Linux shows the tree that the mount shows.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, LoopMount, Program, Random, Run, Signal, btrfs_check, daemon, signal};

use super::{OPTIONS, Stage, stage};

const ROUNDS: u64 = 30;
/// Operations of each of its processes.
const OPERATIONS: &str = "2000";
/// And where it is to be at work when the server is killed.
const ENDLESS: &str = "100000000";
const PROCESSES: &str = "4";
/// The work of so many rounds is kept.
const KEPT: u64 = 2;
/// The server is killed in one round of so many.
const KILLED_ONE_IN: u64 = 3;
/// So many scrubs see a round's work before the server is killed.
const SCRUBS_BEFORE: u64 = 3;

/// What is at work.
struct Soak {
    creamery: Program,
    fsstress: PathBuf,
    image: PathBuf,
    dir: PathBuf,
    state: PathBuf,
    scrubs: AtomicU64,
}

/// `cargo xtask fsstress`.
pub(crate) fn fsstress(words: &[&str]) -> Result<()> {
    let (rounds, checkout) = parse(words)?;
    let fsstress = Path::new(checkout).canonicalize()?.join("ltp/fsstress");
    ensure!(fsstress.is_file(), "build fstests first: make");
    let Stage { scratch, image, mount } = stage("fsstress")?;
    let dir = mount.dir().to_owned();
    mount.unmount()?;
    let state = scratch.dir("state")?;
    let soak = Soak { creamery: Program::find()?, fsstress, image, dir, state, scrubs: AtomicU64::new(0) };
    let mut killed = 0;
    for round in 1..=rounds {
        let is_killed = round.is_multiple_of(KILLED_ONE_IN);
        soak.round(round, is_killed).with_context(|| format!("round {round}"))?;
        killed += u64::from(is_killed);
        let scrubs = soak.scrubs.load(Ordering::Relaxed);
        println!("round {round}: {scrubs} scrubs, killed {killed} times: nothing is bad");
    }
    Ok(())
}

impl Soak {
    fn round(&self, round: u64, is_killed: bool) -> Result<()> {
        let mount = FuseMount::mount(&self.creamery, &self.image, &self.dir, OPTIONS)?;
        let work = |round: u64| self.dir.join(format!("round-{round}"));
        // What the round before the last one has left makes room.
        if round > KEPT {
            std::fs::remove_dir_all(work(round - KEPT))?;
        }
        let work = work(round);
        std::fs::create_dir(&work)?;
        let mut stress = self.start(&work, round, if is_killed { ENDLESS } else { OPERATIONS })?;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| -> Result<()> {
            let scrubs = scope.spawn(|| self.scrub_until(&over, round));
            let ended = if is_killed { self.kill(&scrubs, &mut stress) } else { whole(&mut stress) };
            over.store(true, Ordering::Relaxed);
            let scrubbed = scrubs.join().ok().context("a thread panicked")?;
            // What a killed server leaves its callers with is no finding.
            if is_killed { ended } else { ended.and(scrubbed) }
        })?;
        if is_killed {
            Run::new("umount").arg("-l").arg(&self.dir).ok()?;
            drop(mount);
            // It fails now at all that it does.
            stress.wait()?;
            let mount = FuseMount::mount(&self.creamery, &self.image, &self.dir, OPTIONS)?;
            // A mount that writes nothing leaves the log.
            std::fs::write(self.dir.join(format!("after-{round}")), "its log was read")?;
            mount.unmount()?;
        } else {
            mount.unmount()?;
        }
        self.judge()
    }

    fn start(&self, work: &Path, seed: u64, operations: &str) -> Result<Child> {
        let mut command = Command::new(&self.fsstress);
        command.args(["-n", operations, "-p", PROCESSES, "-s", &seed.to_string(), "-d"]).arg(work);
        Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
    }

    fn scrub(&self, words: &[&str], on: &Path) -> Run {
        self.creamery.run(["scrub"]).args(words).arg(on).env("XDG_STATE_HOME", &self.state)
    }

    /// One scrub after another, some of them in two parts.
    fn scrub_until(&self, over: &AtomicBool, seed: u64) -> Result<()> {
        let mut random = Random::new(seed);
        while !over.load(Ordering::Relaxed) {
            if random.below(2) == 0 {
                self.scrub(&["start"], &self.dir).ok()?;
                // It may have ended by itself.
                self.scrub(&["cancel"], &self.dir).output()?;
                let resumed = self.scrub(&["resume", "-B"], &self.dir).output()?;
                ensure!(matches!(resumed.code, Some(0 | 2)), "{resumed}");
            } else {
                self.scrub(&["start", "-B"], &self.dir).ok()?;
            }
            let status = self.scrub(&["status"], &self.dir).ok()?.stdout_text();
            ensure!(status.contains("no errors found"), "{status}");
            self.scrubs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Kills the server when it has been scrubbed for a while, in the midst of work.
    fn kill(&self, scrubs: &std::thread::ScopedJoinHandle<'_, Result<()>>, stress: &mut Child) -> Result<()> {
        let enough = self.scrubs.load(Ordering::Relaxed) + SCRUBS_BEFORE;
        while self.scrubs.load(Ordering::Relaxed) < enough {
            ensure!(!scrubs.is_finished(), "a scrub failed");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let ended = stress.try_wait()?;
        ensure!(ended.is_none(), "fsstress ended by itself: {ended:?}");
        signal(Signal::KILL, daemon(&self.image)?)
    }

    /// Nothing is bad, by our scrub and by `btrfs check`, and Linux shows what the mount shows.
    fn judge(&self) -> Result<()> {
        let said = self.scrub(&["start", "-B"], &self.image).ok()?.stdout_text();
        ensure!(said.contains("no errors found"), "{said}");
        btrfs_check(&self.image)?;
        let mount = FuseMount::mount(&self.creamery, &self.image, &self.dir, "ro,allow_other")?;
        let ours = Walk::take(mount.dir())?;
        mount.unmount()?;
        let linux = LoopMount::mount(&self.image, &self.dir, "ro")?;
        let theirs = Walk::take(linux.dir())?;
        linux.unmount()?;
        expect_same("the tree", &theirs, &ours, &Compare::default())
    }
}

/// Waits until it has done all that it was to do.
fn whole(stress: &mut Child) -> Result<()> {
    let ended = stress.wait()?;
    ensure!(ended.success(), "fsstress: {ended}");
    Ok(())
}

fn parse<'w>(words: &[&'w str]) -> Result<(u64, &'w str)> {
    let (mut rounds, mut checkout) = (ROUNDS, None);
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        let value = || format!("{word} wants a value");
        match word {
            "--rounds" => rounds = words.next().with_context(value)?.parse()?,
            "--checkout" => checkout = Some(*words.next().with_context(value)?),
            _ => bail!("usage: cargo xtask fsstress --checkout DIR [--rounds N]"),
        }
    }
    Ok((rounds, checkout.context("usage: cargo xtask fsstress --checkout DIR [--rounds N]")?))
}
