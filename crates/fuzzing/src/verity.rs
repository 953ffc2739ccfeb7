//! The descriptor and the Merkle tree of a file with fs-verity.

use creamery_codec::{SaltedHash, VerityDigest};
use creamery_format::{RawVerityDescriptor, VerityDescriptor, verity_descriptor_len};
use zerocopy::{FromBytes, IntoBytes};

use crate::input::Input;

/// Parses a descriptor made from the input, and follows the tree from some blocks of data to the root.
///
/// ```
/// creamery_fuzzing::verity(b"\x01\x01\x0c");
/// ```
pub fn verity(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.byte();
    if let Ok(len) = verity_descriptor_len(input.take(usize::from(how >> 2))) {
        assert!(len <= VerityDescriptor::LEN_MAX, "a descriptor of {len} bytes");
    }
    let wanted = [input.long(), input.long(), 0, u64::MAX];
    let bytes = input.rest();
    let Ok(descriptor) = VerityDescriptor::parse(&sensible(how, bytes)) else { return };
    let (tree, block) = (descriptor.tree(), descriptor.block_len());
    assert!(
        descriptor.root_hash().as_bytes().len() == descriptor.hash().digest_len(),
        "a digest has its length"
    );
    assert!(descriptor.digest() != descriptor.root_hash(), "the digest is of more than the root");
    let blocks = descriptor.data_len().div_ceil(block as u64);
    assert_eq!(tree.level_count() == 0, blocks <= 1, "a tree is there for more than one block");
    for number in wanted.into_iter().filter(|_| blocks > 0).map(|number| number % blocks) {
        let mut at = number;
        for level in 0..tree.level_count() {
            let place = tree.place_of(at);
            let end = place.at + descriptor.hash().digest_len();
            assert!(end <= block, "a digest lies within its block");
            let start = tree.block(level, place.node) * block as u64;
            assert!(start + block as u64 <= tree.len(), "a block lies within the tree");
            at = place.node;
        }
        assert!(at == 0 || tree.level_count() == 0, "there is one root");
    }
    let short = &bytes[..bytes.len().min(block)];
    let found = descriptor.salted_hash().digest(short, block);
    let mut whole = short.to_vec();
    whole.resize(block, 0);
    assert_eq!(
        found,
        descriptor.salted_hash().digest(&whole, block),
        "what is short is filled up with zeros"
    );
    assert_eq!(VerityDigest::read(descriptor.hash(), found.as_bytes()), Some(found));
    let plain = SaltedHash::new(descriptor.hash(), &[]).digest(short, block);
    let is_salted = RawVerityDescriptor::read_from_prefix(bytes).is_ok_and(|(raw, _)| raw.salt_size > 0);
    assert!(is_salted || how & 1 == 0 || plain == found, "no salt is no salt");
}

/// The bytes with values that a fuzzer hardly ever finds: a known version and hash, and zeros where they are required.
fn sensible(how: u8, bytes: &[u8]) -> Vec<u8> {
    let Ok((mut raw, signature)) = RawVerityDescriptor::read_from_prefix(bytes) else {
        return bytes.to_vec();
    };
    if how & 1 != 0 {
        raw.version = 1;
        raw.reserved = [0; 144];
        raw.sig_size = u32::try_from(signature.len()).unwrap_or(u32::MAX).into();
    }
    if how & 2 != 0 {
        raw.hash_algorithm = 1 + raw.hash_algorithm % 2;
        raw.log_blocksize = 10 + raw.log_blocksize % 7;
        raw.salt_size %= 33;
    }
    [raw.as_bytes(), signature].concat()
}
