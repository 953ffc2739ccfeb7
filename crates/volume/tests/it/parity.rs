//! Rebuilding from parity, with damage in every column of a row. Linux made the sets.

use std::sync::Arc;

use creamery_base::{ErrorKind, Logical, Wait};
use creamery_device::{BlockDevice, MemoryDevice};
use creamery_format::Expected;
use creamery_volume::{Chunk, DeviceSet, Mode, Verdict, Volume};

use crate::faulty;
use crate::images::*;
use crate::profiles::{made, open_set, read_everything};

const NODE: u64 = 4096;

/// Returns the device index and the offset of each stripe's bytes in the row of `at`. The first one is that of `at` itself.
fn row_of(chunk: &Chunk, at: Logical, parity: u64) -> Vec<(usize, u64)> {
    let stripes = chunk.stripes.len() as u64;
    let from = at.get() - chunk.start.get();
    let (number, within) = (from / chunk.stripe_len, from % chunk.stripe_len);
    let (row, column) = (number / (stripes - parity), number % (stripes - parity));
    let own = (row + column) % stripes;
    let place = |stripe: u64| {
        let stripe = &chunk.stripes[usize::try_from(stripe % stripes).unwrap()];
        let device = usize::try_from(stripe.dev.get() - 1).unwrap();
        (device, stripe.offset + row * chunk.stripe_len + within)
    };
    (0..stripes).map(|more| place(own + more)).collect()
}

/// Some addresses of leaves, in different rows.
fn some(volume: &Volume, leaves: impl IntoIterator<Item = Logical>) -> Vec<(Logical, Arc<Chunk>)> {
    let leaves = leaves.into_iter().map(|leaf| (leaf, volume.chunk_at(leaf).unwrap()));
    leaves.filter(|(_, chunk)| chunk.has_parity()).step_by(37).take(6).collect()
}

/// All sets of at most `most` of `count` numbers that contain the first.
fn sets_with_first(count: usize, most: usize) -> Vec<Vec<usize>> {
    let masks = (1..1_u32 << count).filter(|mask| mask & 1 == 1 && mask.count_ones() as usize <= most);
    masks.map(|mask| (0..count).filter(|bit| mask & (1 << bit) != 0).collect()).collect()
}

const SETS: [(&str, usize, usize); 5] =
    [("raid5", 2, 1), ("raid5", 3, 1), ("raid6", 3, 2), ("raid6", 4, 2), ("raid6", 5, 2)];

#[test]
fn rot_in_any_columns_is_rebuilt_as_far_as_the_parity_goes() {
    for (profile, count, parity) in SETS {
        let Some(devices) = made(profile, count) else { return };
        let whole = open_set(&devices);
        let leaves = read_everything(&whole);
        assert_eq!(whole.counters().parity_read_bytes, 0, "nothing is rebuilt in vain");
        for (leaf, chunk) in some(&whole, leaves) {
            let want = Expected::anything(leaf, &whole.superblock());
            let good = whole.read_tree_block(leaf, &want, Wait::Yes).unwrap();
            let row = row_of(&chunk, leaf, parity as u64);
            for rotten in sets_with_first(count, parity + 1) {
                let damaged: Vec<_> = devices
                    .iter()
                    .map(|device| Arc::new(MemoryDevice::copy_of(&**device).unwrap()))
                    .collect();
                for (number, stripe) in rotten.iter().enumerate() {
                    let (device, offset) = row[*stripe];
                    let rot = vec![0xa5 + u8::try_from(number).unwrap(); usize::try_from(NODE).unwrap()];
                    damaged[device].write_at(offset, &rot).unwrap();
                }
                let volume = open_set(&damaged);
                let read = volume.read_tree_block(leaf, &want, Wait::Yes);
                if rotten.len() > parity {
                    let error = read.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Unreadable, "{profile} {rotten:?}");
                    assert!(error.to_string().contains("rebuilt without device"), "{error}");
                    continue;
                }
                assert_eq!(
                    read.unwrap(),
                    good,
                    "{profile} on {count}, rot in {rotten:?} of the row of {leaf}"
                );
                let counters = volume.counters();
                assert_eq!(counters.mirror_fallbacks, 1);
                assert!(counters.parity_read_bytes >= NODE && counters.rebuilt_bytes >= NODE);
            }
        }
    }
}

#[test]
fn data_without_checksums_is_rebuilt_but_never_guessed() {
    for (profile, count, parity) in SETS {
        let Some(devices) = made(profile, count) else { return };
        let whole = open_set(&devices);
        let leaves = read_everything(&whole);
        let (at, chunk) = some(&whole, leaves).remove(0);
        let row = row_of(&chunk, at, parity as u64);
        let read = |volume: &Volume| {
            let mut out = vec![0; usize::try_from(NODE).unwrap()];
            volume.read_data(at, &mut out, &|_, _| Verdict::Unknown, Wait::Yes).map(|()| out)
        };
        let good = read(&whole).unwrap();
        // Rotten bytes are returned unchanged: without a checksum nothing shows the rot.
        let rotten: Vec<_> =
            devices.iter().map(|device| Arc::new(MemoryDevice::copy_of(&**device).unwrap())).collect();
        damage(&*rotten[row[0].0], row[0].1);
        let volume = open_set(&rotten);
        assert_eq!(read(&volume).unwrap()[1..], good[1..]);
        assert_eq!(volume.counters().parity_read_bytes, 0, "{profile}");
        // Unreadable stripes are rebuilt, whichever others are unreadable, as far as the parity allows.
        for broken in sets_with_first(count, parity + 1) {
            let set: Vec<_> = devices.iter().map(faulty::on).collect();
            let devices = set.iter().map(|device| Arc::clone(device) as Arc<dyn BlockDevice>);
            let volume = Volume::open(devices.collect::<DeviceSet>(), Mode::ReadOnly).unwrap();
            push_all_chunks(&volume);
            for stripe in &broken {
                let (device, offset) = row[*stripe];
                set[device].fail_reads(offset..offset + NODE);
            }
            match read(&volume) {
                Ok(bytes) => {
                    assert!(broken.len() <= parity, "{profile} {broken:?}");
                    assert_eq!(bytes, good, "{profile} {broken:?}");
                }
                Err(error) => assert!(broken.len() > parity, "{profile} {broken:?}: {error}"),
            }
        }
    }
}
