//! Tests of direct reads and writes.

mod answering;
mod at_once;
mod beside;
mod durable;
mod flight;
mod nowait;
mod reads;
mod refused;
mod scarce;
mod snapshots;
mod submitted;
mod submitted_reads;
mod times;
mod waiter;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::{Error, ErrorKind, Logical, Result, Wait};
use creamery_device::{AlignedBuffer, Hook, Request};

use super::{DirectAt, DirectPart};
use crate::data::tests::support::*;
use crate::data::{CloneRange, clone_range, extents_of};
use crate::fallocate::Fallocate;
use crate::filesystem::Filesystem;
use crate::inode::{Inode, InodeFlags};
use crate::names::NewInode;
use crate::open_file::OpenFile;
use crate::options::FsOptions;

const MIB: u64 = 1 << 20;
const IN_PLACE: InodeFlags = InodeFlags::NODATACOW.union(InodeFlags::NODATASUM);
const KINDS: [Kind; 3] = [Kind::DEFAULT, Kind::OLD, Kind("--mixed --nodesize 4096")];

/// Options under which each answered request waits until the test completes it.
fn queued() -> FsOptions {
    FsOptions { direct_ends_at_once: false, ..FsOptions::default() }
}

fn sectors(count: u64, byte: u8) -> Vec<u8> {
    vec![byte; usize::try_from(count * SECTOR).expect("small")]
}

/// A direct write, and its answer.
fn try_direct(file: &OpenFile, at: DirectAt, data: &[u8]) -> Result<DirectPart> {
    let done = file.write_direct(at, AlignedBuffer::from_slice(data));
    assert!(done.buffer[..] == *data, "DIRECT-2: the buffer comes back as it was");
    done.outcome
}

/// A direct write of all of `data`.
fn direct(file: &OpenFile, at: u64, data: &[u8]) {
    let part = try_direct(file, DirectAt::Offset(at), data).expect("room");
    assert_eq!(part, DirectPart { offset: at, len: data.len() });
}

fn content(file: &OpenFile) -> Vec<u8> {
    let size = file.stat(Wait::Yes).expect("it lives").size;
    let mut out = vec![0xaa; usize::try_from(size).expect("small")];
    assert_eq!(file.read_at(0, &mut out, Wait::Yes).expect("a read"), out.len());
    out
}

/// The address of each item's data.
fn places(inode: &Inode) -> Vec<Logical> {
    let extents = extents_of(inode).expect("a readable tree");
    extents.iter().map(|(_, extent)| extent.disk_bytenr + extent.offset).collect()
}

/// Bytes written in place, to new space, and how often a request went another way: misaligned, inline, compressed.
fn counted(file: &OpenFile) -> [u64; 5] {
    let counters = file.inode().context().counters().direct.counters();
    assert_eq!(counters.write_bytes, counters.in_place_bytes + counters.to_new_space_bytes);
    [
        counters.in_place_bytes,
        counters.to_new_space_bytes,
        counters.buffered_misaligned,
        counters.buffered_inline,
        counters.buffered_compressed,
    ]
}

/// Opens the file `name` of the root directory, with `flags` besides its own.
fn open_named(fixture: &Fixture, name: &str, flags: InodeFlags) -> OpenFile {
    let inode = Arc::new(fixture.named_delayed(name, 64 * MIB));
    set_flags(&inode, flags);
    opened(inode)
}

fn check(fixture: &Fixture, file: &OpenFile, wanted: &[u8], what: &str) {
    assert!(content(file) == wanted, "{what}");
    let inode = file.inode();
    inode.flush().expect("room");
    inode.write_overwritten_times().expect("room is kept");
    assert!(content(file) == wanted, "{what}");
    audit(fixture, inode, &inode.item(Wait::Yes).expect("it lives"));
}

/// Applies a write to the expected content, `wanted`.
fn put(wanted: &mut Vec<u8>, at: u64, data: &[u8]) {
    let at = usize::try_from(at).expect("small");
    wanted.resize(wanted.len().max(at + data.len()), 0);
    wanted[at..at + data.len()].copy_from_slice(data);
}

/// The kernel compares each sector with the checksum that was computed from the caller's buffer.
#[test]
fn direct_writes_go_to_new_space_with_checksums_that_linux_finds_right() {
    for kind in KINDS {
        let Some(fixture) = fixture(kind) else { return };
        let file = open_named(&fixture, "f0", InodeFlags::empty());
        let mut wanted = Vec::new();
        let mut write = |at: u64, data: Vec<u8>, what: &str| {
            direct(&file, at, &data);
            put(&mut wanted, at, &data);
            check(&fixture, &file, &wanted, what);
        };
        write(0, sectors(4, 1), "an empty file");
        write(SECTOR, sectors(2, 2), "over a part of an extent");
        write(4 * SECTOR, sectors(1, 3), "at the end");
        write(8 * SECTOR, sectors(2, 4), "behind a gap");
        write(6 * SECTOR, sectors(1, 5), "into a hole");
        write(5 * SECTOR, sectors(6, 6), "over all sorts, and beyond the end");
        assert_eq!(counted(&file), [0, 16 * SECTOR, 0, 0, 0]);
        file.fallocate(Fallocate::Allocate { keep_size: true }, 11 * SECTOR, 8 * SECTOR).expect("room");
        let at = *places(file.inode()).last().expect("prealloc");
        direct(&file, 11 * SECTOR, &sectors(2, 7));
        put(&mut wanted, 11 * SECTOR, &sectors(2, 7));
        check(&fixture, &file, &wanted, "into prealloc");
        assert!(places(file.inode()).contains(&at), "it is written where it was set aside");
        assert_eq!(counted(&file)[..2], [2 * SECTOR, 16 * SECTOR]);
        let end = try_direct(&file, DirectAt::End, &sectors(3, 8)).expect("room");
        assert_eq!(end, DirectPart { offset: 13 * SECTOR, len: 3 * SECTOR as usize });
        put(&mut wanted, 13 * SECTOR, &sectors(3, 8));
        check(&fixture, &file, &wanted, "behind the end");
        fixture.judge(|root| assert!(std::fs::read(root.join("f0")).expect("a read") == wanted));
    }
}

#[test]
fn what_is_overwritten_directly_in_place_stays_where_it_is() {
    for kind in KINDS {
        let Some(mut fixture) = fixture(kind) else { return };
        let file = open_named(&fixture, "f0", IN_PLACE);
        let mut wanted = sectors(40, 1);
        direct(&file, 0, &wanted);
        let (text, at) = (items(file.inode()), places(file.inode()));
        for (byte, (start, count)) in (2..).zip([(0, 1), (3, 37), (39, 1), (0, 40), (7, 2)]) {
            direct(&file, start * SECTOR, &sectors(count, byte));
            put(&mut wanted, start * SECTOR, &sectors(count, byte));
            assert_eq!((items(file.inode()), places(file.inode())), (text.clone(), at.clone()), "{byte}");
            check(&fixture, &file, &wanted, "in place");
        }
        assert_eq!(counted(&file), [81 * SECTOR, 40 * SECTOR, 0, 0, 0]);
        drop(file);
        fixture.reopen();
        assert_eq!(places(&fixture.named("f0")), at);
        fixture.judge(|root| assert!(std::fs::read(root.join("f0")).expect("a read") == wanted));
    }
}

/// A clone keeps the shared extents; between them the data stays in place.
#[test]
fn what_a_clone_has_is_written_directly_to_new_space() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (file, clone) = (open_named(&fixture, "f0", IN_PLACE), open_named(&fixture, "f1", IN_PLACE));
    for sector in 0..4 {
        direct(&file, sector * SECTOR, &sectors(1, 1));
    }
    let range = CloneRange { from: SECTOR, to: 0, len: SECTOR, keep_times: false };
    let source = file.inode().item(Wait::Yes).expect("it lives");
    let mut target = clone.inode().item(Wait::Yes).expect("it lives");
    clone_range(file.inode(), &source, &clone.inode().file(), &mut target, range, &mut 0).expect("room");
    let before = places(file.inode());
    direct(&file, 0, &sectors(4, 2));
    let after = places(file.inode());
    assert_eq!((after[0], after[2], after[3]), (before[0], before[2], before[3]));
    assert_ne!(after[1], before[1]);
    assert_eq!(counted(&file)[..2], [3 * SECTOR, 5 * SECTOR]);
    assert!(content(&clone) == sectors(1, 1), "a clone keeps what it had");
    fixture.judge(|root| {
        assert!(std::fs::read(root.join("f0")).expect("a read") == sectors(4, 2));
        assert!(std::fs::read(root.join("f1")).expect("a read") == sectors(1, 1));
    });
}

/// In the end everything is as after any other write, and on the device.
#[test]
fn what_cannot_be_written_directly_goes_through_memory_to_the_device() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = open_named(&fixture, "f0", InodeFlags::empty());
    let mut wanted = Vec::new();
    let mut write = |at: DirectAt, data: &[u8], counts: [u64; 5]| {
        let part = try_direct(&file, at, data).expect("room");
        put(&mut wanted, part.offset, data);
        assert_eq!((part.len, file.inode().file().delalloc().bytes()), (data.len(), 0), "{at:?}");
        assert_eq!(counted(&file), counts, "{at:?}");
        check(&fixture, &file, &wanted, "through memory");
    };
    write(DirectAt::Offset(0), &[1; 100], [0, 0, 1, 0, 0]);
    assert_eq!(items(file.inode()), "0+1 inline 100");
    write(DirectAt::End, &sectors(1, 2), [0, 0, 2, 0, 0]);
    assert_eq!(file.stat(Wait::Yes).expect("it lives").size, SECTOR + 100);
    write(DirectAt::Offset(10), &sectors(1, 3), [0, 0, 3, 0, 0]);
    write(DirectAt::Offset(SECTOR), &[4; 5000], [0, 0, 4, 0, 0]);
    write(DirectAt::Offset(2 * SECTOR), &sectors(1, 5), [0, SECTOR, 4, 0, 0]);
    drop(file);
    // Over inline data; the part behind it moves to a sector of its own.
    let file = open_named(&fixture, "f1", InodeFlags::empty());
    let small = |file: &OpenFile| {
        file.write_at(0, b"small").expect("room");
        file.sync().expect("room");
        assert_eq!(items(file.inode()), "0+1 inline 5");
    };
    small(&file);
    direct(&file, 2 * SECTOR, &sectors(1, 6));
    assert_eq!((items(file.inode()).as_str(), counted(&file)), ("0+1 a@0, 2+1 b@0", [0, SECTOR, 0, 0, 0]));
    let file = open_named(&fixture, "f2", InodeFlags::empty());
    small(&file);
    direct(&file, 0, &sectors(2, 7));
    assert_eq!(counted(&file), [0, 0, 0, 1, 0]);
    fixture.judge(|root| {
        let read = |name: &str| std::fs::read(root.join(name)).expect("a read");
        assert!(read("f0") == wanted && read("f2") == sectors(2, 7));
        assert!(read("f1").starts_with(b"small\0") && read("f1").ends_with(&sectors(1, 6)));
    });
}

/// A direct write to a file marked for compression stays uncompressed. One over compressed data goes through memory.
#[test]
fn direct_writes_are_not_compressed() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let compress = Some(crate::Compress { method: "zstd".parse().expect("one of three"), force: true });
    let options = FsOptions { compress, ..FsOptions::default() };
    let fs = Filesystem::open(Arc::clone(&fixture.engine), options).expect("it opens");
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let (_, file) = fs.create_open(root, b"packed", &NewInode::file(0o644)).expect("room");
    direct(&file, 0, &sectors(32, 1));
    assert_eq!((items(file.inode()).as_str(), counted(&file)[1]), ("0+32 a@0", 32 * SECTOR));
    file.write_at(0, &sectors(32, 2)).expect("room");
    file.inode().flush().expect("room");
    assert_eq!(items(file.inode()), "0+32 az@0");
    direct(&file, 4 * SECTOR, &sectors(4, 3));
    assert_eq!(counted(&file), [0, 32 * SECTOR, 0, 0, 1]);
    let text = items(file.inode());
    assert!(text.split(", ").all(|item| item.contains('z')), "what goes through memory is packed: {text}");
    let mut wanted = sectors(32, 2);
    put(&mut wanted, 4 * SECTOR, &sectors(4, 3));
    check(&fixture, &file, &wanted, "compressed");
    fs.close(file);
    fs.shut_down().expect("it closes");
    fixture.judge(|root| assert!(std::fs::read(root.join("packed")).expect("a read") == wanted));
}

#[test]
fn what_was_delayed_before_a_direct_write_does_not_come_back() {
    for flags in [InodeFlags::empty(), IN_PLACE] {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let file = open_named(&fixture, "f0", flags);
        let mut wanted = sectors(8, 1);
        file.write_at(0, &wanted).expect("room");
        // It grows the file, so that all of it is written back; from then on only the touched runs are.
        direct(&file, SECTOR, &sectors(2, 2));
        put(&mut wanted, SECTOR, &sectors(2, 2));
        check(&fixture, &file, &wanted, "over what grows the file");
        file.write_at(6 * SECTOR, &sectors(1, 3)).expect("room");
        put(&mut wanted, 6 * SECTOR, &sectors(1, 3));
        direct(&file, SECTOR, &sectors(1, 4));
        put(&mut wanted, SECTOR, &sectors(1, 4));
        assert_eq!(file.inode().file().delalloc().bytes(), SECTOR, "what is elsewhere stays delayed");
        assert!(content(&file) == wanted);
        file.write_at(SECTOR + 5, &[5; 100]).expect("room");
        direct(&file, SECTOR, &sectors(1, 6));
        put(&mut wanted, SECTOR, &sectors(1, 6));
        assert_eq!(file.inode().file().delalloc().bytes(), SECTOR, "what is elsewhere still stays delayed");
        // A run is written back as a whole, also where it begins before.
        for at in [SECTOR, 2 * SECTOR, 3 * SECTOR] {
            file.write_at(at, &sectors(1, 8)).expect("room");
            put(&mut wanted, at, &sectors(1, 8));
        }
        direct(&file, 3 * SECTOR, &sectors(1, 9));
        put(&mut wanted, 3 * SECTOR, &sectors(1, 9));
        assert_eq!(file.inode().file().delalloc().bytes(), SECTOR, "of one run nothing is left");
        direct(&file, 5 * SECTOR, &sectors(2, 10));
        put(&mut wanted, 5 * SECTOR, &sectors(2, 10));
        assert_eq!(file.inode().file().delalloc().bytes(), 0);
        file.write_at(SECTOR + 5, &[7; 100]).expect("room");
        put(&mut wanted, SECTOR + 5, &[7; 100]);
        check(&fixture, &file, &wanted, "a write behind a direct one");
        fixture.judge(|root| assert!(std::fs::read(root.join("f0")).expect("a read") == wanted));
    }
}

/// Writing in place needs no space, and a write that finds a part of the space is short.
#[test]
fn a_full_filesystem_takes_direct_writes_in_place() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (file, filler) =
        (open_named(&fixture, "f0", IN_PLACE), open_named(&fixture, "f1", InodeFlags::empty()));
    direct(&file, 0, &sectors(1024, 1));
    let chunk = sectors(2048, 5);
    let (mut short, mut size) = (0, 0);
    let error = loop {
        match try_direct(&filler, DirectAt::End, &chunk) {
            Ok(part) => {
                assert_eq!(part.offset, size);
                size += part.len as u64;
                short += u32::from(part.len < chunk.len());
            }
            Err(error) => break error,
        }
    };
    assert_eq!((error.kind(), short), (ErrorKind::NoSpace, 1), "{error}");
    assert_eq!(filler.stat(Wait::Yes).expect("it lives").size, size);
    for at in 0..16 {
        direct(&file, at * 64 * SECTOR, &sectors(64, 6));
    }
    assert!(content(&file) == sectors(1024, 6));
    fixture.judge(|root| assert!(std::fs::read(root.join("f0")).expect("a read") == sectors(1024, 6)));
}

/// Fails writes of marked data.
#[derive(Default)]
struct FailsMarked(AtomicBool);

const MARK: u8 = 0xee;

impl Hook for FailsMarked {
    fn before(&self, request: &Request) -> Result<()> {
        match request {
            Request::Write { data, .. }
                if self.0.load(Ordering::Acquire) && data.iter().flatten().all(|byte| *byte == MARK) =>
            {
                Err(Error::new(ErrorKind::Io, "the device fails"))
            }
            _ => Ok(()),
        }
    }
}

/// A write through memory writes back all of the file, and shares its errors.
#[test]
fn what_is_lost_on_the_way_through_memory_is_told_to_each_opener_once() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (engine, device) = fixture.behind(FailsMarked::default());
    let inode = Arc::new(new_delayed_file(&engine, 300, InodeFlags::empty(), 64 * MIB));
    let [file, other] = [(); 2].map(|()| opened(Arc::clone(&inode)));
    direct(&file, 0, &sectors(8, MARK));
    for delayed in [false, true] {
        if delayed {
            other.write_at(5 * SECTOR, &sectors(1, MARK)).expect("it is in memory");
        }
        // Its own data fails, and then another writer's.
        let byte = if delayed { 1 } else { MARK };
        device.0.store(true, Ordering::Release);
        let error = try_direct(&file, DirectAt::Offset(SECTOR + 1), &[byte; 5000]).expect_err("it fails");
        device.0.store(false, Ordering::Release);
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        file.sync().expect("it was told with the answer");
        assert_eq!(other.sync().map_err(|error| error.kind()), Err(ErrorKind::Io));
        other.sync().expect("it was told");
    }
    let mut wanted = sectors(8, MARK);
    put(&mut wanted, SECTOR + 1, &[1; 5000]);
    assert!(content(&file) == wanted);
    audit(&engine, &inode, &inode.item(Wait::Yes).expect("it lives"));
}

#[test]
fn a_device_that_fails_is_told_to_the_writer_and_to_nobody_else() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (engine, device) = fixture.behind(FailsMarked::default());
    let inode = Arc::new(new_delayed_file(&engine, 300, InodeFlags::empty(), 64 * MIB));
    let [file, other] = [(); 2].map(|()| opened(Arc::clone(&inode)));
    direct(&file, 0, &sectors(8, 1));
    engine.commit().expect("a commit");
    let used = engine.space().data_used;
    device.0.store(true, Ordering::Release);
    for at in [DirectAt::Offset(SECTOR), DirectAt::End] {
        let error = try_direct(&file, at, &sectors(2, MARK)).expect_err("the device fails");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    }
    for opener in [&file, &other] {
        opener.sync().expect("it is none of its business");
    }
    assert!(content(&other) == sectors(8, 1), "the file is as if nobody had written");
    engine.commit().expect("nothing was aborted");
    assert_eq!(engine.space().data_used, used, "the space of what failed is back");
    // Data that was delayed before is lost, and its openers get the error; the write goes on.
    other.write_at(SECTOR, &sectors(2, MARK)).expect("it is in memory");
    direct(&file, 2 * SECTOR, &sectors(1, 2));
    assert_eq!(other.sync().map_err(|error| error.kind()), Err(ErrorKind::Io));
    let mut wanted = sectors(8, 1);
    put(&mut wanted, 2 * SECTOR, &sectors(1, 2));
    assert!(content(&file) == wanted);
    // Through memory the error is the writer's, too.
    let error = try_direct(&file, DirectAt::Offset(SECTOR + 1), &[MARK; 5000]);
    assert!(error.is_ok() || error.is_err_and(|error| error.kind() == ErrorKind::Io));
    audit(&engine, &inode, &inode.item(Wait::Yes).expect("it lives"));
}
