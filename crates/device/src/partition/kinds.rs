//! The declared types of partitions.

use std::fmt;

use creamery_base::Uuid;

/// The type that a table gives a partition. It is the intended content, not necessarily the real one.
///
/// ```
/// use creamery_device::PartitionType;
/// assert_eq!(PartitionType::Mbr(0x83).to_string(), "Linux");
/// assert_eq!(PartitionType::Mbr(0x83).code(), "83");
/// assert!(PartitionType::Mbr(5).is_extended());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartitionType {
    /// A UUID, in a GPT.
    Gpt(Uuid),
    /// A number, in an MBR.
    Mbr(u8),
}

/// Common GPT types, with the names of sfdisk(8).
const GPT: &[(&str, &str)] = &[
    ("c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "EFI System"),
    ("21686148-6449-6e6f-744e-656564454649", "BIOS boot"),
    ("0fc63daf-8483-4772-8e79-3d69d8477de4", "Linux filesystem"),
    ("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", "Linux swap"),
    ("3b8f8425-20e0-4f3b-907f-1a25a76f98e8", "Linux server data"),
    ("933ac7e1-2eb4-4f13-b844-0e14e2aef915", "Linux home"),
    ("44479540-f297-41b2-9af7-d131d5f0458a", "Linux root (x86)"),
    ("4f68bce3-e8cd-4db1-96e7-fbcaf984b709", "Linux root (x86-64)"),
    ("69dad710-2ce4-4e3c-b16c-21a1d49abed3", "Linux root (ARM)"),
    ("b921b045-1df0-41c3-af44-4c6f280d3fae", "Linux root (ARM-64)"),
    ("bc13c2ff-59e6-4262-a352-b275fd6f7172", "Linux extended boot"),
    ("a19d880f-05fc-4d3b-a006-743f0f84911e", "Linux RAID"),
    ("e6d6d379-f507-44c2-a23c-238f2a3df928", "Linux LVM"),
    ("8da63339-0007-60c0-c436-083ac8230908", "Linux reserved"),
    ("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7", "Microsoft basic data"),
    ("e3c9e316-0b5c-4db8-817d-f92df00215ae", "Microsoft reserved"),
    ("de94bba4-06d1-4d40-a16a-bfd50179d6ac", "Windows recovery environment"),
    ("48465300-0000-11aa-aa11-00306543ecac", "Apple HFS/HFS+"),
    ("7c3457ef-0000-11aa-aa11-00306543ecac", "Apple APFS"),
];

const MBR: &[(u8, &str)] = &[
    (0x01, "FAT12"),
    (0x04, "FAT16 <32M"),
    (0x05, "Extended"),
    (0x06, "FAT16"),
    (0x07, "HPFS/NTFS/exFAT"),
    (0x0b, "W95 FAT32"),
    (0x0c, "W95 FAT32 (LBA)"),
    (0x0e, "W95 FAT16 (LBA)"),
    (0x0f, "W95 Ext'd (LBA)"),
    (0x82, "Linux swap / Solaris"),
    (0x83, "Linux"),
    (0x85, "Linux extended"),
    (0x8e, "Linux LVM"),
    (0xee, "GPT"),
    (0xef, "EFI (FAT-12/16/32)"),
    (0xfd, "Linux raid autodetect"),
];

impl PartitionType {
    /// Whether it only holds other partitions, the logical ones.
    #[must_use]
    pub const fn is_extended(self) -> bool {
        matches!(self, Self::Mbr(0x05 | 0x0f | 0x85))
    }

    /// Returns the type as in the table: a UUID, or two hexadecimal digits.
    #[must_use]
    pub fn code(self) -> String {
        match self {
            Self::Gpt(uuid) => uuid.to_string(),
            Self::Mbr(number) => format!("{number:02x}"),
        }
    }

    /// Returns the name of a common type.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Gpt(uuid) => {
                let code = uuid.to_string();
                GPT.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
            }
            Self::Mbr(number) => MBR.iter().find(|(known, _)| *known == number).map(|(_, name)| *name),
        }
    }
}

impl fmt::Display for PartitionType {
    /// Shows the name, or the code of a type without a name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => f.pad(&format!("type {}", self.code())),
        }
    }
}
