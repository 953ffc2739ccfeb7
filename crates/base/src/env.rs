//! The inputs from outside: the clock and randomness. Nothing below the command line asks the system itself,
//! so the same seed and the same operations give the same bytes.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::{Timespec, Uuid};

/// The clock and the source of random ids.
///
/// ```
/// use creamery_base::{Env, FixedEnv, Timespec};
/// let env = FixedEnv::new(Timespec { sec: 1_000, nsec: 0 }, 42);
/// assert_eq!(env.now(), env.now());
/// assert_ne!(env.uuid(), env.uuid());
/// ```
pub trait Env: Send + Sync {
    /// The time now.
    fn now(&self) -> Timespec;
    /// Returns the time since a fixed moment, to measure durations; it never goes back.
    fn monotonic(&self) -> Duration;
    /// Returns a new random UUID (version 4).
    fn uuid(&self) -> Uuid;
    /// Whether the same steps on the same bytes make the same bytes (reproducible-builds.org). Ids then follow from the filesystem's content,
    /// and nothing may depend on the order in which threads run.
    fn is_reproducible(&self) -> bool {
        false
    }
    /// Returns a new UUID to replace `old`: random, or for reproducible images one that follows from `old` (version 5, RFC 9562).
    fn uuid_after(&self, old: Uuid) -> Uuid {
        if self.is_reproducible() { Uuid::new_v5(&old, b"creamery: the next one") } else { self.uuid() }
    }
}

fn uuid_v4(high: u64, low: u64) -> Uuid {
    uuid::Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes()).into_uuid()
}

/// The host's clock and randomness.
///
/// ```
/// use creamery_base::{Env, SystemEnv};
/// assert!(SystemEnv.now().sec > 1_700_000_000);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEnv;

/// The start of [`SystemEnv`]'s monotonic time.
static FIRST_ASKED: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Env for SystemEnv {
    fn now(&self) -> Timespec {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Timespec {
                sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                nsec: since.subsec_nanos(),
            },
            Err(_) => Timespec::default(),
        }
    }

    fn monotonic(&self) -> Duration {
        FIRST_ASKED.elapsed()
    }

    fn uuid(&self) -> Uuid {
        // RandomState is seeded by the operating system and differs per instance.
        use std::hash::{BuildHasher, RandomState};
        uuid_v4(RandomState::new().hash_one(1), RandomState::new().hash_one(2))
    }
}

/// A fixed clock and random ids that follow from a seed, for reproducible images and for replays.
///
/// ```
/// use creamery_base::{Env, FixedEnv, Timespec};
/// let (a, b) = (FixedEnv::new(Timespec::default(), 7), FixedEnv::new(Timespec::default(), 7));
/// assert_eq!(a.uuid(), b.uuid());
/// assert!(!a.is_reproducible() && FixedEnv::reproducible(Timespec::default(), 7).is_reproducible());
/// ```
#[derive(Debug)]
pub struct FixedEnv {
    now: Timespec,
    state: AtomicU64,
    is_reproducible: bool,
}

impl FixedEnv {
    /// Creates an environment where time stands at `now` and ids follow from `seed`.
    #[must_use]
    pub const fn new(now: Timespec, seed: u64) -> Self {
        Self { now, state: AtomicU64::new(seed), is_reproducible: false }
    }

    /// Creates an environment for reproducible images ([`Env::is_reproducible`]), with a fixed clock. Ids follow from the content of a filesystem, or from
    /// `seed` if there is no content.
    #[must_use]
    pub const fn reproducible(now: Timespec, seed: u64) -> Self {
        Self { is_reproducible: true, ..Self::new(now, seed) }
    }

    /// Returns the next number of the splitmix64 sequence (Steele, Lea, Flood 2014).
    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Env for FixedEnv {
    fn now(&self) -> Timespec {
        self.now
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn uuid(&self) -> Uuid {
        uuid_v4(self.next(), self.next())
    }

    fn is_reproducible(&self) -> bool {
        self.is_reproducible
    }
}
