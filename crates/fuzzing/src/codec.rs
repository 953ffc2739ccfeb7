//! Packed data: unpacking what anybody made up, and packing and unpacking again.

use creamery_codec::{
    ChecksumType, UnpackError, checksum, checksum_blocks, data_ref_hash, extref_hash, name_hash, unpack_lzo,
    unpack_zlib, unpack_zstd,
};

use crate::input::Input;

/// As much as an extent unpacks to, at most.
const OUT_MAX: usize = 128 << 10;
const SECTOR: usize = 4096;

type Unpack = fn(&[u8], &mut [u8]) -> Result<usize, UnpackError>;

/// Unpacks the input in each of the three ways, or packs it and unpacks it again.
///
/// ```
/// creamery_fuzzing::codec(b"\x00not packed");
/// ```
pub fn codec(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.byte();
    let len = match how >> 4 {
        0..12 => usize::from(how >> 4) * SECTOR,
        12 => OUT_MAX,
        13 => 1,
        14 => SECTOR - 1,
        _ => usize::from(input.half()),
    };
    let rest = input.rest();
    let lzo: Unpack = |packed, out| unpack_lzo(packed, SECTOR, out);
    match how % 5 {
        0 => unpack(unpack_zlib, rest, len),
        1 => unpack(unpack_zstd, rest, len),
        2 => unpack(lzo, rest, len),
        3 => round_trips(&rest[..rest.len().min(OUT_MAX)]),
        _ => sums(rest),
    }
}

/// What comes out follows from what goes in, and not from what lay in the buffer before.
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

/// Packed with zlib, zstd, and LZO as Btrfs frames it.
pub(crate) fn packed(plain: &[u8]) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    use std::io::Write;
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    zlib.write_all(plain).expect("memory takes everything");
    let zlib = zlib.finish().expect("memory takes everything");
    let mut zstd = vec![0; zstd_safe::compress_bound(plain.len())];
    let len = zstd_safe::compress(&mut zstd[..], plain, 3).expect("it is large enough");
    zstd.truncate(len);
    (zlib, zstd, frame_lzo(plain))
}

/// Literals only: valid, and longer than what it was made from.
fn frame_lzo(plain: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    for sector in plain.chunks(SECTOR) {
        let mut stream = vec![0];
        // A run of 18 literals and more is told by bytes of 255 and the rest.
        let mut left = sector.len();
        if left < 4 {
            stream = vec![17 + left as u8];
        } else {
            left -= 3;
            if left <= 15 {
                stream[0] = left as u8;
            } else {
                left -= 15;
                while left > 255 {
                    stream.push(0);
                    left -= 255;
                }
                stream.push(left as u8);
            }
        }
        stream.extend_from_slice(sector);
        stream.extend_from_slice(&[17, 0, 0]);
        if SECTOR - out.len() % SECTOR < 4 {
            out.resize(out.len().next_multiple_of(SECTOR), 0);
        }
        out.extend_from_slice(&(stream.len() as u32).to_le_bytes());
        out.extend_from_slice(&stream);
    }
    let len = out.len() as u32;
    out[..4].copy_from_slice(&len.to_le_bytes());
    out
}

fn round_trips(plain: &[u8]) {
    if plain.is_empty() {
        return;
    }
    let (zlib, zstd, lzo) = packed(plain);
    let lzo_of: Unpack = |packed, out| unpack_lzo(packed, SECTOR, out);
    let mut out = vec![0; plain.len()];
    for (unpack, packed) in [(unpack_zlib as Unpack, &zlib), (unpack_zstd, &zstd), (lzo_of, &lzo)] {
        out.fill(0);
        assert_eq!(unpack(packed, &mut out), Ok(plain.len()), "all of it");
        assert_eq!(out, plain, "the same as before");
        // A buffer that is too small is an error, and one that is too large is not filled.
        assert_ne!(unpack(packed, &mut out[..plain.len() - 1]), Ok(plain.len()), "it does not fit");
        let mut large = vec![0; plain.len() + 5000];
        assert_eq!(unpack(packed, &mut large), Ok(plain.len()), "no more than there was");
    }
}

/// Sums of many blocks are the sums of each; hashes of names never panic.
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
