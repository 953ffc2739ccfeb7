//! The features that `mkfs.btrfs -O` knows, and the support for each.

use creamery_base::{Error, Result};

use crate::LinuxVersion;

/// The on-disk features of a new filesystem. The default is that of mkfs.btrfs 6.19.
///
/// Extended inode references, skinny metadata, the free space tree, big metadata and mixed backreferences are always on: current
/// implementations of Btrfs support them, and the engine writes nothing else.
///
/// ```
/// use creamery_mkfs::Features;
/// let mut features = Features::default();
/// features.change("^block-group-tree,^no-holes")?;
/// assert!(!features.block_group_tree && !features.no_holes);
/// assert!(features.change("zoned").is_err());
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one for each feature")]
pub struct Features {
    /// Holes in files have no items.
    pub no_holes: bool,
    /// Block group items have a tree of their own.
    pub block_group_tree: bool,
    /// Data and metadata share block groups.
    pub mixed_groups: bool,
    /// Full quotas: extents count for the subvolumes that reach them, from the beginning.
    pub quota: bool,
    /// Simple quotas: extents count for the subvolumes that make them. Simple quotas win if both are set.
    pub simple_quota: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            no_holes: true,
            block_group_tree: true,
            mixed_groups: false,
            quota: false,
            simple_quota: false,
        }
    }
}

/// The support for a feature.
#[derive(Clone, Copy)]
enum FeatureSupport {
    /// It can be on or off.
    Switch(fn(&mut Features) -> &mut bool),
    /// It is always on.
    On,
    /// This version does not support it.
    Off,
}

struct Feature {
    name: &'static str,
    alias: Option<&'static str>,
    about: &'static str,
    state: FeatureSupport,
    /// The first Linux that writes it. Unused for features that this version never makes.
    since: LinuxVersion,
}

const fn feature(
    name: &'static str,
    alias: Option<&'static str>,
    state: FeatureSupport,
    since: (u16, u16),
    about: &'static str,
) -> Feature {
    Feature { name, alias, about, state, since: LinuxVersion::new(since.0, since.1) }
}

/// Every name that mkfs.btrfs 6.19 knows, experimental ones too.
const FEATURES: &[Feature] = &[
    feature(
        "mixed-bg",
        None,
        FeatureSupport::Switch(|f| &mut f.mixed_groups),
        (2, 6),
        "data and metadata share block groups",
    ),
    feature("quota", None, FeatureSupport::Switch(|f| &mut f.quota), (3, 6), "quota groups"),
    feature("extref", None, FeatureSupport::On, (3, 7), "up to 65536 hard links of a file in one directory"),
    feature("raid56", None, FeatureSupport::Off, (3, 9), "RAID5 and RAID6"),
    feature("skinny-metadata", None, FeatureSupport::On, (3, 10), "short extent items for tree blocks"),
    feature(
        "no-holes",
        None,
        FeatureSupport::Switch(|f| &mut f.no_holes),
        (3, 14),
        "no items for holes in files",
    ),
    // Linux has read the tree since 4.5. A separate bit says that the tree is valid, and Linux before 4.9 does not write where it is set.
    feature(
        "free-space-tree",
        Some("fst"),
        FeatureSupport::On,
        (4, 9),
        "free space in a tree (space_cache=v2)",
    ),
    feature("raid1c34", None, FeatureSupport::Off, (5, 5), "RAID1 with three or four copies"),
    feature("zoned", None, FeatureSupport::Off, (5, 12), "zoned devices"),
    feature(
        "block-group-tree",
        Some("bgt"),
        FeatureSupport::Switch(|f| &mut f.block_group_tree),
        (6, 1),
        "block groups in a tree of their own, for fast mounts",
    ),
    feature("extent-tree-v2", None, FeatureSupport::Off, (5, 17), "extent tree version 2 (experimental)"),
    feature(
        "raid-stripe-tree",
        Some("rst"),
        FeatureSupport::Off,
        (6, 7),
        "where the stripes of RAID extents lie (experimental)",
    ),
    feature("squota", None, FeatureSupport::Switch(|f| &mut f.simple_quota), (6, 7), "simple quotas"),
    feature("remap-tree", None, FeatureSupport::Off, (6, 19), "relocation by a table (experimental)"),
];

/// One line of [`Features::known`].
///
/// ```
/// let known: Vec<_> = creamery_mkfs::Features::known().collect();
/// let tree = known.iter().find(|row| row.name == "block-group-tree").unwrap();
/// assert!(tree.default && tree.changeable);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KnownFeature {
    /// The name in an `-O` list.
    pub name: &'static str,
    /// The meaning in a few words.
    pub about: &'static str,
    /// Whether a new filesystem has it by default.
    pub default: bool,
    /// Whether it can be turned on and off.
    pub changeable: bool,
}

impl Features {
    /// Every feature with a name, in the order of mkfs.btrfs.
    pub fn known() -> impl Iterator<Item = KnownFeature> {
        FEATURES.iter().map(|row| {
            let (default, changeable) = match row.state {
                FeatureSupport::Switch(field) => (*field(&mut Self::default()), true),
                FeatureSupport::On => (true, false),
                FeatureSupport::Off => (false, false),
            };
            KnownFeature { name: row.name, about: row.about, default, changeable }
        })
    }

    /// The default for a Linux that is to write the filesystem: without features that it cannot write.
    ///
    /// ```
    /// use creamery_mkfs::{Features, LinuxVersion};
    /// assert!(!Features::of_linux(LinuxVersion::new(5, 15)).block_group_tree);
    /// assert_eq!(Features::of_linux(LinuxVersion::new(6, 18)), Features::default());
    /// ```
    #[must_use]
    pub fn of_linux(version: LinuxVersion) -> Self {
        let mut features = Self::default();
        for row in FEATURES {
            if let FeatureSupport::Switch(field) = row.state
                && row.since > version
            {
                *field(&mut features) = false;
            }
        }
        features
    }

    /// Refuses features that a Linux cannot write.
    ///
    /// # Errors
    /// Names one such feature.
    pub(crate) fn check_for(mut self, version: LinuxVersion) -> Result<()> {
        let always = FEATURES.iter().filter(|row| matches!(row.state, FeatureSupport::On));
        if let Some(row) = always.max_by_key(|row| row.since).filter(|row| row.since > version) {
            return Err(Error::invalid(format!(
                "Linux {version} cannot write {}, which is always on: give {} or later",
                row.name, row.since
            )));
        }
        for row in FEATURES {
            if let FeatureSupport::Switch(field) = row.state
                && *field(&mut self)
            {
                version.check(format_args!("feature {}", row.name), row.since)?;
            }
        }
        Ok(())
    }

    /// Applies a list in the syntax of `-O`: names separated by commas; a `^` in front turns a feature off.
    ///
    /// # Errors
    /// Names the first entry that is unknown, or that this version cannot set that way.
    pub fn change(&mut self, list: &str) -> Result<()> {
        let before = *self;
        let mut groups_named = false;
        for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (name, on) = match entry.strip_prefix('^') {
                Some(name) => (name, false),
                None => (entry, true),
            };
            let row = FEATURES
                .iter()
                .find(|row| row.name == name || row.alias == Some(name))
                .ok_or_else(|| Error::invalid(format!("unknown filesystem feature '{name}'")))?;
            groups_named |= row.name == "block-group-tree" && on;
            match row.state {
                FeatureSupport::Switch(field) => *field(self) = on,
                FeatureSupport::On if on => {}
                FeatureSupport::Off if !on => {}
                FeatureSupport::On => {
                    return Err(Error::unsupported(format!(
                        "filesystem feature '{}' cannot be turned off",
                        row.name
                    )));
                }
                FeatureSupport::Off => {
                    return Err(Error::unsupported(format!(
                        "filesystem feature '{}' ({})",
                        row.name, row.about
                    )));
                }
            }
        }
        // The block group tree needs no-holes: without no-holes it is turned off, too, unless the list names it.
        if before.no_holes && !self.no_holes && !groups_named {
            self.block_group_tree = false;
        }
        Ok(())
    }

    /// Checks that the features go together.
    ///
    /// # Errors
    /// Names the pair that does not go together.
    pub(crate) fn check(self) -> Result<()> {
        if self.block_group_tree && !self.no_holes {
            return Err(Error::invalid("feature block-group-tree needs no-holes"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(list: &str) -> Result<Features> {
        let mut features = Features::default();
        features.change(list).map(|()| features)
    }

    #[test]
    fn the_default_is_that_of_mkfs_btrfs_6_19() {
        let on: Vec<_> = Features::known().filter(|row| row.default).map(|row| row.name).collect();
        assert_eq!(on, ["extref", "skinny-metadata", "no-holes", "free-space-tree", "block-group-tree"]);
    }

    #[test]
    fn a_linux_gets_what_it_writes_and_refuses_the_rest() {
        let of = |version: &str| Features::of_linux(version.parse().unwrap());
        assert_eq!(of("6.1"), Features::default());
        for version in ["4.9", "5.15", "6.0"] {
            let features = of(version);
            assert!(features.no_holes && !features.block_group_tree, "{version}");
            let version = version.parse().unwrap();
            features.check_for(version).unwrap();
            let refused = Features::default().check_for(version).unwrap_err().to_string();
            assert!(refused.contains("block-group-tree") && refused.contains("6.1"), "{refused}");
        }
        for old in ["4.4", "4.5", "4.8"] {
            let version = old.parse().unwrap();
            let refused = Features::of_linux(version).check_for(version).unwrap_err().to_string();
            assert!(refused.contains("free-space-tree") && refused.contains("4.9"), "{old}: {refused}");
        }
        let simple = Features { simple_quota: true, ..Features::default() };
        assert!(simple.check_for(LinuxVersion::new(6, 6)).is_err());
        simple.check_for(LinuxVersion::new(6, 7)).unwrap();
    }

    #[test]
    fn aliases_and_spaces_are_taken() {
        assert!(!changed(" ^bgt , fst ,, extref").unwrap().block_group_tree);
        assert!(changed("mixed-bg").unwrap().mixed_groups);
    }

    #[test]
    fn a_feature_is_refused_by_its_name() {
        for (list, name) in [
            ("zoned", "zoned"),
            ("no-holes,raid56", "raid56"),
            ("^extref", "extref"),
            ("^fst", "free-space-tree"),
            ("cheese", "cheese"),
        ] {
            let message = changed(list).unwrap_err().to_string();
            assert!(message.contains(&format!("'{name}'")), "{message}");
        }
    }

    #[test]
    fn turning_off_what_is_off_is_no_error() {
        assert_eq!(changed("^quota,^zoned").unwrap(), Features::default());
    }

    #[test]
    fn the_block_group_tree_needs_no_holes() {
        assert!(changed("^no-holes,block-group-tree").unwrap().check().is_err());
        for list in ["^no-holes", "^no-holes,^bgt"] {
            assert!(!changed(list).unwrap().block_group_tree);
            assert!(changed(list).unwrap().check().is_ok());
        }
    }
}
