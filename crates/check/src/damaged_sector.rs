//! A damaged sector of data, as a finding describes it.

use std::fmt;

use creamery_base::{Escaped, ObjectId, TreeId};
use serde::Serialize;

/// The place of a damaged sector, and the files that contain it.
///
/// ```
/// use creamery_check::{DamagedFile, DamagedSector};
/// use creamery_base::{ObjectId, TreeId};
/// let of = DamagedFile::new(TreeId::FS, ObjectId::new(257), 8192);
/// let sector = DamagedSector { logical: 13_631_488, files: vec![of], ..DamagedSector::default() };
/// assert_eq!(sector.files[0].path, None);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct DamagedSector {
    /// Its address in the filesystem.
    pub logical: u64,
    /// The device with the bad copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devid: Option<u64>,
    /// The byte offset of the bad copy on that device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_offset: Option<u64>,
    /// Files that contain the sector: one as the check found it, or a limited number by name.
    pub files: Vec<DamagedFile>,
    /// The number of further files.
    pub more_files: u64,
}

/// A file that contains a damaged sector.
///
/// ```
/// use creamery_base::{ObjectId, TreeId};
/// let file = creamery_check::DamagedFile::new(TreeId::FS, ObjectId::new(257), 8192);
/// assert_eq!((file.inode, file.offset), (ObjectId::new(257), 8192));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DamagedFile {
    /// The subvolume.
    pub subvolume: TreeId,
    /// The inode.
    pub inode: ObjectId,
    /// The byte offset of the sector in the file. In compressed data: the offset of the compressed extent.
    pub offset: u64,
    /// The path from the top level, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The bytes of the path in hexadecimal, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
}

impl DamagedFile {
    /// A file whose path is not known.
    #[must_use]
    pub const fn new(subvolume: TreeId, inode: ObjectId, offset: u64) -> Self {
        Self { subvolume, inode, offset, path: None, path_bytes: None }
    }

    /// Sets the path from the top level.
    #[must_use]
    pub fn at(self, path: &[u8]) -> Self {
        let hex = || path.iter().map(|byte| format!("{byte:02x}")).collect();
        let path_bytes = std::str::from_utf8(path).is_err().then(hex);
        Self { path: Some(String::from_utf8_lossy(path).into_owned()), path_bytes, ..self }
    }

    /// The bytes of the path, if it is known.
    #[must_use]
    pub fn raw_path(&self) -> Option<Vec<u8>> {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let byte = |pair: &[u8; 2]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
        let hex = self
            .path_bytes
            .as_ref()
            .and_then(|hex| hex.as_bytes().as_chunks::<2>().0.iter().map(byte).collect());
        hex.or_else(|| self.path.as_ref().map(|path| path.clone().into_bytes()))
    }
}

impl DamagedSector {
    /// Writes the files whose paths are known.
    pub(crate) fn tell_files(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "; of";
        for file in &self.files {
            let Some(path) = &file.path else { continue };
            write!(f, "{between} {} at byte {}", Escaped(path.as_bytes()), file.offset)?;
            between = ",";
        }
        match self.more_files {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Finding, Problem, ProblemSite};

    #[test]
    fn names_are_told_without_what_a_terminal_would_take_for_more() {
        let file = |path: &[u8]| DamagedFile::new(TreeId::FS, ObjectId::new(257), 4096).at(path);
        let files = vec![
            file(b"/a"),
            file(b"/\x1b[31mred"),
            file(b"/\xff"),
            DamagedFile::new(TreeId::FS, ObjectId::new(9), 0),
        ];
        assert_eq!(files[2].path_bytes.as_deref(), Some("2fff"));
        let sector = DamagedSector { files, more_files: 7, ..DamagedSector::default() };
        let place = ProblemSite { sector: Some(Box::new(sector)), ..ProblemSite::default() };
        let said = Finding::new(Problem::DataChecksum, place, "here").to_string();
        assert!(
            said.ends_with(" at byte 4096, and 7 more") && said.contains("here; of /a at byte 4096,"),
            "{said}"
        );
        assert!(!said.contains('\x1b'), "{said}");
    }
}
