//! What a power cut may leave of data that was written and not synced.
//!
//! A write ends in memory. What is on the device of a file is what was written back by then, page by page, so after a power
//! cut each sector is as it was in some version that the file has had since it was synced. Its size is that of such a version,
//! or the end of pages that were complete. Everything else - names, owners, attributes - is as the commit has it, and a file
//! that was not written since it was synced is exact.
//!
//! The model keeps the versions ([`Version`]); here they are held against what is found.

use std::sync::Arc;

/// Bytes that are written back as one.
const SECTOR: usize = 4096;

/// What a file was.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) content: Arc<Vec<u8>>,
    /// The modification time if it was set since the last change.
    pub(crate) mtime: Option<u32>,
}

/// The sector at `at`, as far as the file has it.
fn sector(content: &[u8], at: usize) -> &[u8] {
    &content[at.min(content.len())..(at + SECTOR).min(content.len())]
}

/// Whether two sectors are the same where what is behind the end is zeros.
fn same(one: &[u8], other: &[u8]) -> bool {
    let common = one.len().min(other.len());
    let zeros = |rest: &[u8]| rest.iter().all(|byte| *byte == 0);
    one[..common] == other[..common] && zeros(&one[common..]) && zeros(&other[common..])
}

/// Whether data that was delayed explains what a file is found to have, of these versions of it.
pub(crate) fn explains(versions: &[Version], found: &[u8], mtime: Option<u32>) -> bool {
    let most = versions.iter().map(|version| version.content.len()).max().unwrap_or(0);
    let complete = found.len().is_multiple_of(SECTOR) && found.len() <= most;
    let size = complete || versions.iter().any(|version| version.content.len() == found.len());
    let at = |at: usize| {
        let here = sector(found, at);
        // A version that ends within the sector says nothing of what a longer one has behind that.
        versions.iter().any(|version| {
            let was = sector(&version.content, at);
            same(here, &was[..was.len().min(here.len())])
        })
    };
    size && (0..found.len()).step_by(SECTOR).all(at) && versions.iter().any(|version| version.mtime == mtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(parts: &[(u8, usize)]) -> Version {
        let content = parts.iter().flat_map(|(byte, len)| vec![*byte; *len]).collect();
        Version { content: Arc::new(content), mtime: None }
    }

    #[test]
    fn each_sector_is_that_of_a_version_and_nothing_else() {
        let versions = [version(&[(1, 5000)]), version(&[(1, 4096), (2, 8192)]), version(&[(3, 9000)])];
        let rows: [(&[(u8, usize)], bool); 11] = [
            (&[(1, 5000)], true),
            (&[(1, 4096), (2, 8192)], true),
            (&[(3, 4096), (2, 4096)], true),
            (&[(1, 4096), (3, 4904)], true),
            (&[], true),
            (&[(1, 4096), (0, 4904)], false),
            (&[(1, 4096), (1, 904), (0, 3192)], true),
            (&[(1, 4096), (0, 4096), (2, 4096)], false),
            (&[(4, 5000)], false),
            (&[(1, 5001)], false),
            (&[(1, 4096), (2, 8192), (0, 4096)], false),
        ];
        for (found, legal) in rows {
            let found = version(found);
            assert_eq!(explains(&versions, &found.content, None), legal, "{:?}", found.content.len());
        }
        assert!(!explains(&versions, &versions[0].content, Some(7)), "a time that nobody set");
    }
}
