//! Hashes that Btrfs stores in the offset field of keys. All are CRC-32C without the usual final inversion, each
//! with a seed of its own.

/// CRC-32C with an explicit register: neither the seed nor the result is inverted.
fn crc32c_raw(seed: u32, data: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, data)
}

/// Hash of a name: the key offset of `DIR_ITEM` and `XATTR_ITEM`.
///
/// ```
/// assert_eq!(creamery_codec::name_hash(b"default"), 2_378_154_706);
/// ```
#[must_use]
pub fn name_hash(name: &[u8]) -> u32 {
    crc32c_raw(!1, name)
}

/// Hash of a hard link: the key offset of `INODE_EXTREF`, from the directory's inode number and the name.
///
/// ```
/// assert_eq!(creamery_codec::extref_hash(256, b"") , 256);
/// ```
#[must_use]
pub fn extref_hash(parent: u64, name: &[u8]) -> u64 {
    // The register has 32 bits: the parent's upper half does not take part.
    u64::from(crc32c_raw((parent & u64::from(u32::MAX)) as u32, name))
}

/// Hash of a reference to a data extent: the key offset of `EXTENT_DATA_REF`, from the subvolume's tree id, the inode
/// number and the file offset at which the extent would begin.
///
/// ```
/// assert_ne!(creamery_codec::data_ref_hash(5, 257, 0), creamery_codec::data_ref_hash(5, 258, 0));
/// ```
#[must_use]
pub fn data_ref_hash(root: u64, objectid: u64, offset: u64) -> u64 {
    let high = crc32c_raw(!0, &root.to_le_bytes());
    let low = crc32c_raw(!0, &objectid.to_le_bytes());
    let low = crc32c_raw(low, &offset.to_le_bytes());
    (u64::from(high) << 31) ^ u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Numbers seen in images that Linux wrote.

    #[test]
    fn name_hash_agrees_with_linux() {
        assert_eq!(name_hash(b"default"), 2_378_154_706);
    }

    #[test]
    fn data_ref_hash_agrees_with_linux() {
        assert_eq!(data_ref_hash(5, 420, 0), 1_007_496_931_350_945_913);
        assert_eq!(data_ref_hash(5, 320, 0), 1_007_496_931_369_892_584);
    }

    #[test]
    fn extref_hash_agrees_with_linux() {
        let name = |n: u32| format!("hardlink-with-a-rather-long-name-to-fill-the-item-{n:0150}");
        assert_eq!(extref_hash(256, name(378).as_bytes()), 10_267_378);
        assert_eq!(extref_hash(256, name(138).as_bytes()), 24_746_275);
    }
}
