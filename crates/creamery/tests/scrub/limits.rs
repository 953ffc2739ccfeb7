//! A limit holds, by a clock that only pauses move: reads take no time on it, so only the limit decides the duration of a scrub.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use creamery_base::{DevId, Env, FixedEnv, Timespec, Uuid};
use creamery_maint::scrub::{Counts, Finding, Scrub, Sink};
use creamery_testkit::harness::Case;
use creamery_txn::{Engine, Options};
use creamery_volume::{DeviceSet, Mode, Volume};

use crate::content::Content;
use crate::geometry::Profile;
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout};

pub(crate) fn cases() -> Vec<Case> {
    let all = ["single", "raid1", "raid5"].into_iter();
    let case = |profile: &'static str| {
        Case::new(format!("scrub-matrix/limits-hold-{profile}"), &[], move |_| limits_hold(profile))
    };
    all.map(case).collect()
}

/// A clock that moves when a scrub pauses.
struct Clock {
    fixed: FixedEnv,
    nanos: AtomicU64,
}

impl Env for Clock {
    fn now(&self) -> Timespec {
        self.fixed.now()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn uuid(&self) -> Uuid {
        self.fixed.uuid()
    }
}

/// Limits a device to this many bytes per second.
struct Limited<'c> {
    clock: &'c Clock,
    limit: u64,
    /// Bytes scrubbed so far, and at the last pause.
    bytes: AtomicU64,
    bytes_at_pause: AtomicU64,
}

impl Sink for Limited<'_> {
    fn found(&self, _: &Finding) {}

    fn goes_on(&self, _: DevId, counts: &Counts) -> bool {
        let bytes = counts.data_bytes_scrubbed + counts.tree_bytes_scrubbed + counts.parity_bytes_scrubbed;
        self.bytes.fetch_max(bytes, Ordering::Relaxed);
        true
    }

    fn limit(&self, _: DevId) -> Option<u64> {
        Some(self.limit)
    }

    fn pause(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).expect("a pause is short");
        self.clock.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.bytes_at_pause.store(self.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

fn limits_hold(profile: &str) -> Result<()> {
    let profile = Profile::named(profile);
    let shape = SetLayout { profile, members: profile.members[0], shift: 0, ends: DataGroupEnd::InFreeSpace };
    let world = ScrubWorld::new(Content::large()?, shape)?;
    for limit in [1 << 20, 4 << 20, 50 << 20] {
        let set = world.set.fork();
        let fixed = FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 1);
        let clock = Arc::new(Clock { fixed, nanos: AtomicU64::new(0) });
        let volume = Volume::open(set.devices().into_iter().collect::<DeviceSet>(), Mode::ReadOnly)?;
        let env = Arc::clone(&clock) as Arc<dyn Env>;
        let engine = Engine::open(volume, Options { read_only: true, env, ..Options::default() })?;
        let scrub = Scrub::reading(&engine);
        let (bytes, bytes_at_pause) = (AtomicU64::new(0), AtomicU64::new(0));
        let sink = Limited { clock: &clock, limit, bytes, bytes_at_pause };
        scrub.device(DevId::new(1), &sink)?;
        let (bytes, seconds) = (sink.bytes_at_pause.into_inner(), clock.monotonic().as_secs_f64());
        // Gaps between used areas are read along, and count for the limit.
        let share = bytes as f64 / seconds / limit as f64;
        ensure!((0.9..=1.1).contains(&share), "{limit} bytes a second: {bytes} in {seconds} s");
    }
    Ok(())
}
