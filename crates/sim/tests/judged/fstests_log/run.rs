//! Runs a case on a device that records its requests, and checks all states that power cuts leave.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use creamery_base::{Env, FixedEnv, Timespec, Uuid};
use creamery_device::BlockDevice;
use creamery_fs::{FileType, Filesystem, FsOptions};
use creamery_mkfs::Profile;
use creamery_sim::{
    Canary, CutState, Image, MadeBy, PowerCut, SimDevice, fresh_image, judge, open, snapshot,
};
use creamery_testkit::{LoopMount, Scratch, btrfs_check};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

use super::script::ScriptScene;
use super::wants::{LATER, Wants};

/// A test of the group: its name, the bug elsewhere, the steps, and the expectations after them.
#[derive(Clone)]
pub(crate) struct LogCase {
    pub(crate) test: &'static str,
    pub(crate) what: &'static str,
    pub(crate) steps: String,
    pub(crate) wants: String,
}

/// A row of a table.
pub(crate) type Row = (&'static str, &'static str, &'static str, &'static str);

impl From<&Row> for LogCase {
    fn from(&(test, what, steps, wants): &Row) -> Self {
        Self { test, what, steps: steps.to_owned(), wants: wants.to_owned() }
    }
}

/// The kind of filesystem of a case.
pub(crate) struct Setup {
    name: &'static str,
    made_by: MadeBy,
    delayed_bytes: u64,
    inodes_cached: usize,
    image: OnceLock<Image>,
}

const SMALL: MadeBy = MadeBy {
    len: 96 << 20,
    node_size: 4096,
    data: Profile::Single,
    metadata: Profile::Single,
    mixed: false,
    no_holes: true,
};

pub(crate) static SETUPS: [Setup; 3] = [
    Setup {
        name: "delayed",
        made_by: MadeBy { len: 110 << 20, node_size: 16384, metadata: Profile::Dup, ..SMALL },
        delayed_bytes: 256 << 20,
        inodes_cached: 1000,
        image: OnceLock::new(),
    },
    Setup {
        name: "at once, inodes forgotten",
        made_by: SMALL,
        delayed_bytes: 0,
        inodes_cached: 0,
        image: OnceLock::new(),
    },
    Setup {
        name: "items for holes",
        made_by: MadeBy { no_holes: false, ..SMALL },
        delayed_bytes: 256 << 20,
        inodes_cached: 1000,
        image: OnceLock::new(),
    },
];

/// Random ids that follow from a seed, and a clock that advances by a second with each reading.
struct Clock(FixedEnv, AtomicI64);

impl Env for Clock {
    fn now(&self) -> Timespec {
        Timespec { sec: self.1.fetch_add(1, Ordering::Relaxed), nsec: 0 }
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn uuid(&self) -> Uuid {
        self.0.uuid()
    }
}

impl Setup {
    fn image(&self) -> &Image {
        self.image.get_or_init(|| fresh_image(&self.made_by).expect("an image"))
    }

    fn open(&self, device: &Arc<SimDevice>) -> Result<Arc<Filesystem>> {
        let device: Arc<dyn BlockDevice> = Arc::<SimDevice>::clone(device);
        let volume = Volume::open(vec![device], Mode::ReadWrite)?;
        let env = Arc::new(Clock(FixedEnv::new(Timespec::default(), 1), AtomicI64::new(1_600_000_000)));
        let engine = Engine::open(volume, Options { env, ..Options::default() })?;
        let (delayed_bytes, inodes_cached) = (self.delayed_bytes, self.inodes_cached);
        Ok(Filesystem::open(engine, FsOptions { delayed_bytes, inodes_cached, ..FsOptions::default() })?)
    }
}

/// The number of power cuts before the end of the last step.
const BEFORE: usize = 6;

/// A case after its run.
pub(crate) struct FinishedCase {
    device: Arc<SimDevice>,
    wants: Wants,
    setup: &'static Setup,
    /// Events until the end of the last step, and the device's content then.
    durable: usize,
    image: Image,
    /// Whether the last step wrote a log.
    pub(crate) is_logged: bool,
}

/// Runs the steps of a case, and then some more work.
pub(crate) fn run(case: &LogCase, setup: &'static Setup) -> Result<FinishedCase> {
    run_on(case, setup, None)
}

/// Runs a case on a device that may break a promise.
pub(crate) fn run_on(case: &LogCase, setup: &'static Setup, canary: Option<Canary>) -> Result<FinishedCase> {
    let told = || format!("{} ({}), {}", case.test, case.what, setup.name);
    let device = Arc::new(SimDevice::recording(setup.image().clone(), canary));
    let work = || -> Result<FinishedCase> {
        let fs = setup.open(&device)?;
        let mut here = ScriptScene::new(&fs);
        here.run(&case.steps)?;
        let (durable, image) = (device.log_len(), device.image());
        let is_logged = open(&Arc::new(SimDevice::new(image.clone())))?.replayed().is_some();
        drop(here);
        let wants = Wants::new(&case.wants, &*fs)?;
        let mut here = ScriptScene::new(&fs);
        here.run(&format!("create {LATER}; write {LATER} 0 1000 77; fsync {LATER}; sync"))?;
        Ok(FinishedCase { device: Arc::clone(&device), wants, setup, durable, image, is_logged })
    };
    work().with_context(told)
}

impl FinishedCase {
    /// Opens and compares all states that power cuts leave; returns their number.
    pub(crate) fn expect_after_power_cuts(self, case: &LogCase) -> Result<usize> {
        let end = self.device.log_len();
        let mut cut = PowerCut::of(&self.device, self.setup.image(), 7);
        let before = (1..BEFORE).map(|part| part * self.durable / BEFORE);
        let (mut tried, mut emptied) = (0, false);
        for position in before.chain(self.durable..=end) {
            for state in cut.states_at(position) {
                let told = || format!("{} ({}), {}: {}", case.test, case.what, self.setup.name, state.story);
                let empties = state.position >= self.durable && !std::mem::replace(&mut emptied, true);
                self.expect(&state, empties).with_context(told)?;
                tried += 1;
            }
        }
        Ok(tried)
    }

    /// Checks the expectations on a state. If it `empties`, also removes everything, which shows that work goes on.
    fn expect(&self, state: &CutState, empties: bool) -> Result<()> {
        let device = Arc::new(SimDevice::new(state.image.clone()));
        let fs = open(&device).context("opening what the power cut left")?;
        self.wants.expect(&*fs, state.position >= self.durable)?;
        if empties {
            ScriptScene::new(&fs).run("create again; write again 0 1000 78; fsync again")?;
            empty(&fs).context("removing all of it")?;
        }
        fs.shut_down()?;
        judge(&device.image()).context("verifying it")
    }

    /// Lets the kernel replay the state at the end of the last step.
    pub(crate) fn expect_of_the_kernel(&self, case: &LogCase, scratch: &Scratch) -> Result<()> {
        let told = || format!("{} ({}), {}, by the kernel", case.test, case.what, self.setup.name);
        let path = scratch.file("replayed.img");
        let replay = || -> Result<()> {
            self.image.save(&path)?;
            let mount = LoopMount::mount(&path, &scratch.dir("mount")?, "noatime")?;
            self.wants.expect(&mount.dir(), true)?;
            mount.unmount()?;
            btrfs_check(&path)
        };
        replay().with_context(told)
    }
}

/// Removes everything.
fn empty(fs: &Arc<Filesystem>) -> Result<()> {
    let mut here = ScriptScene::new(fs);
    // Files below a directory come behind it, so the order is reversed.
    for (path, entry) in snapshot(fs)?.entries.iter().rev().filter(|(path, _)| !path.is_empty()) {
        let path = String::from_utf8_lossy(path);
        let (is_dir, is_root) = (entry.kind == FileType::Directory, here.is_subvolume(&path)?);
        let step = if is_root {
            "delete-subvolume"
        } else if is_dir {
            "rmdir"
        } else {
            "unlink"
        };
        here.run(&format!("{step} {path}"))?;
    }
    let left = snapshot(fs)?.entries;
    ensure!(left.len() == 1 && left.values().all(|root| root.size == 0), "{left:?} is left");
    Ok(())
}
