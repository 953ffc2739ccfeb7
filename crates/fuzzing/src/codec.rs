//! Compressed data: decompresses arbitrary bytes, and compresses and decompresses again.

use creamery_codec::{
    ChecksumType, CompressionMethod, CompressionType, Packer, UnpackError, checksum, checksum_blocks,
    data_ref_hash, extref_hash, looks_compressible, name_hash, unpack_lzo, unpack_lzo_from, unpack_zlib,
    unpack_zstd,
};

use crate::input::Input;

const SECTOR: usize = 4096;

type Unpack = fn(&[u8], &mut [u8]) -> Result<usize, UnpackError>;

/// Decompresses the input in one of the three ways, or compresses it at some level and decompresses it again.
///
/// ```
/// creamery_fuzzing::codec(b"\x00not packed");
/// ```
pub fn codec(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.byte();
    let len = match how >> 4 {
        0..12 => usize::from(how >> 4) * SECTOR,
        12 => Packer::DATA_MAX,
        13 => 1,
        14 => SECTOR - 1,
        _ => usize::from(input.half()),
    };
    let method = input.byte();
    let rest = input.rest();
    let lzo: Unpack = |packed, out| unpack_lzo(packed, SECTOR, out);
    match how % 5 {
        0 => {
            unpack(unpack_zlib, rest, len);
            begins_as_the_whole(unpack_zlib, rest, len).expect("it unpacks whole");
        }
        1 => {
            unpack(unpack_zstd, rest, len);
            // That does not hold for every window size.
            let _ = begins_as_the_whole(unpack_zstd, rest, len);
        }
        2 => {
            unpack(lzo, rest, len);
            let from: Unpack = |packed, out| unpack_lzo_from(packed, SECTOR, 1, out);
            unpack(from, rest, len);
        }
        3 => {
            let plain = &rest[..rest.len().min(Packer::DATA_MAX)];
            let _ = looks_compressible(plain);
            round_trips(chosen(method), plain, len);
        }
        _ => sums(rest),
    }
}

/// One of the algorithms at any of its levels.
fn chosen(byte: u8) -> CompressionMethod {
    let kind = CompressionType::ALL[usize::from(byte % 3)];
    CompressionMethod::new(kind).with_level(i32::from(byte / 3) % 31 - 15)
}

/// The output depends only on the input, not on the former content of the buffer.
fn unpack(unpack: Unpack, packed: &[u8], len: usize) {
    let mut out = vec![0; len + 16];
    let mut again = vec![0xaa; len + 16];
    let made = unpack(packed, &mut out[..len]);
    assert_eq!(made, unpack(packed, &mut again[..len]), "two answers to the same data");
    assert_eq!((&out[len..], &again[len..]), (&[0; 16][..], &[0xaa; 16][..]), "written past the end");
    if let Ok(made) = made {
        assert!(made <= len, "more was made than there is room for");
        assert_eq!(out[..made], again[..made], "what was in the buffer shows");
    }
}

/// The output of the beginning of compressed data is the beginning of the whole output. Fails only if all of it can be decompressed, and
/// its beginning cannot.
fn begins_as_the_whole(unpack: Unpack, packed: &[u8], len: usize) -> Result<(), UnpackError> {
    let (mut whole, mut beginning) = (vec![0; Packer::DATA_MAX], vec![0; len]);
    if let Ok(made) = unpack(packed, &mut whole) {
        let begun = unpack(packed, &mut beginning)?;
        assert!(begun == made.min(len) || len > Packer::DATA_MAX);
        let common = begun.min(made);
        assert_eq!(beginning[..common], whole[..common]);
    }
    Ok(())
}

/// The data compressed with each algorithm.
pub(crate) fn packed(plain: &[u8]) -> [(CompressionType, Vec<u8>); 3] {
    CompressionType::ALL.map(|kind| {
        let mut out = vec![0; ample(plain.len())];
        let len = Packer::new().pack(CompressionMethod::new(kind), plain, SECTOR, &mut out);
        out.truncate(len.expect("there is room for anything"));
        (kind, out)
    })
}

/// More bytes than any algorithm makes of `len` bytes.
fn ample(len: usize) -> usize {
    len + len / 8 + 200
}

/// Output that fits decompresses to the input, and does not depend on earlier compressions.
fn round_trips(method: CompressionMethod, plain: &[u8], room: usize) {
    let mut used = Packer::new();
    let mut whole = vec![0; ample(plain.len())];
    let len = used.pack(method, plain, SECTOR, &mut whole).expect("there is room for anything");
    unpacks_to(method.kind(), &whole[..len], plain);

    let mut out = vec![0; room + 16];
    let mut again = vec![0xaa; room + 16];
    let made = used.pack(method, plain, SECTOR, &mut out[..room]);
    assert_eq!(
        made,
        Packer::new().pack(method, plain, SECTOR, &mut again[..room]),
        "a new packer packs the same"
    );
    assert_eq!((&out[room..], &again[room..]), (&[0; 16][..], &[0xaa; 16][..]), "written past the end");
    match made {
        Some(made) => {
            assert!(made <= room, "more was made than there is room for");
            assert_eq!(out[..made], again[..made], "a new packer packs the same bytes");
            unpacks_to(method.kind(), &out[..made], plain);
        }
        None => assert!(room < len + 16, "{len} bytes do not fit into {room}"),
    }
}

fn unpacks_to(kind: CompressionType, packed: &[u8], plain: &[u8]) {
    let unpack: Unpack = match kind {
        CompressionType::Zlib => unpack_zlib,
        CompressionType::Lzo => |packed, out| unpack_lzo(packed, SECTOR, out),
        CompressionType::Zstd => unpack_zstd,
    };
    let mut out = vec![0; plain.len()];
    assert_eq!(unpack(packed, &mut out), Ok(plain.len()), "all of it");
    assert_eq!(out, plain, "the same as before");
    // A buffer that is too small is an error, and one that is too large is not filled.
    if let Some(less) = plain.len().checked_sub(1) {
        assert_ne!(unpack(packed, &mut out[..less]), Ok(plain.len()), "it does not fit");
    }
    let mut large = vec![0; plain.len() + 5000];
    assert_eq!(unpack(packed, &mut large), Ok(plain.len()), "no more than there was");
}

/// Checksums of many blocks equal those of each; hashes of names never panic.
fn sums(bytes: &[u8]) {
    let _ = (name_hash(bytes), extref_hash(bytes.len() as u64, bytes), data_ref_hash(5, 256, 0));
    let blocks = &bytes[..bytes.len().min(16 * SECTOR) / 512 * 512];
    for kind in [ChecksumType::Crc32c, ChecksumType::Xxhash64, ChecksumType::Sha256, ChecksumType::Blake2b] {
        let mut together = Vec::new();
        checksum_blocks(kind, blocks, 512, &mut together);
        let each: Vec<u8> =
            blocks.chunks(512).flat_map(|block| checksum(kind, block).as_bytes(kind).to_vec()).collect();
        assert_eq!(together, each, "{kind:?}");
    }
}
