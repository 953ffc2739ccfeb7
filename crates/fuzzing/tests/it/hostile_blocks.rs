//! Real blocks with random damage and a right checksum: with any content, checking, reading and printing them ends, and never panics.

use creamery_base::{Generation, Uuid};
use creamery_codec::ChecksumType;
use creamery_format::dump::{self, DumpContext};
use creamery_format::{BlockRef, Expected, Key, SUPERBLOCK_LEN, Superblock, seal, verify_block};
use creamery_fuzzing::{believing, use_block};

const BLOCKS: &[u8] = include_bytes!("../data/blocks.bin");
const BLOCK: usize = 4096;
const ROUNDS: usize = 20_000;

/// A small generator with a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }

    /// Overwrites a few places, more often near the front, where lengths and counts are.
    fn damage(&mut self, bytes: &mut [u8]) {
        for _ in 0..=self.below(4) {
            let near = [102, 200, 600, bytes.len()][self.below(4)];
            let at = 32 + self.below(near - 32);
            let value = [0, 1, 0x7f, 0x80, 0xff, self.next() as u8][self.below(6)];
            let end = (at + [1, 1, 2, 4, 8][self.below(5)]).min(bytes.len());
            bytes[at..end].fill(value);
        }
    }
}

#[test]
fn real_blocks_pass_undamaged() {
    let blocks = &BLOCKS[..BLOCKS.len() - SUPERBLOCK_LEN];
    for bytes in blocks.chunks_exact(BLOCK) {
        assert_eq!(verify_block(bytes, &believing(bytes)), Ok(()));
        use_block(BlockRef::new(bytes));
    }
    let superblock = &BLOCKS[BLOCKS.len() - SUPERBLOCK_LEN..];
    assert_eq!(Superblock::from_bytes(superblock, 65536).map(|found| found.fsid().is_nil()), Ok(false));
}

#[test]
fn damaged_blocks_never_panic() {
    let mut random = Random(0x5eed);
    let blocks: Vec<&[u8]> = BLOCKS[..BLOCKS.len() - SUPERBLOCK_LEN].chunks_exact(BLOCK).collect();
    let (mut passed, mut refused) = (0, 0);
    for _ in 0..ROUNDS {
        let mut bytes = blocks[random.below(blocks.len())].to_vec();
        random.damage(&mut bytes);
        seal(&mut bytes, ChecksumType::Crc32c);
        match verify_block(&bytes, &believing(&bytes)) {
            Ok(()) => {
                passed += 1;
                use_block(BlockRef::new(&bytes));
            }
            Err(damage) => {
                refused += 1;
                assert!(damage.to_string().starts_with("corrupt "), "{damage}");
            }
        }
        let mut text = String::new();
        dump::block(&mut text, BlockRef::new(&bytes), &DumpContext::default())
            .expect("strings take everything");
        assert!(text.len() < 1 << 20, "printing ends");
    }
    assert!(
        passed > ROUNDS / 20,
        "{passed} of {ROUNDS} passed: the damage is too coarse to reach the readers"
    );
    assert!(refused > ROUNDS / 20, "{refused} of {ROUNDS} were refused: the checks see nothing");
}

#[test]
fn noise_is_refused_and_printed() {
    let mut random = Random(7);
    for round in 0..500 {
        let mut bytes: Vec<u8> = (0..BLOCK).map(|_| random.next() as u8).collect();
        if round % 2 == 0 {
            bytes[100] = 0;
            bytes[96..100].copy_from_slice(&40_u32.to_le_bytes());
        }
        seal(&mut bytes, ChecksumType::Crc32c);
        let want = Expected { generation: Some(Generation::new(1)), fsid: Uuid::nil(), ..believing(&bytes) };
        verify_block(&bytes, &want).expect_err("noise is no block");
        verify_block(&bytes, &believing(&bytes)).expect_err("noise is no block");
        let mut text = String::new();
        dump::block(&mut text, BlockRef::new(&bytes), &DumpContext::default())
            .expect("strings take everything");
    }
}

#[test]
fn damaged_superblocks_never_panic() {
    let mut random = Random(11);
    let good = &BLOCKS[BLOCKS.len() - SUPERBLOCK_LEN..];
    let mut passed = 0;
    for _ in 0..ROUNDS / 2 {
        let mut bytes = good.to_vec();
        random.damage(&mut bytes);
        let system_chunks = 811 + random.below(150);
        bytes[system_chunks] = random.next() as u8;
        seal(&mut bytes, ChecksumType::Crc32c);
        if let Ok(superblock) = Superblock::from_bytes(&bytes, 65536) {
            passed += 1;
            assert!(superblock.sys_chunks().all(|entry| entry.is_ok()), "system chunks were checked");
            assert_eq!(superblock.to_bytes(65536), bytes);
        }
        let raw = zerocopy::FromBytes::ref_from_bytes(&bytes).expect("a superblock's length");
        let mut text = String::new();
        dump::superblock(&mut text, raw, 65536, "device", true).expect("strings take everything");
    }
    assert!(passed > 50, "{passed} passed: the damage is too coarse");
}

#[test]
fn next_keys_of_random_keys_are_neighbours() {
    let mut random = Random(3);
    for _ in 0..ROUNDS {
        let kind = creamery_format::KeyType::new(random.next() as u8);
        let key =
            Key::new((random.next() >> random.below(64)).into(), kind, random.next() << random.below(64));
        let next = key.next().expect("not the last key");
        assert!(key < next);
        assert_eq!(next.prev(), Some(key));
    }
}
