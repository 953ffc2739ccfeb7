//! A file in pieces on a small device. Writers overwrite it, and run the references that this leaves for the commit.

use std::sync::Arc;

use creamery_device::BlockDevice;
use creamery_fs::{Filesystem, FsOptions, NewInode};
use creamery_sim::{MadeBy, SimDevice, fresh_image};
use creamery_testkit::Random;
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

use crate::refill::SINGLE;

const PIECE: usize = 4096;
/// So many pieces that the metadata space of a new filesystem suffices if no space is reserved twice, and not otherwise.
pub(crate) const PIECES: u64 = 10_000;

/// The result of overwriting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Took {
    pub(crate) commits: u64,
    /// Bytes by which metadata space grew.
    pub(crate) new_metadata: u64,
}

/// Writes `pieces` pieces, makes them durable, and overwrites all of them. `plant` may set a failpoint first.
pub(crate) fn overwrite_in_steps(pieces: u64, plant: fn(&Engine)) -> Took {
    let made_by = MadeBy { len: 192 << 20, ..SINGLE };
    let device: Arc<dyn BlockDevice> = Arc::new(SimDevice::new(fresh_image(&made_by).expect("an image")));
    let volume = Volume::open(vec![device], Mode::ReadWrite).expect("it opens");
    // Writers run heads from a quarter of the maximum on, so no commit falls due.
    let options = Options { delayed_refs_max: 4_000, ..Options::default() };
    let engine = Engine::open(volume, options).expect("it opens");
    plant(&engine);
    let fs = Filesystem::open(Arc::clone(&engine), FsOptions { delayed_bytes: 0, ..FsOptions::default() })
        .expect("it opens");
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let made = fs.create(root, b"in pieces", &NewInode::file(0o644)).expect("room");
    let file = fs.open_file(made.id).expect("it is there");
    let mut places: Vec<u64> = (0..pieces).collect();
    let mut random = Random::new(3);
    let mut write = |content: u8| {
        random.shuffle(&mut places);
        for place in &places {
            let written = file.write_at(place * PIECE as u64, &[content; PIECE]);
            assert_eq!(written.expect("room"), PIECE);
        }
    };
    write(1);
    fs.sync().expect("it commits");
    let before = (engine.counters().commits, engine.space());
    write(2);
    let after = (engine.counters().commits, engine.space());
    fs.sync().expect("it commits");
    Took { commits: after.0 - before.0, new_metadata: after.1.metadata_total - before.1.metadata_total }
}
