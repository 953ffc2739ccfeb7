//! Counts of copied and of missing data.

use serde::Serialize;

/// Files, directories and bytes of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub(super) struct Counts {
    /// Copied files and directories, also incomplete ones.
    pub(super) came: u64,
    /// Bytes of copied files, including holes.
    pub(super) came_bytes: u64,
    /// Files and directories that were not copied; the content of such a directory is not counted.
    pub(super) left_out: u64,
    /// Bytes of these files, as far as their lengths are known.
    pub(super) left_out_bytes: u64,
    /// Copied files that lack bytes.
    pub(super) lack_bytes: u64,
    pub(super) lost_bytes: u64,
    /// Copied directories that lack entries.
    pub(super) lack_entries: u64,
    /// Copied files and directories that lack attributes.
    pub(super) lack_attributes: u64,
    /// Extended attributes that are too large for the target.
    pub(super) large_attributes: u64,
}

impl Counts {
    /// The missing data in words; `None` if nothing is missing. The words include the copied data if the command reached its end.
    pub(super) fn told(&self, is_ended: bool) -> Option<String> {
        let mut parts = Vec::new();
        let mut add = |count: u64, one: &str, several: &str, rest: String| match count {
            0 => {}
            1 => parts.push(format!("1 {one}{rest}")),
            _ => parts.push(format!("{count} {several}{rest}")),
        };
        let bytes = |count: u64| if count == 0 { String::new() } else { format!(" ({count} bytes)") };
        let lost = format!(" {} bytes", self.lost_bytes);
        add(
            self.left_out,
            "file or directory did not come",
            "files and directories did not come",
            bytes(self.left_out_bytes),
        );
        add(self.lack_bytes, "file lacks", "files lack", lost);
        add(self.lack_entries, "directory lacks entries", "directories lack entries", String::new());
        add(
            self.lack_attributes,
            "file or directory lacks attributes",
            "files and directories lack attributes",
            String::new(),
        );
        add(
            self.large_attributes,
            "extended attribute does not come along",
            "extended attributes do not come along",
            String::new(),
        );
        if parts.is_empty() {
            return None;
        }
        let came = match (self.came, self.came_bytes) {
            _ if !is_ended => String::new(),
            (0, _) => String::new(),
            (1, bytes) => format!("1 file or directory came ({bytes} bytes); "),
            (came, bytes) => format!("{came} files and directories came ({bytes} bytes); "),
        };
        Some(format!("{came}{}, each named above", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_beside_what_came() {
        assert_eq!(Counts { came: 4, came_bytes: 9, ..Counts::default() }.told(true), None);
        let some = Counts {
            came: 4,
            came_bytes: 9,
            left_out: 2,
            left_out_bytes: 7,
            lack_bytes: 1,
            lost_bytes: 3,
            ..Counts::default()
        };
        assert_eq!(
            some.told(true).as_deref(),
            Some(
                "4 files and directories came (9 bytes); 2 files and directories did not come (7 bytes), 1 file lacks 3 bytes, each named above"
            )
        );
    }
}
