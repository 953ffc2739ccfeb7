//! The places of the first chunks of a new filesystem. Sizes and places are those of mkfs.btrfs (observed over device sizes from 16 MiB to
//! 11 TiB and all profiles), so images can be compared.
//!
//! ```text
//! 0        1 MiB    5 MiB      13 MiB   21 MiB
//! | super  | SYSTEM | METADATA | DATA   | DUP chunks: SYSTEM, METADATA, DATA ...
//!            single   single     single
//! ```
//! A single profile uses its place in the first row. A DUP profile leaves that place unallocated and comes after the row, two stripes one
//! behind the other. Mixed groups take METADATA's place for both.
//!
//! # Invariants
//! - LAYOUT-1: stripes do not overlap, begin at or after 1 MiB and end within the device.
//!   Shown by `stripes_never_overlap_and_stay_on_the_device`.
//! - LAYOUT-2: the first tree blocks lie at a chunk's start and touch no superblock copy.

use creamery_base::{Error, ErrorKind, Logical, Result};

use crate::MkfsOptions;
use crate::options::Profile;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Stripes are multiples of this, bytes.
const STRIPE: u64 = 64 << 10;
/// Bytes at the start that are left to superblocks and boot loaders.
const RESERVED: u64 = MIB;
const SYSTEM_SINGLE: u64 = 4 * MIB;
const SYSTEM_DUP: u64 = 8 * MIB;
const SINGLE_MAX: u64 = 8 * MIB;

/// The content of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    System,
    Metadata,
    Data,
    Mixed,
}

/// One chunk and block group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlannedChunk {
    pub(crate) role: Role,
    pub(crate) profile: Profile,
    pub(crate) logical: Logical,
    pub(crate) len: u64,
    /// Device offsets of the copies.
    pub(crate) stripes: Vec<u64>,
}

/// The chunks in the order of their logical addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) chunks: Vec<PlannedChunk>,
}

impl Layout {
    /// The chunk for tree blocks of the chunk tree, and the one for all other trees.
    pub(crate) fn homes(&self) -> (&PlannedChunk, &PlannedChunk) {
        let find = |roles: &[Role]| {
            self.chunks.iter().find(|chunk| roles.contains(&chunk.role)).expect("every layout has the chunk")
        };
        (find(&[Role::System]), find(&[Role::Metadata, Role::Mixed]))
    }

    /// Bytes of the device that stripes occupy.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.len * chunk.stripes.len() as u64).sum()
    }

    /// Plans the chunks of a device of `total` bytes.
    pub(crate) fn plan(total: u64, options: &MkfsOptions) -> Result<Self> {
        let least = minimum(options);
        if total < least {
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!("{total} bytes are too small for these profiles, expected at least {least}"),
            ));
        }
        let mixed = options.features.mixed_groups;
        let (data, metadata) = (options.data_profile(), options.metadata_profile());
        let single_len = SINGLE_MAX.min(total / 10 / STRIPE * STRIPE);
        let mut plan = Planner { chunks: Vec::new(), next: RESERVED };

        plan.single(Role::System, metadata, SYSTEM_SINGLE);
        if mixed {
            plan.single(Role::Mixed, metadata, single_len);
        } else {
            plan.single(Role::Metadata, metadata, single_len);
            plan.single(Role::Data, data, single_len);
        }
        // From here on logical addresses and device offsets differ: a DUP chunk occupies twice its length.
        let mut plan = DupPlanner { logical: plan.next, physical: plan.next, chunks: plan.chunks };
        if metadata == Profile::Dup {
            plan.dup(Role::System, SYSTEM_DUP);
            if mixed {
                plan.dup(Role::Mixed, dup_stripe(Role::Mixed, total));
            } else {
                plan.dup(Role::Metadata, dup_stripe(Role::Metadata, total));
            }
        }
        if !mixed && data == Profile::Dup {
            plan.dup(Role::Data, dup_stripe(Role::Data, total));
        }
        let mut chunks = plan.chunks;
        chunks.sort_by_key(|chunk| chunk.logical);
        assert!(plan.physical <= total); // the minimum covers every layout
        Ok(Self { chunks })
    }
}

struct Planner {
    chunks: Vec<PlannedChunk>,
    next: u64,
}

impl Planner {
    /// Reserves a place, and uses it if the profile is single.
    fn single(&mut self, role: Role, profile: Profile, len: u64) {
        if profile == Profile::Single {
            let logical = Logical::new(self.next);
            self.chunks.push(PlannedChunk { role, profile, logical, len, stripes: vec![self.next] });
        }
        self.next += len;
    }
}

struct DupPlanner {
    chunks: Vec<PlannedChunk>,
    logical: u64,
    physical: u64,
}

impl DupPlanner {
    fn dup(&mut self, role: Role, len: u64) {
        let stripes = vec![self.physical, self.physical + len];
        let logical = Logical::new(self.logical);
        self.chunks.push(PlannedChunk { role, profile: Profile::Dup, logical, len, stripes });
        self.logical += len;
        self.physical += 2 * len;
    }
}

/// The length of one copy of a DUP chunk. If a chunk would be more than a tenth of the device, it gets half a tenth.
fn dup_stripe(role: Role, total: u64) -> u64 {
    let (most, least) = match role {
        Role::Metadata if total > 50 * GIB => (GIB, 32 * MIB),
        Role::Metadata => (256 * MIB, 32 * MIB),
        Role::Data | Role::Mixed => (GIB, 64 * MIB),
        Role::System => (SYSTEM_DUP, SYSTEM_DUP),
    };
    let tenth = total / 10;
    let len = if most > tenth { tenth / 2 / STRIPE * STRIPE } else { most };
    len.max(least)
}

/// The minimum device size, as mkfs.btrfs computes it: the first row, and the space that the profiles need.
pub(crate) fn minimum(options: &MkfsOptions) -> u64 {
    const FIRST_ROW: u64 = 21 * MIB;
    if options.features.mixed_groups {
        return match options.metadata_profile() {
            Profile::Single => 16 * MIB,
            Profile::Dup => 157 * MIB,
        };
    }
    let metadata = match options.metadata_profile() {
        Profile::Single => 16 * MIB,
        Profile::Dup => 80 * MIB,
    };
    let data = match options.data_profile() {
        Profile::Single => 8 * MIB,
        Profile::Dup => 128 * MIB,
    };
    FIRST_ROW + metadata + data
}

#[cfg(test)]
mod tests {
    use Profile::{Dup, Single};

    use super::*;

    fn plan(total: u64, data: Profile, metadata: Profile, mixed: bool) -> Vec<(u64, u64, Vec<u64>)> {
        let mut options =
            MkfsOptions { data: Some(data), metadata: Some(metadata), ..MkfsOptions::default() };
        options.features.mixed_groups = mixed;
        let layout = Layout::plan(total, &options).unwrap();
        layout.chunks.into_iter().map(|chunk| (chunk.logical.get(), chunk.len, chunk.stripes)).collect()
    }

    /// Size, profiles of data and metadata, whether mixed; then logical address, length and stripes of each chunk.
    type Row = (u64, Profile, Profile, bool, &'static [(u64, u64, &'static [u64])]);

    /// Observed with mkfs.btrfs 6.14.
    const ROWS: &[Row] = &[
        (
            GIB,
            Single,
            Dup,
            false,
            &[
                (13_631_488, 8_388_608, &[13_631_488]),
                (22_020_096, 8_388_608, &[22_020_096, 30_408_704]),
                (30_408_704, 53_673_984, &[38_797_312, 92_471_296]),
            ],
        ),
        (
            109 * MIB,
            Single,
            Dup,
            false,
            &[
                (13_631_488, 8_388_608, &[13_631_488]),
                (22_020_096, 8_388_608, &[22_020_096, 30_408_704]),
                (30_408_704, 33_554_432, &[38_797_312, 72_351_744]),
            ],
        ),
        (
            8 * GIB,
            Dup,
            Dup,
            false,
            &[
                (22_020_096, 8_388_608, &[22_020_096, 30_408_704]),
                (30_408_704, 268_435_456, &[38_797_312, 307_232_768]),
                (298_844_160, 429_457_408, &[575_668_224, 1_005_125_632]),
            ],
        ),
        (
            51 * GIB,
            Single,
            Dup,
            false,
            &[
                (13_631_488, 8_388_608, &[13_631_488]),
                (22_020_096, 8_388_608, &[22_020_096, 30_408_704]),
                (30_408_704, 1_073_741_824, &[38_797_312, 1_112_539_136]),
            ],
        ),
        (
            46 * MIB,
            Single,
            Single,
            false,
            &[
                (1_048_576, 4_194_304, &[1_048_576]),
                (5_242_880, 4_784_128, &[5_242_880]),
                (10_027_008, 4_784_128, &[10_027_008]),
            ],
        ),
        (
            300 * MIB,
            Dup,
            Single,
            false,
            &[
                (1_048_576, 4_194_304, &[1_048_576]),
                (5_242_880, 8_388_608, &[5_242_880]),
                (22_020_096, 67_108_864, &[22_020_096, 89_128_960]),
            ],
        ),
        (
            16 * MIB,
            Single,
            Single,
            true,
            &[(1_048_576, 4_194_304, &[1_048_576]), (5_242_880, 1_638_400, &[5_242_880])],
        ),
        (
            2 * GIB,
            Dup,
            Dup,
            true,
            &[
                (13_631_488, 8_388_608, &[13_631_488, 22_020_096]),
                (22_020_096, 107_347_968, &[30_408_704, 137_756_672]),
            ],
        ),
    ];

    #[test]
    fn chunks_lie_where_mkfs_btrfs_puts_them() {
        for &(total, data, metadata, mixed, want) in ROWS {
            let want: Vec<_> = want.iter().map(|&(at, len, stripes)| (at, len, stripes.to_vec())).collect();
            assert_eq!(plan(total, data, metadata, mixed), want, "{total} {data:?} {metadata:?} {mixed}");
        }
    }

    #[test]
    fn stripes_never_overlap_and_stay_on_the_device() {
        for mib in [157, 229, 230, 500, 1023, 5000, 51_201, 1 << 20] {
            for (data, metadata, mixed) in [
                (Single, Single, false),
                (Single, Dup, false),
                (Dup, Single, false),
                (Dup, Dup, false),
                (Single, Single, true),
                (Dup, Dup, true),
            ] {
                if mib < 229 && data == Dup && !mixed {
                    continue;
                }
                let mut ranges: Vec<_> = plan(mib * MIB, data, metadata, mixed)
                    .into_iter()
                    .flat_map(|(_, len, stripes)| stripes.into_iter().map(move |at| (at, at + len)))
                    .collect();
                ranges.sort_unstable();
                assert!(ranges[0].0 >= RESERVED);
                assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{ranges:?}");
                assert!(ranges.last().unwrap().1 <= mib * MIB);
            }
        }
    }

    #[test]
    fn a_device_that_is_too_small_is_told_the_least_size() {
        let message = Layout::plan(10 * MIB, &MkfsOptions::default()).unwrap_err().to_string();
        assert!(message.contains("114294784"), "{message}");
    }
}
