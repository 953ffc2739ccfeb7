use super::samples::{Dice, mixed, numbers, random, text};
use super::*;
use crate::{UnpackError, unpack_lzo, unpack_zlib, unpack_zstd};

const SECTOR: usize = 4096;

fn methods() -> impl Iterator<Item = CompressionMethod> {
    CompressionType::ALL.into_iter().flat_map(|kind| {
        let levels = kind.levels().unwrap_or(0..=0);
        levels.map(move |level| CompressionMethod::new(kind).with_level(level))
    })
}

/// The levels at which an algorithm works differently, and the usual ones.
fn some_methods() -> impl Iterator<Item = CompressionMethod> {
    ["zlib:1", "zlib:3", "zlib:9", "lzo", "zstd:-15", "zstd:1", "zstd:3", "zstd:15"]
        .into_iter()
        .map(|word| word.parse().expect("a method"))
}

fn unpack(kind: CompressionType, packed: &[u8], sector: usize, out: &mut [u8]) -> Result<usize, UnpackError> {
    match kind {
        CompressionType::Zlib => unpack_zlib(packed, out),
        CompressionType::Lzo => unpack_lzo(packed, sector, out),
        CompressionType::Zstd => unpack_zstd(packed, out),
    }
}

fn pack(
    packer: &mut Packer,
    method: CompressionMethod,
    data: &[u8],
    sector: usize,
    room: usize,
) -> Option<Vec<u8>> {
    let mut out = vec![0xee; room];
    let len = packer.pack(method, data, sector, &mut out)?;
    out.truncate(len);
    Some(out)
}

/// A length that no algorithm's result exceeds.
fn ample(len: usize) -> usize {
    len + len / 8 + 200
}

fn kinds_of_data(len: usize) -> [(&'static str, Vec<u8>); 5] {
    [
        ("zeros", vec![0; len]),
        ("random", random(len, len as u64)),
        ("text", text(len)),
        ("numbers", numbers(len)),
        ("mixed", mixed(len)),
    ]
}

fn round_trip(packer: &mut Packer, method: CompressionMethod, data: &[u8], sector: usize, what: &str) {
    let packed = pack(packer, method, data, sector, ample(data.len())).expect("there is room for anything");
    let mut unpacked = vec![0; data.len()];
    let made = unpack(method.kind(), &packed, sector, &mut unpacked);
    assert_eq!(made, Ok(data.len()), "PACK-2: {method}, {} of {what}", data.len());
    assert!(unpacked == data, "PACK-2: {method}, {} of {what}", data.len());
}

#[test]
fn all_methods_round_trip() {
    let mut packer = Packer::new();
    for method in methods() {
        for len in [1, 2, 3, 4, 5, 17, 239, 4095, 4096, 4097, 20_000] {
            for (what, data) in kinds_of_data(len) {
                round_trip(&mut packer, method, &data, SECTOR, what);
            }
        }
    }
    for method in some_methods() {
        for len in [Packer::DATA_MAX - 4096, Packer::DATA_MAX - 1, Packer::DATA_MAX] {
            for (what, data) in kinds_of_data(len) {
                round_trip(&mut packer, method, &data, SECTOR, what);
            }
        }
    }
}

#[test]
fn lzo_round_trips_with_sectors_of_all_sizes() {
    let mut packer = Packer::new();
    for sector in [512, 2048, 4096, 16384, 65536] {
        for (what, data) in kinds_of_data(Packer::DATA_MAX) {
            round_trip(&mut packer, CompressionMethod::new(CompressionType::Lzo), &data, sector, what);
        }
    }
}

/// Copies from the largest distance of each form of a match, and literals and matches of all lengths.
#[test]
fn every_form_of_match_and_literals_round_trips() {
    let mut packer = Packer::new();
    let lzo = CompressionMethod::new(CompressionType::Lzo);
    let noise = random(65536, 1);
    for distance in
        [4, 7, 8, 9, 2047, 2048, 2049, 16383, 16384, 16385, 32767, 32768, 32769, 49150, 49151, 49152]
    {
        for len in [4, 5, 8, 9, 10, 33, 34, 288, 289, 290, 544, 545] {
            let mut data = noise[..distance].to_vec();
            for at in 0..len {
                data.push(data[at]);
            }
            data.extend(&noise[60_000..][..len % 7]);
            round_trip(&mut packer, lzo, &data, 65536, "copies");
        }
    }
    for len in (0..600).chain([4000]) {
        let data = [&noise[..len], &[7; 40], &noise[len..2 * len], &[9; 40]].concat();
        round_trip(&mut packer, lzo, &data, 65536, "literals");
    }
}

#[test]
fn what_just_fits_is_packed_and_one_byte_less_is_not() {
    let mut packer = Packer::new();
    for method in some_methods() {
        for len in [1, 600, 4096, 4097, Packer::DATA_MAX] {
            for (what, data) in kinds_of_data(len) {
                let whole = pack(&mut packer, method, &data, SECTOR, ample(len)).expect("there is room");
                for less in [1, 2, 3, 4, 10, whole.len()] {
                    let none = pack(&mut packer, method, &data, SECTOR, whole.len().saturating_sub(less));
                    assert!(none.is_none(), "PACK-2: {method}, {len} of {what}, {less} too few");
                }
                let spare = if method.kind() == CompressionType::Zstd { 16 } else { 0 };
                let exact = pack(&mut packer, method, &data, SECTOR, whole.len() + spare);
                assert!(exact.is_some_and(|exact| exact == whole), "PACK-2: {method}, {len} of {what}");
            }
        }
    }
}

#[test]
fn a_used_packer_packs_as_a_new_one() {
    let mut used = Packer::new();
    let mut dice = Dice::new(3);
    let methods: Vec<_> = methods().collect();
    for round in 0..400 {
        let method = methods[dice.below(methods.len())];
        let most = if round % 20 == 0 { Packer::DATA_MAX } else { 9000 };
        let data = mixed(1 + dice.below(most));
        let room = [ample(data.len()), data.len() / 2][dice.below(2)];
        let again = pack(&mut used, method, &data, SECTOR, room);
        let fresh = pack(&mut Packer::new(), method, &data, SECTOR, room);
        assert!(again == fresh, "PACK-3: {method}, {} bytes", data.len());
    }
}

#[test]
fn what_did_not_fit_does_not_show_in_what_comes_next() {
    let random = random(Packer::DATA_MAX, 1);
    for method in methods() {
        let mut used = Packer::new();
        for (round, room) in [500, 40_000, 100_000].into_iter().enumerate() {
            let none = pack(&mut used, method, &random, SECTOR, room);
            assert!(none.is_none(), "{method}: random data gets shorter");
            let data = mixed(9000 + round);
            let again = pack(&mut used, method, &data, SECTOR, ample(data.len()));
            let fresh = pack(&mut Packer::new(), method, &data, SECTOR, ample(data.len()));
            assert!(again == fresh, "PACK-3: {method}, {} bytes", data.len());
        }
    }
}

#[test]
fn zstd_frames_look_as_those_of_linux() {
    // Of 600, 5000 and 131072 bytes: magic number, descriptor, and the length less 256 in two bytes or as it is in four.
    let rows: [(usize, &[u8]); 3] = [
        (600, &[0x28, 0xb5, 0x2f, 0xfd, 0x60, 0x58, 0x01]),
        (5000, &[0x28, 0xb5, 0x2f, 0xfd, 0x60, 0x88, 0x12]),
        (131_072, &[0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 2, 0]),
    ];
    let mut packer = Packer::new();
    for method in methods().filter(|method| method.kind() == CompressionType::Zstd) {
        for (len, head) in rows {
            let packed = pack(&mut packer, method, &text(len), SECTOR, ample(len)).expect("there is room");
            assert_eq!(packed[..head.len()], *head, "PACK-4: {method}, {len}");
        }
    }
}

#[test]
fn zlib_streams_begin_as_those_of_linux() {
    let mut packer = Packer::new();
    for (word, head) in [("zlib:3", [0x78, 0x5e]), ("zlib:9", [0x78, 0xda])] {
        let packed = pack(&mut packer, word.parse().expect("a method"), &text(600), SECTOR, 600);
        assert_eq!(packed.expect("text gets shorter")[..2], head, "{word}");
    }
}

/// Walks the frame independently of the packer; returns the lengths of the segments.
fn segments(packed: &[u8], sector: usize) -> Vec<usize> {
    let length = |at: usize| u32::from_le_bytes(packed[at..at + 4].try_into().expect("four bytes")) as usize;
    assert_eq!(length(0), packed.len(), "the whole");
    let (mut at, mut lengths) = (4, Vec::new());
    while at < packed.len() {
        if at / sector != (at + 3) / sector {
            let next = at.next_multiple_of(sector);
            assert!(packed[at..next].iter().all(|byte| *byte == 0), "padding is zero");
            at = next;
        }
        lengths.push(length(at));
        at += 4 + length(at);
    }
    assert_eq!(at, packed.len(), "the last segment ends it");
    lengths
}

#[test]
fn lzo_segments_keep_to_their_sectors() {
    let mut packer = Packer::new();
    let lzo = CompressionMethod::new(CompressionType::Lzo);
    let mut padded = 0;
    for sector in [4096, 65536] {
        for seed in 0..60 {
            for data in [mixed(Packer::DATA_MAX - seed), random(9000, seed as u64)] {
                let packed = pack(&mut packer, lzo, &data, sector, ample(data.len())).expect("there is room");
                let lengths = segments(&packed, sector);
                assert_eq!(lengths.len(), data.len().div_ceil(sector), "PACK-5: one for each sector");
                let bound = sector + sector / 16 + 64 + 3;
                assert!(lengths.iter().all(|len| *len <= bound), "PACK-4: {lengths:?}");
                padded += packed.len() - 4 - lengths.iter().map(|len| 4 + len).sum::<usize>();
            }
        }
    }
    assert!(padded > 0, "no padding was seen");
}

#[test]
fn another_decoder_agrees_with_ours() {
    let mut packer = Packer::new();
    let lzo = CompressionMethod::new(CompressionType::Lzo);
    for (what, data) in (1..200).step_by(7).chain([4095, 4096]).flat_map(kinds_of_data) {
        let packed = pack(&mut packer, lzo, &data, SECTOR, ample(data.len())).expect("there is room");
        let mut out = vec![0; data.len()];
        let made = lzokay::decompress::decompress(&packed[8..], &mut out);
        assert_eq!(made, Ok(data.len()), "{what}");
        assert!(out == data, "{what}");
        // And the other way: the result of another packer.
        let theirs = lzokay::compress::compress(&data).expect("it packs anything");
        let head = [theirs.len() + 8, theirs.len()].map(|len| (len as u32).to_le_bytes()).concat();
        out.fill(0);
        assert_eq!(unpack_lzo(&[head, theirs].concat(), SECTOR, &mut out), Ok(data.len()), "{what}");
        assert!(out == data, "{what}");
    }
}

#[test]
fn damaged_data_never_panics_and_never_gives_more_than_asked() {
    let mut packer = Packer::new();
    let mut dice = Dice::new(11);
    for method in some_methods() {
        let data = mixed(10_000);
        let packed = pack(&mut packer, method, &data, SECTOR, ample(data.len())).expect("there is room");
        let mut out = vec![0; data.len()];
        let mut check = |packed: &[u8], room: usize| {
            if let Ok(made) = unpack(method.kind(), packed, SECTOR, &mut out[..room]) {
                assert!(made <= room, "{method}: {made} bytes where {room} were asked for");
            }
        };
        for cut in 0..packed.len() {
            check(&packed[..cut], data.len());
        }
        let mut changed = packed.clone();
        for round in 0..4000 {
            let (at, bit) = (dice.below(packed.len()), 1 << dice.below(8));
            changed[at] ^= bit;
            check(&changed, data.len());
            check(&changed, dice.below(data.len()));
            changed[at] ^= bit;
            if round % 16 == 0 {
                let mut whole = vec![0; data.len()];
                assert_eq!(unpack(method.kind(), &packed, SECTOR, &mut whole), Ok(data.len()), "{method}");
                assert!(whole == data, "{method}: what was damaged before shows");
            }
        }
    }
}

#[test]
fn unpacking_goes_on_after_damage() {
    let mut packer = Packer::new();
    for kind in CompressionType::ALL {
        let data = text(5000);
        let packed = pack(&mut packer, CompressionMethod::new(kind), &data, SECTOR, 5000).expect("shorter");
        let mut out = vec![0; 5000];
        for broken in [&packed[..packed.len() / 2], &packed[1..], &[]] {
            assert!(unpack(kind, broken, SECTOR, &mut out).is_err(), "{kind}");
            assert_eq!(unpack(kind, &packed, SECTOR, &mut out), Ok(5000), "{kind}");
            assert!(out == data, "{kind}");
            assert!(unpack(kind, &packed, SECTOR, &mut out[..4999]) != Ok(5000), "{kind}");
        }
    }
}

#[test]
#[should_panic(expected = "PACK-1")]
fn more_than_an_extent_takes_is_a_bug() {
    let method = CompressionMethod::new(CompressionType::Zstd);
    let _ = Packer::new().pack(method, &[0; Packer::DATA_MAX + 1], SECTOR, &mut []);
}

#[test]
#[should_panic(expected = "PACK-1")]
fn sectors_that_no_btrfs_has_are_a_bug() {
    let _ = Packer::new().pack(CompressionMethod::new(CompressionType::Lzo), &[0], 5000, &mut []);
}
