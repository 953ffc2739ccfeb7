//! Random operations on a file, beside a plain vector of bytes with a note of which sectors have data.

use std::sync::atomic::Ordering;

use creamery_base::Wait;
use creamery_codec::ChecksumType;
use creamery_txn::Engine;

use super::support::{Kind, Random, audit, engine, new_file};
use crate::data::{Want, drop_all, read, seek, truncate, write};
use crate::inode::{Inode, InodeFlags, InodeItem};

struct Model {
    bytes: Vec<u8>,
    data: Vec<bool>,
}

fn sectors(n: u64) -> usize {
    n.div_ceil(4096) as usize
}

fn check(engine: &Engine, inode: &Inode, item: &InodeItem, model: &Model, random: &mut Random) {
    assert_eq!(item.size, model.bytes.len() as u64);
    for whole in [true, false] {
        let (at, len) =
            if whole { (0, item.size + 10) } else { (random.below(item.size + 5000), random.below(50_000)) };
        let mut out = vec![0xaa; len as usize];
        let n = read(engine, inode, item, at, &mut out, Wait::Yes).unwrap();
        let want =
            &model.bytes[(at as usize).min(model.bytes.len())..((at + len) as usize).min(model.bytes.len())];
        assert_eq!(n, want.len());
        assert!(&out[..n] == want, "content differs at {at} len {len}");
    }
    for _ in 0..4 {
        let at = random.below(item.size + 4096);
        for want in [Want::Data, Want::Hole] {
            let expected = if at >= item.size {
                None
            } else {
                let mut p = at;
                loop {
                    if p >= item.size {
                        break if want == Want::Hole { Some(item.size) } else { None };
                    }
                    if model.data[(p / 4096) as usize] == (want == Want::Data) {
                        break Some(p);
                    }
                    p = (p / 4096 + 1) * 4096;
                }
            };
            assert_eq!(seek(engine, inode, item, at, want).unwrap(), expected, "seek {want:?} {at}");
        }
    }
}

fn run(seed: u64, no_holes: bool, kind: ChecksumType, fragment: u64, flags: InodeFlags) {
    let engine = engine(Kind { no_holes, checksum: kind });
    engine.fragment.store(fragment, Ordering::Relaxed);
    let mut random = Random(seed);
    let inode = new_file(&engine, 257, flags);
    let mut item = inode.item.write();
    let mut model = Model { bytes: Vec::new(), data: Vec::new() };
    let scale = [3000, 20_000, 400_000][(seed % 3) as usize];
    for step in 0..60 {
        let size = item.size;
        match random.below(10) {
            0..6 => {
                let at = match random.below(4) {
                    0 => size,
                    1 => random.below(scale) & !4095,
                    _ => random.below(scale),
                };
                let len = match random.below(3) {
                    0 => random.below(200) + 1,
                    1 => random.below(scale) + 1,
                    _ => (random.below(scale / 4096 + 1) + 1) * 4096,
                };
                let data: Vec<u8> =
                    (0..len).map(|i| (i as u8).wrapping_mul(7).wrapping_add(step as u8) | 1).collect();
                let n = write(&engine, &inode, &mut item, at, &data).unwrap();
                assert_eq!(n, data.len());
                let end = (at + len) as usize;
                if model.bytes.len() < end {
                    model.bytes.resize(end, 0);
                }
                model.bytes[at as usize..end].copy_from_slice(&data);
                model.data.resize(sectors(model.bytes.len() as u64), false);
                model.data[(at / 4096) as usize..sectors(end as u64)].fill(true);
            }
            6..9 => {
                let to = match random.below(3) {
                    0 => random.below(size + 1),
                    1 => random.below(scale * 2),
                    _ => random.below(scale) & !4095,
                };
                truncate(&engine, &inode, &mut item, to).unwrap();
                model.bytes.resize(to as usize, 0);
                model.data.resize(sectors(to), false);
            }
            _ => engine.commit().unwrap(),
        }
        check(&engine, &inode, &item, &model, &mut random);
        audit(&engine, &inode, &item);
        assert_eq!(*engine.aborted.lock(), None);
    }
    drop_all(&engine, &inode, &mut item).unwrap();
    let state = engine.state.lock();
    assert!(state.extents.is_empty() && state.csums.is_empty() && state.held.is_empty());
    assert_eq!((item.size, item.nbytes), (0, 0));
    assert_eq!(inode.tree.items.read().len(), 1);
}

#[test]
fn random_changes_read_back_as_a_vector_of_bytes() {
    for seed in 0..60 {
        println!("seed {seed}");
        let fragment = [0, 4096, 16384][(seed / 3 % 3) as usize];
        let flags = if seed % 7 == 0 { InodeFlags::NODATASUM } else { InodeFlags::empty() };
        run(seed, seed % 2 == 0, ChecksumType::Crc32c, fragment, flags);
    }
}
