//! The signatures of other filesystems, volumes, images and archives: for the error if there is no Btrfs,
//! and for `mkfs`, which does not overwrite them unless the user asks for it. Offsets and bytes are those of the formats' own
//! documentation and of file(1).

/// The signature of another format, or of Btrfs itself.
///
/// ```
/// use creamery_format::find_signature;
/// let mut disk = vec![0; 4096];
/// disk[..4].copy_from_slice(b"QFI\xfb");
/// let found = find_signature(&disk).unwrap();
/// assert_eq!(found.name, "a qcow2 image");
/// assert_eq!(found.advice, Some("which has to be converted to a raw one"));
/// assert!(find_signature(&[0; 4096]).is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature {
    /// The name of the format, with its article.
    pub name: &'static str,
    /// Advice for a user that expected Btrfs.
    pub advice: Option<&'static str>,
    /// Whether the format has partitions, one of which can be named.
    pub has_partitions: bool,
    offset: usize,
    bytes: &'static [u8],
    /// Further places of the signature: how many in all, and the distance in bytes.
    again: (usize, usize),
}

/// The number of bytes from the start of a device that contain all signatures.
pub const SIGNATURES_END: usize = 256 << 10;

const fn mark(name: &'static str, offset: usize, bytes: &'static [u8]) -> Signature {
    Signature { name, advice: None, has_partitions: false, offset, bytes, again: (1, 0) }
}

const fn raw(name: &'static str, offset: usize, bytes: &'static [u8]) -> Signature {
    Signature { advice: Some("which has to be converted to a raw one"), ..mark(name, offset, bytes) }
}

const fn partitions(name: &'static str, offset: usize, bytes: &'static [u8]) -> Signature {
    Signature { has_partitions: true, ..mark(name, offset, bytes) }
}

const fn somewhere(signature: Signature, times: usize, every: usize) -> Signature {
    Signature { again: (times, every), ..signature }
}

/// In order of preference: the first of several matches counts, so short signatures come last.
const SIGNATURES: &[Signature] = &[
    mark("a Btrfs filesystem", 65536 + 64, b"_BHRfS_M"),
    mark("an XFS filesystem", 0, b"XFSB"),
    mark("a bcache device", 4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    mark(
        "a bcachefs filesystem",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    // A label has 128 places for the latest state, whose number has the writer's byte order.
    somewhere(mark("a ZFS pool's device", 128 << 10, b"\x0c\xb1\xba\0\0\0\0\0"), 128, 1024),
    somewhere(mark("a ZFS pool's device", 128 << 10, b"\0\0\0\0\0\xba\xb1\x0c"), 128, 1024),
    mark("a JFS filesystem", 32768, b"JFS1"),
    mark("a ReiserFS filesystem", 65536 + 52, b"ReIsEr"),
    mark("a GFS2 filesystem", 65536, b"\x01\x16\x19\x70\0\0\0\x01"),
    mark("an APFS container", 32, b"NXSB"),
    mark("a UDF filesystem", 32769, b"BEA01"),
    mark("an ISO 9660 filesystem", 32769, b"CD001"),
    mark("a SquashFS filesystem", 0, b"hsqs"),
    mark("an F2FS filesystem", 1024, b"\x10\x20\xf5\xf2"),
    mark("an EROFS filesystem", 1024, b"\xe2\xe1\xf5\xe0"),
    mark("a cramfs filesystem", 0, b"\x45\x3d\xcd\x28"),
    mark("a cramfs filesystem", 512, b"\x45\x3d\xcd\x28"),
    mark("a BFS filesystem", 0, b"\xce\xfa\xad\x1b"),
    mark("an NTFS filesystem", 3, b"NTFS    "),
    mark("an exFAT filesystem", 3, b"EXFAT   "),
    mark("a FAT filesystem", 82, b"FAT32   "),
    mark("a FAT filesystem", 54, b"FAT12   "),
    mark("a FAT filesystem", 54, b"FAT16   "),
    mark("a LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
    somewhere(mark("an LVM physical volume", 0, b"LABELONE"), 4, 512),
    mark("a RAID member (md)", 4096, b"\xfc\x4e\x2b\xa9"),
    mark("a RAID member (md)", 0, b"\xfc\x4e\x2b\xa9"),
    mark("swap space", 4096 - 10, b"SWAPSPACE2"),
    mark("swap space", 65536 - 10, b"SWAPSPACE2"),
    mark("swap space", 4096 - 10, b"SWAP-SPACE"),
    raw("a qcow2 image", 0, b"QFI\xfb"),
    raw("a QED image", 0, b"QED\0"),
    raw("a VMDK image", 0, b"KDMV"),
    raw("a VirtualBox image", 64, b"\x7f\x10\xda\xbe"),
    raw("a VHDX image", 0, b"vhdxfile"),
    raw("a VHD image", 0, b"conectix"),
    mark("a Btrfs send stream", 0, b"btrfs-stream\0"),
    mark("a tar archive", 257, b"ustar"),
    mark("a cpio archive", 0, b"070701"),
    mark("a cpio archive", 0, b"070702"),
    mark("a zip archive", 0, b"PK\x03\x04"),
    mark("a 7-Zip archive", 0, b"7z\xbc\xaf\x27\x1c"),
    mark("a RAR archive", 0, b"Rar!\x1a\x07"),
    mark("xz compressed data", 0, b"\xfd7zXZ\0"),
    mark("zstd compressed data", 0, b"\x28\xb5\x2f\xfd"),
    mark("an SQLite database", 0, b"SQLite format 3\0"),
    mark("a program", 0, b"\x7fELF"),
    partitions("a disk with a GPT partition table", 512, b"EFI PART"),
    partitions("a disk with a GPT partition table", 4096, b"EFI PART"),
    mark("an HFS+ filesystem", 1024, b"H+\0\x04"),
    mark("an HFS+ filesystem", 1024, b"HX\0\x05"),
    mark("bzip2 compressed data", 0, b"BZh"),
    mark("gzip compressed data", 0, b"\x1f\x8b"),
    mark("an ext2, ext3 or ext4 filesystem", 1024 + 56, b"\x53\xef"),
    mark("a Minix filesystem", 1024 + 16, b"\x7f\x13"),
    mark("a Minix filesystem", 1024 + 16, b"\x8f\x13"),
    mark("a Minix filesystem", 1024 + 16, b"\x68\x24"),
    mark("a Minix filesystem", 1024 + 16, b"\x78\x24"),
    mark("a Minix filesystem", 1024 + 24, b"\x5a\x4d"),
];

const DOS_TABLE: &Signature = &partitions("a disk with a DOS partition table", 510, b"\x55\xaa");

impl Signature {
    fn places(&self) -> impl Iterator<Item = usize> {
        let (times, every) = self.again;
        let offset = self.offset;
        (0..times).map(move |number| offset + number * every)
    }

    /// Whether it is the signature of Btrfs itself.
    #[must_use]
    pub fn is_btrfs(&self) -> bool {
        self.bytes == SIGNATURES[0].bytes
    }

    fn fits(&self, head: &[u8]) -> bool {
        self.places().any(|at| head.get(at..).is_some_and(|rest| rest.starts_with(self.bytes)))
    }
}

/// Finds the format of a device from its `head`: the first [`SIGNATURES_END`] bytes, or all bytes of a shorter device. `None` if the format
/// is unknown. A format with a damaged checksum counts: the user may want to repair it.
#[must_use]
pub fn find_signature(head: &[u8]) -> Option<&'static Signature> {
    let found = SIGNATURES.iter().find(|signature| signature.fits(head));
    found.or_else(|| head.get(..512).is_some_and(is_dos_table).then_some(DOS_TABLE))
}

/// Finds another format in `head` beside Btrfs. A partition table does not count: the device may boot from it.
#[must_use]
pub fn find_another_signature(head: &[u8]) -> Option<&'static Signature> {
    SIGNATURES.iter().find(|other| !other.is_btrfs() && !other.has_partitions && other.fits(head))
}

/// Whether a sector is a partition table. A boot sector also ends with 55 AA; a table has four entries, each active or not, and at least
/// one in use.
fn is_dos_table(sector: &[u8]) -> bool {
    const TYPE: usize = 4;
    let entries = || sector[446..510].chunks(16);
    DOS_TABLE.fits(sector)
        && entries().all(|entry| matches!(entry[0], 0 | 0x80))
        && entries().any(|entry| entry[TYPE] != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_is_found_at_each_of_its_places() {
        for signature in SIGNATURES {
            for at in signature.places() {
                let mut head = vec![0; SIGNATURES_END];
                head[at..at + signature.bytes.len()].copy_from_slice(signature.bytes);
                let found = find_signature(&head).map(|found| found.name);
                assert_eq!(found, Some(signature.name), "at {at}");
            }
        }
    }

    #[test]
    fn a_partition_table_is_found_and_a_mere_boot_sector_is_not() {
        let mut head = vec![0; 4096];
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(find_signature(&head), None);
        head[446 + 4] = 0x83;
        assert_eq!(find_signature(&head), Some(DOS_TABLE));
    }

    #[test]
    fn zeros_and_short_devices_hold_nothing() {
        for len in [0, 100, 511, 4096, SIGNATURES_END] {
            assert_eq!(find_signature(&vec![0; len]), None);
        }
    }
}
