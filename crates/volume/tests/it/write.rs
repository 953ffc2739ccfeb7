//! Writes reach every copy, in few requests, and no block is written that a reader would not accept.

use std::sync::Arc;

use creamery_base::{ErrorKind, Generation, Logical, ObjectId, TreeId, Wait};
use creamery_device::{AlignedBuffer, BlockDevice, MemoryDevice};
use creamery_format::{BlockGroupFlags, BlockMut, Expected, Key, KeyType, NewBlock, RawInodeItem, seal};
use creamery_volume::{Mode, Volume, WriteBatch};
use zerocopy::IntoBytes;

use crate::faulty::{self, Event, Faulty};
use crate::images::*;

const NODE: u64 = 16384;

/// A DUP image behind a device that notes its requests.
fn dup() -> Option<(Arc<MemoryDevice>, Arc<Faulty>, Volume)> {
    let device = btrfs(&["-m", "dup", "-d", "dup"])?;
    let faulty = faulty::on(&device);
    let volume = Volume::open(vec![Arc::clone(&faulty) as Arc<dyn BlockDevice>], Mode::ReadWrite).unwrap();
    push_all_chunks(&volume);
    Some((device, faulty, volume))
}

/// Returns the address of the second half of the metadata chunk, which is free in a fresh image, and its places in both copies.
fn free_metadata(volume: &Volume) -> (Logical, [u64; 2]) {
    let chunk = chunk_of(volume, BlockGroupFlags::METADATA);
    let half = chunk.len / 2;
    (chunk.start + half, [chunk.stripes[0].offset + half, chunk.stripes[1].offset + half])
}

/// Makes a root for that address.
fn block(volume: &Volume, at: Logical) -> Vec<u8> {
    block_with(volume, at, Key::MIN, 100)
}

/// Makes a root with one item, all of it zeros.
fn block_with(volume: &Volume, at: Logical, key: Key, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; volume.node_size() as usize];
    let new = NewBlock {
        logical: at,
        generation: Generation::new(100),
        owner: TreeId::FS,
        level: 0,
        fsid: volume.metadata_uuid(),
        chunk_tree_uuid: creamery_base::Uuid::nil(),
    };
    let mut block = BlockMut::init(&mut bytes, &new);
    block.insert_items(0, &[(key, len)]);
    block.mark_written();
    seal(&mut bytes, volume.checksum_type());
    bytes
}

fn blocks(volume: &Volume, at: &[Logical]) -> Vec<(Logical, Vec<u8>)> {
    at.iter().map(|&at| (at, block(volume, at))).collect()
}

fn batch(blocks: &[(Logical, Vec<u8>)]) -> WriteBatch {
    let mut batch = WriteBatch::default();
    blocks.iter().for_each(|(at, bytes)| batch.add_tree_block(*at, AlignedBuffer::from_slice(bytes).into()));
    batch
}

fn reads_back(volume: &Volume, blocks: &[(Logical, Vec<u8>)]) {
    for (at, bytes) in blocks {
        let want = Expected {
            logical: *at,
            level: Some(0),
            generation: Some(Generation::new(100)),
            owner: Some(TreeId::FS),
            ..root_root(volume)
        };
        assert_eq!(volume.read_tree_block(*at, &want, Wait::Yes).unwrap()[..], bytes[..]);
    }
}

#[test]
fn adjacent_blocks_given_in_any_order_become_one_request_for_each_copy() {
    let Some((_, faulty, volume)) = dup() else { return };
    let (at, places) = free_metadata(&volume);
    let order = [3, 0, 2, 1, 9].map(|number| at + number * NODE);
    let blocks = blocks(&volume, &order);
    let written = volume.write(batch(&blocks)).unwrap();
    assert!(written.failures().is_empty());
    let request = |offset, len| Event::Write { offset, len };
    let expected = places.map(|place| [request(place, 4 * NODE), request(place + 9 * NODE, NODE)]).concat();
    assert_eq!(faulty.take_events(), expected);
    reads_back(&volume, &blocks);
    let counters = volume.counters();
    assert_eq!((counters.tree_block_writes, counters.writes, counters.write_bytes), (5, 4, 10 * NODE));
}

#[test]
fn a_large_batch_is_written_by_two_threads_and_complete() {
    let Some((device, _, volume)) = dup() else { return };
    let (at, places) = free_metadata(&volume);
    let all: Vec<Logical> = (0..400).map(|number| at + number * NODE).collect();
    let blocks = blocks(&volume, &all);
    let written = volume.write(batch(&blocks)).unwrap();
    let _durable = volume.flush(written).unwrap();
    reads_back(&volume, &blocks);
    let whole = blocks.iter().flat_map(|(_, bytes)| bytes).copied().collect::<Vec<u8>>();
    assert!(places.iter().all(|&place| bytes_at(&*device, place, whole.len()) == whole));
}

#[test]
fn leaves_that_linux_does_not_take_are_neither_read_for_writing_nor_written() {
    let Some((device, _, volume)) = dup() else { return };
    let (at, places) = free_metadata(&volume);
    // Future transactions: that of the inode is after that of the leaf.
    let key = Key::new(ObjectId::FIRST_FREE, KeyType::INODE_ITEM, 0);
    let mut bytes = block_with(&volume, at, key, RawInodeItem::LEN);
    let mut leaf = BlockMut::new(&mut bytes);
    let inode = RawInodeItem { transid: 101.into(), mode: 0o040_755.into(), ..Default::default() };
    leaf.data_mut(0).copy_from_slice(inode.as_bytes());
    seal(&mut bytes, volume.checksum_type());
    let error = volume.write(batch(&[(at, bytes.clone())])).unwrap_err();
    assert!(error.to_string().contains("transid of an inode"), "{error}");
    // Another program has written it.
    places.iter().for_each(|&place| device.write_at(place, &bytes).unwrap());
    let want = Expected { generation: None, owner: None, logical: at, ..root_root(&volume) };
    let error = read(&volume, &want).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreadable);
    assert!(error.to_string().contains("transid of an inode"), "{error}");
    assert!(volume.read_tree_blocks(&[want])[0].is_none(), "nor is it read ahead");
    let reading = Volume::open(vec![device as Arc<dyn BlockDevice>], Mode::ReadOnly).unwrap();
    push_all_chunks(&reading);
    assert_eq!(read(&reading, &want).unwrap()[..], bytes[..], "who only reads takes it");
}

#[test]
fn a_block_that_no_reader_would_accept_stops_the_whole_batch() {
    let Some((_, faulty, volume)) = dup() else { return };
    let (at, _) = free_metadata(&volume);
    for count in [2, 200] {
        let all: Vec<Logical> = (0..count).map(|number| at + number * NODE).collect();
        let mut blocks = blocks(&volume, &all);
        let last = blocks.last_mut().unwrap();
        last.1[5000] ^= 1;
        let error = volume.write(batch(&blocks)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let words = format!("about to write the tree block at logical {}", all.last().unwrap());
        assert!(error.to_string().contains(&words), "{error}");
    }
    // Valid, but for another place.
    let misplaced = block(&volume, at + NODE);
    assert!(volume.write(batch(&[(at, misplaced)])).is_err());
    assert_eq!(faulty.take_events(), []);
}

#[test]
fn one_copy_that_cannot_be_written_is_reported_and_two_are_an_error() {
    let Some((_, faulty, volume)) = dup() else { return };
    let (at, places) = free_metadata(&volume);
    let blocks = blocks(&volume, &[at, at + NODE]);
    faulty.fail_writes(places[0]..places[0] + 1);
    let written = volume.write(batch(&blocks)).unwrap();
    let failures: Vec<(u64, u64)> =
        written.failures().iter().map(|it| (it.piece.at.offset, it.piece.len)).collect();
    assert_eq!(failures, [(places[0], 2 * NODE)]);
    reads_back(&volume, &blocks);
    assert_eq!(volume.counters().write_failures, 1);

    faulty.fail_writes(places[1] + NODE..places[1] + NODE + 1);
    let error = volume.write(batch(&blocks)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("reached no device"), "{error}");
}

#[test]
fn data_goes_to_all_copies_and_fails_only_when_none_was_written() {
    let Some((device, faulty, volume)) = dup() else { return };
    let chunk = chunk_of(&volume, BlockGroupFlags::DATA);
    let places = [chunk.stripes[0].offset, chunk.stripes[1].offset];
    let data = vec![0x5a; 64 << 10];
    let _written = volume.write_data(chunk.start, &data).unwrap();
    assert!(places.iter().all(|&place| bytes_at(&*device, place, data.len()) == data));
    faulty.fail_writes(places[1]..places[1] + 1);
    let written = volume.write_data(chunk.start, &data).unwrap();
    let missed: Vec<(u64, u64)> =
        written.failures().iter().map(|it| (it.piece.at.offset, it.piece.len)).collect();
    assert_eq!(missed, [(places[1], data.len() as u64)]);
    faulty.fail_writes(places[0]..places[0] + 1);
    let error = volume.write_data(chunk.start, &data).unwrap_err();
    assert!(error.to_string().contains(&format!("writing data at logical {}", chunk.start)), "{error}");
    let beyond = volume.write_data(chunk.end(), &data).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::Corrupt);
}

#[test]
fn discarding_reaches_all_copies() {
    let Some((device, faulty, volume)) = dup() else { return };
    let chunk = chunk_of(&volume, BlockGroupFlags::DATA);
    let _written = volume.write_data(chunk.start, &vec![1; 1 << 20]).unwrap();
    faulty.take_events();
    volume.discard(chunk.start, 1 << 20).unwrap();
    let places = [chunk.stripes[0].offset, chunk.stripes[1].offset];
    assert_eq!(faulty.take_events(), places.map(|offset| Event::Discard { offset, len: 1 << 20 }));
    assert!(places.iter().all(|&place| bytes_at(&*device, place, 1 << 20) == vec![0; 1 << 20]));
    assert_eq!(volume.counters().discarded_bytes, 2 << 20);
}

#[test]
fn a_volume_open_for_reading_refuses_every_change() {
    let Some(device) = btrfs(&["-m", "dup", "-d", "dup"]) else { return };
    let faulty = faulty::on(&device);
    let volume = Volume::open(vec![Arc::clone(&faulty) as Arc<dyn BlockDevice>], Mode::ReadOnly).unwrap();
    push_all_chunks(&volume);
    let (at, _) = free_metadata(&volume);
    let bytes = block(&volume, at);
    let durable = volume.flush(volume.nothing_written()).unwrap();
    let mut superblock = volume.superblock();
    let errors = [
        volume.write(batch(&[(at, bytes.clone())])).unwrap_err(),
        volume.write_data(at, &bytes).unwrap_err(),
        volume.discard(at, NODE).unwrap_err(),
        volume.publish(&mut superblock, durable).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::ReadOnly));
    volume.close().unwrap();
    assert_eq!(faulty.take_events(), [Event::Flush]);
}

#[test]
fn chunks_are_added_found_and_taken_out() {
    let Some((_, _, volume)) = dup() else { return };
    let last = Arc::clone(volume.chunks().last().unwrap());
    let mut next = (*last).clone();
    next.start = last.end();
    volume.push_chunk(next.clone()).unwrap();
    assert_eq!(*volume.chunk_at(last.end()).unwrap(), next);
    assert_eq!(*volume.chunk_at(Logical::new(next.end().get() - 1)).unwrap(), next);
    assert!(volume.chunk_at(next.end()).is_none());
    volume.push_chunk(next.clone()).unwrap();
    let count = volume.chunks().len();

    let mut overlapping = next.clone();
    overlapping.start = Logical::new(next.start.get() + 4096);
    let mut different = next.clone();
    different.flags = BlockGroupFlags::DATA | BlockGroupFlags::DUP;
    different.stripes.swap(0, 1);
    let mut outside = next.clone();
    outside.start = next.end();
    outside.stripes[1].offset = 256 << 20;
    let mut foreign = outside.clone();
    foreign.stripes[1] =
        creamery_volume::Stripe { dev_uuid: creamery_base::Uuid::nil(), ..next.stripes[1].clone() };
    for (chunk, words) in [
        (overlapping, "overlaps"),
        (different, "overlaps"),
        (outside, "ends beyond"),
        (foreign, "wrong device uuid"),
    ] {
        let error = volume.push_chunk(chunk).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(volume.chunks().len(), count);
    }
    assert_eq!(*volume.remove_chunk(next.start).unwrap(), next);
    assert!(volume.chunk_at(next.start).is_none());
    assert!(volume.remove_chunk(next.start).is_none());
}
