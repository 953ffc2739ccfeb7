//! What a device holds before we write to it: the marks of filesystems, volume managers and partition tables.

use creamery_base::Result;
use creamery_device::BlockDevice;

/// Bytes at an offset that tell what is there.
struct Mark {
    name: &'static str,
    offset: u64,
    bytes: &'static [u8],
}

const fn mark(name: &'static str, offset: u64, bytes: &'static [u8]) -> Mark {
    Mark { name, offset, bytes }
}

const MARKS: &[Mark] = &[
    mark("Btrfs", 65536 + 64, b"_BHRfS_M"),
    mark("XFS", 0, b"XFSB"),
    mark("NTFS", 3, b"NTFS    "),
    mark("exFAT", 3, b"EXFAT   "),
    mark("FAT", 54, b"FAT12   "),
    mark("FAT", 54, b"FAT16   "),
    mark("FAT", 82, b"FAT32   "),
    mark("LUKS encryption", 0, b"LUKS\xba\xbe"),
    mark("SquashFS", 0, b"hsqs"),
    mark("ISO 9660", 32769, b"CD001"),
    mark("F2FS", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    mark("EROFS", 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
    mark("ext2, ext3 or ext4", 1024 + 56, &[0x53, 0xef]),
    mark("swap space", 4096 - 10, b"SWAPSPACE2"),
    mark("swap space", 65536 - 10, b"SWAPSPACE2"),
    mark("swap space", 4096 - 10, b"SWAP-SPACE"),
    mark("LVM physical volume", 512, b"LABELONE"),
    mark("RAID member (md)", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    mark("RAID member (md)", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    mark("GPT partition table", 512, b"EFI PART"),
    mark("GPT partition table", 4096, b"EFI PART"),
    mark("cramfs", 0, &[0x45, 0x3d, 0xcd, 0x28]),
    mark("cramfs", 512, &[0x45, 0x3d, 0xcd, 0x28]),
    mark("BFS", 0, &[0xce, 0xfa, 0xad, 0x1b]),
    // Two bytes are little to go by: after everything else.
    mark("Minix", 1024 + 16, &[0x7f, 0x13]),
    mark("Minix", 1024 + 16, &[0x8f, 0x13]),
    mark("Minix", 1024 + 16, &[0x68, 0x24]),
    mark("Minix", 1024 + 16, &[0x78, 0x24]),
    mark("Minix", 1024 + 24, &[0x5a, 0x4d]),
];

/// The name of what `device` holds, none when nothing known is found. A superblock with a damaged checksum counts:
/// somebody may want to repair it.
///
/// # Errors
/// When the device cannot be read.
pub fn find_signature(device: &dyn BlockDevice) -> Result<Option<&'static str>> {
    // Every mark lies within these two windows.
    let mut head = read_window(device, 0, 68 << 10)?;
    head.resize(68 << 10, 0);
    for mark in MARKS {
        let at = usize::try_from(mark.offset).expect("a mark lies in the window");
        if head[at..].starts_with(mark.bytes) {
            return Ok(Some(mark.name));
        }
    }
    if is_dos_table(&head[..512]) {
        return Ok(Some("DOS partition table"));
    }
    Ok(None)
}

fn read_window(device: &dyn BlockDevice, at: u64, len: u64) -> Result<Vec<u8>> {
    let len = len.min(device.len().saturating_sub(at));
    let mut bytes = vec![0; usize::try_from(len).expect("a window is small")];
    device.read_at(at, &mut bytes)?;
    Ok(bytes)
}

/// A boot sector also ends with 55 AA; a table has four entries of which each is active or not, and one in use.
fn is_dos_table(sector: &[u8]) -> bool {
    const TYPE: usize = 4;
    let entries = || sector[446..510].chunks(16);
    sector.ends_with(&[0x55, 0xaa])
        && entries().all(|entry| matches!(entry[0], 0 | 0x80))
        && entries().any(|entry| entry[TYPE] != 0)
}

#[cfg(test)]
mod tests {
    use creamery_device::MemoryDevice;

    use super::*;

    #[test]
    fn every_mark_is_found_at_its_place() {
        for mark in MARKS {
            let device = MemoryDevice::new(1 << 20);
            device.write_at(mark.offset, mark.bytes).unwrap();
            assert_eq!(find_signature(&device).unwrap(), Some(mark.name));
        }
    }

    #[test]
    fn a_partition_table_is_found_and_a_mere_boot_sector_is_not() {
        let device = MemoryDevice::new(1 << 20);
        device.write_at(510, &[0x55, 0xaa]).unwrap();
        assert_eq!(find_signature(&device).unwrap(), None);
        device.write_at(446 + 4, &[0x83]).unwrap();
        assert_eq!(find_signature(&device).unwrap(), Some("DOS partition table"));
    }

    #[test]
    fn zeros_and_short_devices_hold_nothing() {
        for len in [0, 100, 4096, 1 << 20] {
            assert_eq!(find_signature(&MemoryDevice::new(len)).unwrap(), None);
        }
    }
}
