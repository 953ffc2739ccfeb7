//! The options of a caller, and their checked form.

use creamery_base::{Error, Result, Uuid};
use creamery_codec::{ChecksumType, CompressionType};

use crate::{Features, LinuxVersion};

const SIZE_MIN: u32 = 4 << 10;
const SIZE_MAX: u32 = 64 << 10;
const NODE_SIZE_DEFAULT: u32 = 16 << 10;
/// Maximum bytes of a label; on disk it ends with a zero.
const LABEL_MAX: usize = 255;

/// The number of copies that a block group keeps on one device.
///
/// ```
/// use creamery_mkfs::Profile;
/// assert_eq!("DUP".parse::<Profile>()?, Profile::Dup);
/// assert!("raid1".parse::<Profile>().is_err());
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// One copy.
    Single,
    /// Two copies.
    Dup,
}

impl Profile {
    /// The number of copies on the device.
    #[must_use]
    pub const fn copies(self) -> u64 {
        match self {
            Self::Single => 1,
            Self::Dup => 2,
        }
    }
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Single => "single",
            Self::Dup => "DUP",
        })
    }
}

impl std::str::FromStr for Profile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "single" => Ok(Self::Single),
            "dup" => Ok(Self::Dup),
            "raid0" | "raid1" | "raid1c3" | "raid1c4" | "raid10" | "raid5" | "raid6" => {
                Err(Error::unsupported(format!("profile '{text}' (one device takes single or dup)")))
            }
            _ => Err(Error::invalid(format!("unknown profile '{text}', expected single or dup"))),
        }
    }
}

/// The options of a new filesystem; the default is that of mkfs.btrfs 6.19 for one device.
///
/// ```
/// use creamery_mkfs::{MkfsOptions, Profile};
/// let options = MkfsOptions { label: b"backup".to_vec(), ..MkfsOptions::default() };
/// assert_eq!((options.data_profile(), options.metadata_profile()), (Profile::Single, Profile::Dup));
/// ```
#[derive(Clone, Debug, Default)]
pub struct MkfsOptions {
    /// At most 255 bytes, no line break.
    pub label: Vec<u8>,
    /// The filesystem's UUID; `None` is a random one.
    pub uuid: Option<Uuid>,
    /// The device's UUID; `None` is a random one.
    pub device_uuid: Option<Uuid>,
    /// Profile of data.
    pub data: Option<Profile>,
    /// Profile of metadata and of the chunk tree.
    pub metadata: Option<Profile>,
    /// Owner and group of the root directory, if no source fills the filesystem: a source has its own. The default is root.
    pub owner: (u32, u32),
    /// Bytes of a tree block: a power of two from 4 to 64 KiB.
    pub node_size: Option<u32>,
    /// Bytes of a data block: a power of two from 4 KiB to the node size.
    pub sector_size: Option<u32>,
    /// The checksum of tree blocks and data.
    pub checksum: ChecksumType,
    /// On-disk features.
    pub features: Features,
    /// The oldest Linux that is to write the filesystem: features that it cannot write are refused. [`Features::of_linux`] is the default
    /// without them.
    pub compat: Option<LinuxVersion>,
    /// Use this many bytes of the device instead of all of them.
    pub total_bytes: Option<u64>,
    /// Keep the device's old content where nothing new is written, instead of discarding it.
    pub keep_content: bool,
    /// Overwrite another filesystem.
    pub force: bool,
}

/// Sizes that passed all checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    pub(crate) node_size: u32,
    pub(crate) sector_size: u32,
}

impl MkfsOptions {
    /// The profile of data: the requested one, or single.
    #[must_use]
    pub fn data_profile(&self) -> Profile {
        self.data.unwrap_or(Profile::Single)
    }

    /// The profile of metadata: the requested one, or DUP; in mixed groups that of the data.
    #[must_use]
    pub fn metadata_profile(&self) -> Profile {
        let default = if self.features.mixed_groups { self.data_profile() } else { Profile::Dup };
        self.metadata.unwrap_or(default)
    }

    /// Checks everything that does not depend on a device.
    ///
    /// # Errors
    /// [`InvalidInput`](creamery_base::ErrorKind::InvalidInput), naming the option.
    pub fn check(&self) -> Result<()> {
        self.geometry().map(drop)
    }

    fn check_compat(&self) -> Result<()> {
        let Some(version) = self.compat else { return Ok(()) };
        self.features.check_for(version)?;
        match self.checksum {
            ChecksumType::Crc32c => Ok(()),
            checksum => version.check(format_args!("checksums of type {checksum}"), LinuxVersion::new(5, 5)),
        }
    }

    /// Refuses compression that the oldest Linux of [`compat`](Self::compat) cannot read.
    pub(crate) fn check_compression(&self, kind: CompressionType) -> Result<()> {
        let since = match kind {
            CompressionType::Zlib | CompressionType::Lzo => return Ok(()),
            CompressionType::Zstd => LinuxVersion::new(4, 14),
        };
        self.compat
            .map_or(Ok(()), |version| version.check(format_args!("data compressed with {kind}"), since))
    }

    pub(crate) fn geometry(&self) -> Result<Geometry> {
        self.features.check()?;
        self.check_compat()?;
        self.check_label()?;
        let mixed = self.features.mixed_groups;
        let sector_size = self.sector_size.unwrap_or(SIZE_MIN);
        check_size("sector size", sector_size)?;
        let default = if mixed { sector_size } else { NODE_SIZE_DEFAULT.max(sector_size) };
        let node_size = self.node_size.unwrap_or(default);
        check_size("node size", node_size)?;
        if node_size < sector_size {
            return Err(Error::invalid(format!(
                "node size {node_size} is below the sector size {sector_size}"
            )));
        }
        if mixed && node_size != sector_size {
            return Err(Error::invalid(format!(
                "mixed block groups need node size = sector size, found {node_size} and {sector_size}"
            )));
        }
        if mixed && self.data.is_some_and(|data| data != self.metadata_profile()) {
            return Err(Error::invalid("mixed block groups have one profile for data and metadata"));
        }
        if mixed && self.data.is_none() && self.metadata == Some(Profile::Dup) {
            return Err(Error::invalid("mixed block groups have one profile: give -d dup as well"));
        }
        Ok(Geometry { node_size, sector_size })
    }

    fn check_label(&self) -> Result<()> {
        if self.label.len() > LABEL_MAX {
            return Err(Error::invalid(format!(
                "label has {} bytes, expected at most {LABEL_MAX}",
                self.label.len()
            )));
        }
        if self.label.iter().any(|&byte| byte == b'\n' || byte == 0) {
            return Err(Error::invalid("label contains a newline or a NUL byte"));
        }
        Ok(())
    }
}

fn check_size(what: &str, size: u32) -> Result<()> {
    if !size.is_power_of_two() || !(SIZE_MIN..=SIZE_MAX).contains(&size) {
        return Err(Error::invalid(format!(
            "{what} {size} is not a power of two from {SIZE_MIN} to {SIZE_MAX}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(change: impl FnOnce(&mut MkfsOptions)) -> MkfsOptions {
        let mut options = MkfsOptions::default();
        change(&mut options);
        options
    }

    #[test]
    fn sizes_default_to_those_of_mkfs_btrfs() {
        let of = |options: MkfsOptions| {
            let geometry = options.geometry().unwrap();
            (geometry.node_size, geometry.sector_size)
        };
        assert_eq!(of(MkfsOptions::default()), (16384, 4096));
        assert_eq!(of(options(|o| o.features.mixed_groups = true)), (4096, 4096));
        assert_eq!(of(options(|o| o.sector_size = Some(65536))), (65536, 65536));
    }

    #[test]
    fn an_option_that_makes_no_sense_is_named() {
        for (bad, name) in [
            (options(|o| o.node_size = Some(3000)), "node size 3000"),
            (options(|o| o.node_size = Some(131_072)), "node size 131072"),
            (options(|o| o.sector_size = Some(2048)), "sector size 2048"),
            (
                options(|o| {
                    o.node_size = Some(4096);
                    o.sector_size = Some(16384);
                }),
                "below the sector size",
            ),
            (
                options(|o| {
                    o.features.mixed_groups = true;
                    o.node_size = Some(16384);
                }),
                "mixed block groups",
            ),
            (
                options(|o| {
                    o.features.mixed_groups = true;
                    o.data = Some(Profile::Dup);
                    o.metadata = Some(Profile::Single);
                }),
                "one profile",
            ),
            (options(|o| o.label = vec![b'x'; 256]), "256 bytes"),
            (options(|o| o.label = b"two\nlines".to_vec()), "newline"),
        ] {
            let message = bad.check().unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
        }
    }
}
