//! What a device holds when it holds no Btrfs. Only for saying so: nothing is decided by it but whether to go on.

use creamery_device::BlockDevice;

/// A name, an offset and the bytes found there.
type Signature = (&'static str, usize, &'static [u8]);

/// In this order: what stands first is said, where two fit.
const SIGNATURES: [Signature; 24] = [
    ("an ext2, ext3 or ext4 filesystem", 1080, b"\x53\xef"),
    ("an XFS filesystem", 0, b"XFSB"),
    ("an F2FS filesystem", 1024, b"\x10\x20\xf5\xf2"),
    ("a SquashFS filesystem", 0, b"hsqs"),
    ("an EROFS filesystem", 1024, b"\xe2\xe1\xf5\xe0"),
    ("an NTFS filesystem", 3, b"NTFS    "),
    ("an exFAT filesystem", 3, b"EXFAT   "),
    ("a FAT filesystem", 82, b"FAT32   "),
    ("a FAT filesystem", 54, b"FAT1"),
    ("an ISO 9660 filesystem", 32769, b"CD001"),
    ("a LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("a Btrfs send stream", 0, b"btrfs-stream\0"),
    ("a qcow2 image, which has to be converted to a raw one", 0, b"QFI\xfb"),
    ("a VMDK image, which has to be converted to a raw one", 0, b"KDMV"),
    ("gzip compressed data", 0, b"\x1f\x8b"),
    ("zstd compressed data", 0, b"\x28\xb5\x2f\xfd"),
    ("xz compressed data", 0, b"\xfd7zXZ\0"),
    ("bzip2 compressed data", 0, b"BZh"),
    ("a zip archive", 0, b"PK\x03\x04"),
    ("a tar archive", 257, b"ustar"),
    ("a disk with a GPT partition table, of which a partition has to be named", 512, b"EFI PART"),
    ("a disk with a partition table, of which a partition has to be named", 510, b"\x55\xaa"),
];

/// How much of the device is looked at.
const LOOKED_AT: u64 = 36 << 10;

/// What the device holds, if it can be recognised.
pub(crate) fn recognise(device: &dyn BlockDevice) -> Option<&'static str> {
    let len = usize::try_from(device.len().min(LOOKED_AT)).expect("a few KiB fit");
    let mut bytes = vec![0; len];
    device.read_at(0, &mut bytes).ok()?;
    let fits =
        |signature: &&Signature| bytes.get(signature.1..).is_some_and(|rest| rest.starts_with(signature.2));
    SIGNATURES.iter().find(fits).map(|signature| signature.0)
}
