//! The locks of all files, as the system lists them.
//!
//! Linux returns one page of its list at a time, and finds the next page by a count: if a lock goes meanwhile, another one is skipped. So a
//! list of more than a page is read several times, and a lock counts if it is in one of the copies.

use std::fs;

const TABLE: &str = "/proc/locks";
/// Bytes that the system returns from one moment; on some systems more.
const PAGE: usize = 4096;
/// If very many locks come and go, a lock that stays is skipped once in twenty reads.
const READS: usize = 8;

/// Returns the lines of all locks. Locks that come or go meanwhile may be missing, and a lock may be there more than once.
///
/// # Errors
/// The system shows no locks.
pub(crate) fn lock_table() -> std::io::Result<String> {
    let mut table = fs::read_to_string(TABLE)?;
    if table.len() >= PAGE {
        for _ in 1..READS {
            table.push_str(&fs::read_to_string(TABLE)?);
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{FlockOperation, flock};

    use super::{PAGE, lock_table};

    fn locked() -> std::fs::File {
        let file = tempfile::tempfile().unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        file
    }

    #[test]
    fn a_lock_that_is_held_is_there_while_others_come_and_go() {
        let held: Vec<_> = (0..2 * PAGE / 50).map(|_| locked()).collect();
        let inodes: Vec<String> =
            held.iter().map(|file| format!(":{} ", file.metadata().unwrap().ino())).collect();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        drop((0..20).map(|_| locked()).collect::<Vec<_>>());
                    }
                });
            }
            for _ in 0..100 {
                let table = lock_table().unwrap();
                let missed = inodes.iter().filter(|inode| !table.contains(inode.as_str())).count();
                if missed > 0 {
                    over.store(true, Ordering::Relaxed);
                }
                assert_eq!(missed, 0);
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
