//! A volume that is open for writing and has no changes leaves its devices unchanged.

use std::sync::Arc;

use creamery_base::ErrorKind;
use creamery_device::{BlockDevice, MemoryDevice};
use creamery_format::BlockGroupFlags;
use creamery_volume::{Mode, Volume};

use crate::faulty::{self, Event, Faulty};
use crate::images::*;

fn dup() -> Option<(Arc<MemoryDevice>, Arc<Faulty>, Volume)> {
    let device = btrfs(&["-m", "dup"])?;
    let faulty = faulty::on(&device);
    let volume = Volume::open(vec![Arc::clone(&faulty) as Arc<dyn BlockDevice>], Mode::ReadWrite).unwrap();
    volume.decide_repairs(true);
    push_all_chunks(&volume);
    Some((device, faulty, volume))
}

/// A commit that changes nothing but its generation.
fn commit(volume: &Volume) {
    let mut superblock = volume.superblock();
    let durable = volume.flush(volume.nothing_written()).unwrap();
    let published = volume.publish(&mut superblock, durable).unwrap();
    let _committed = volume.finish(published).unwrap();
}

#[test]
fn an_untouched_volume_writes_nothing() {
    let Some((device, faulty, volume)) = dup() else { return };
    let root = root_root(&volume);
    let place = volume.map(root.logical, u64::from(volume.node_size())).unwrap().mirrors()[0][0].at.offset;
    let good = bytes_at(&*device, place, 16384);
    damage(&*device, place + 300);
    read(&volume, &root).unwrap();
    {
        let _hold = volume.hold_writes();
        commit(&volume);
    }
    assert!(volume.is_untouched());
    assert_eq!(faulty.take_events(), [], "UNTOUCHED-1");
    assert_eq!(volume.counters().repaired, 0, "it is mended in memory only");

    let at = chunk_of(&volume, BlockGroupFlags::DATA).start;
    let _written = volume.write_data(at, &[1; 4096]).unwrap();
    let events = faulty.take_events();
    let copy = |offset| Event::Write { offset, len: 4096 };
    assert_eq!(events[0], Event::Write { offset: place, len: 16384 }, "UNTOUCHED-2");
    let rest = [copy(65536), Event::Flush, copy(64 << 20)];
    let superblocks: Vec<_> = events.iter().filter(|event| rest.contains(event)).cloned().collect();
    assert!(superblocks.ends_with(&rest), "{events:?}");
    assert!(matches!(events.last(), Some(Event::Write { len: 4096, .. })), "{events:?}");
    assert_eq!((bytes_at(&*device, place, 16384), volume.counters().repaired), (good, 1));
    assert!(!volume.is_untouched());
}

#[test]
fn a_discard_comes_behind_what_is_held() {
    let Some((_, faulty, volume)) = dup() else { return };
    let at = chunk_of(&volume, BlockGroupFlags::DATA).start;
    {
        let _hold = volume.hold_writes();
        commit(&volume);
        assert_eq!(volume.discard(at, 4096).unwrap(), 0, "UNTOUCHED-3");
    }
    assert_eq!(faulty.take_events(), []);
    let _discarded = volume.discard(at, 4096).map_err(|error| error.kind()).or_else(|kind| match kind {
        ErrorKind::Unsupported => Ok(0),
        kind => Err(kind),
    });
    let events = faulty.take_events();
    assert!(events.contains(&Event::Write { offset: 65536, len: 4096 }), "UNTOUCHED-3: {events:?}");
}
